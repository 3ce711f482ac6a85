import Postgres
package import PushCore

/// An act in the audit that may explain a change in a chart, with its time and its actor.
package struct AuditEvent: Sendable, Equatable {
    package enum Kind: Sendable, Equatable {
        case configPublished(namespace: String, version: Int)
        case configRolledBack(namespace: String, version: Int)
        /// `apns com.example.shop`
        case credentialSet(String)
        case credentialRemoved(String)
        case settingsChanged
        case keyRotated
        case devicesRestored
    }

    package let kind: Kind
    /// As in `AuditEntry`.
    package let actor: String
    package let at: Instant

    package init(kind: Kind, actor: String, at: Instant) {
        (self.kind, self.actor, self.at) = (kind, actor, at)
    }

    /// Reads an entry; `nil` if it changed nothing that charts mark.
    package init?(_ entry: AuditEntry) {
        // A command's exit code, or the status of a response.
        guard entry.status == 0 || (200..<400).contains(entry.status),
            let group = Group.allCases.first(where: { $0.actions.contains(entry.action) }),
            let kind = group.kind(of: entry.targets)
        else { return nil }
        self.init(kind: kind, actor: entry.actor, at: entry.at)
    }

    fileprivate enum Group: CaseIterable {
        case publish, rollback, credential, removal, settings, key, restore

        /// The actions of the audit. The index `audit_events` has these only.
        var actions: [String] {
            switch self {
            case .publish:
                ["config put", "POST /console/:app/config/:ns/publish"]
                    + Self.template("PUT", "remoteConfig")
            case .rollback:
                ["config rollback", "POST /console/:app/config/:ns/versions/:version/rollback"]
                    + Self.template("POST", "remoteConfig:rollback")
            case .credential: ["credentials set", "POST /console/:app/credentials/:kind"]
            case .removal: ["credentials remove", "POST /console/:app/credentials/:kind/remove"]
            case .settings: ["app set", "POST /console/:app/settings"]
            case .key: ["app rotate-key"]
            case .restore: ["installations restore", "POST /console/:app/devices/restore"]
            }
        }

        private static func template(_ method: String, _ path: String) -> [String] {
            ["", "/namespaces/firebase", "/namespaces/firebase-server"].map {
                "\(method) /v1/projects/:project\($0)/\(path)"
            }
        }

        func kind(of targets: [String]) -> Kind? {
            switch self {
            case .publish:
                return AuditEvent.version(in: targets).map {
                    .configPublished(namespace: $0, version: $1)
                }
            case .rollback:
                return AuditEvent.version(in: targets).map {
                    .configRolledBack(namespace: $0, version: $1)
                }
            case .credential: return targets.first.map(Kind.credentialSet)
            case .removal: return targets.first.map(Kind.credentialRemoved)
            case .settings: return .settingsChanged
            case .key: return .keyRotated
            case .restore: return .devicesRestored
            }
        }
    }

    /// Returns the namespace and version of a publish: `firebase 42` of the command, `firebase/42` of
    /// HTTP, `firebase` and `42` of the console. `nil` for a validation, which publishes nothing.
    private static func version(in targets: [String]) -> (String, Int)? {
        let words = targets.flatMap { $0.split { $0 == " " || $0 == "/" } }
        guard words.count == 2, let version = Int(words[1]), version > 0 else { return nil }
        return (String(words[0]), version)
    }

    /// SQL: the list of all actions.
    static let actions = Group.allCases.flatMap(\.actions)
        .map { "'\($0)'" }.joined(separator: ", ")
}

extension AuditStore {
    /// Returns the latest acts of an app that charts mark.
    ///
    /// - Parameters:
    ///   - app: The app.
    ///   - from: The earliest time.
    ///   - to: The end, exclusive.
    ///   - limit: The most acts.
    /// - Returns: The newest first. Validations of templates take part in the limit.
    /// - Throws: `StorageError`.
    package func events(
        app: String,
        from: Instant,
        to: Instant,
        limit: Int
    ) async throws -> [AuditEvent] {
        try await database.execute(
            """
            SELECT \(Self.columns) FROM audit
            WHERE app = $1 AND at >= $2 AND at < $3 AND action IN (\(AuditEvent.actions))
                AND (status = 0 OR status BETWEEN 200 AND 399)
            ORDER BY at DESC, id DESC LIMIT $4
            """,
            [
                .text(app), .timestamp(from.microseconds), .timestamp(to.microseconds),
                .integer(limit),
            ]
        ).rows.compactMap { AuditEvent(try Self.entry($0)) }
    }
}
