import PushCore
import PushStorage

/// What push sync needs, and what is the matter with it.
extension Doctor {
    /// Longer than a dispatcher takes to end a window that is due.
    private static let patience = Duration.seconds(60)

    mutating func examineSync(_ database: PushDatabase) async throws {
        if let overdue = try await database.syncState.overdue(by: Self.patience) {
            found(
                "push sync",
                .warning,
                "devices are not told of \(overdue.count) changed datasets, since"
                    + " \(overdue.since.iso8601): does a dispatcher run?"
            )
        } else {
            found("push sync", .ok, "changes are told")
        }
    }
}
