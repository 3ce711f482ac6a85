package import EventLoop
package import Storage

extension Cache.Store {
    /// Returns a store backed by Postgres.
    package static func database(_ database: PushDatabase) -> Self {
        Self(
            isAway: { database.notReadyReason() != nil },
            isTransient: { ($0 as? StorageError)?.isRetryable ?? false },
            tooLate: StorageError(
                .database,
                "the database does not answer",
                isRetryable: true
            )
        )
    }
}
