import ConfigStorage
import JSON
import RemoteConfig
import Storage

/// The queries for templates of namespace `firebase`.
struct ConfigSource: Sendable {
    typealias Current = (version: Int, template: JSONValue)

    /// The latest revision.
    var revision: @Sendable () async throws -> Int
    /// The templates that became current after a revision, in order, at most `headsAtOnce`.
    var heads: @Sendable (_ revision: Int) async throws -> [ConfigHead]
    /// An app's template; `nil` if nothing is published.
    var current: @Sendable (_ app: String) async throws -> Current?

    static let headsAtOnce = 1000

    static func postgres(_ database: PushDatabase) -> ConfigSource {
        let namespace = ConfigNamespace.firebase.rawValue
        return ConfigSource(
            revision: { try await database.config.revision() },
            heads: { revision in
                try await database.config.heads(
                    of: namespace,
                    after: revision,
                    limit: headsAtOnce
                )
            },
            current: { app in
                let stored = try await database.config.version(app, namespace)
                return stored.flatMap { stored in
                    stored.template.map { (stored.version, $0) }
                }
            }
        )
    }
}
