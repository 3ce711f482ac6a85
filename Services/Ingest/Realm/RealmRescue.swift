import EventLoop
import Storage

/// Whether any app rescues devices that come with tokens of Atlas. Stale by at most five seconds.
/// Confined to its loop.
final class RealmRescue: @unchecked Sendable {
    private static let lifetime = Duration.seconds(5)

    private let database: PushDatabase
    private var last: (isOpen: Bool, at: ContinuousClock.Instant)?

    init(_ database: PushDatabase) { self.database = database }

    /// - Throws: `StorageError` if the database cannot answer.
    func isOpen() async throws -> Bool {
        let now = ContinuousClock.now
        if let last, now - last.at < Self.lifetime { return last.isOpen }
        let isOpen = try await database.apps.hasRealmRescue()
        last = (isOpen, now)
        return isOpen
    }
}
