import PushCore
import PushStorage

/// What remote config needs, and what is the matter with it.
extension Doctor {
    /// A project that is linked and cannot be reached hears of no new template.
    mutating func examineLinks(
        of app: String,
        _ credentials: [StoredCredential],
        _ database: PushDatabase
    ) async throws {
        let projects = try await database.appLinks.list(app).filter { $0.kind == .fcmProject }
        guard let first = projects.first, !credentials.contains(where: { $0.platform == .fcm })
        else { return }
        let others = projects.count > 1 ? " and \(projects.count - 1) more" : ""
        found(
            "links \(app)",
            .warning,
            "the project \(first.name)\(others) is linked, and there is no credential for FCM: its"
                + " Android devices are not told of a new template"
        )
    }

    /// Longer than the watcher's own waits, so what is older has been left lying.
    private static let patience = Duration.seconds(60)

    mutating func examineConfig(_ database: PushDatabase) async throws {
        let refused = try await database.config.refused()
        for stored in refused {
            found(
                "config \(stored.app) \(stored.namespace)",
                .failed,
                "version \(stored.version) is refused and not served:"
                    + " \(Terminal.short(stored.reason ?? "", 400))"
            )
        }
        let overdue = try await database.config.overdue(by: Self.patience)
        for item in overdue {
            let problem =
                switch item.stage {
                case .unchecked: "has not been looked at"
                case .unheard: "is current, and clients have not been told"
                case .pending: "is to be announced, and is not"
                }
            found(
                "config \(item.app) \(item.namespace)",
                .warning,
                "version \(item.version) \(problem) since \(item.since.iso8601): does a"
                    + " config-watcher run?"
            )
        }
        if refused.isEmpty, overdue.isEmpty {
            found("config", .ok, "what is published is announced")
        }
    }
}
