import SecureStorage
import ServiceKit
import Storage

/// Deletes the bytes of ended content within seconds, and its bare row and the keys of requests
/// after their retention.
struct SecureExpiryJob: Sendable {
    let database: PushDatabase
    let metrics: SecureMetrics
    /// The retention of bare rows.
    let retention: Duration
    let keyRetention: Duration

    private static let portion = 200
    private static let batch = 1000
    /// The rounds between two deletions of rows and keys, which are not urgent.
    private static let roundsBetweenForgetting = 30

    /// Creates the job. Ended content must be deleted within a minute, even if one round fails.
    func job(in runtime: ServiceRuntime) -> PeriodicJob<Int> {
        PeriodicJob(
            "secure-keeping",
            cannot: "cannot delete expired secure payloads",
            in: runtime,
            state: 0,
            begin: { try await database.untilReady() }
        ) { round in
            try await emptyAll()
            if round.isMultiple(of: Self.roundsBetweenForgetting) { try await forgetAll() }
            round += 1
            return .seconds(10)
        }
    }

    private func emptyAll() async throws {
        while !Task.isCancelled {
            let emptied = try await database.securePayloads.emptyExpired(limit: Self.portion)
            metrics.emptied(emptied)
            if emptied.count < Self.portion { return }
        }
    }

    private func forgetAll() async throws {
        let store = database.securePayloads
        while !Task.isCancelled,
            try await store.forget(endedBefore: retention, limit: Self.batch) == Self.batch
        {}
        while !Task.isCancelled,
            try await store.forgetKeys(olderThan: keyRetention, limit: Self.batch) == Self.batch
        {}
    }
}
