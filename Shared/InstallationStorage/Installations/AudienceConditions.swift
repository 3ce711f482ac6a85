package import Postgres
package import PushCore
import Storage

extension PushRequest.Selectors {
    /// Whether the members are selected when the push is planned, and stored with its shards:
    /// because a condition selects them, or because an identity's devices may change. Other
    /// audiences are cut into ranges, or become rows.
    package func isChosen(isLarge: Bool) -> Bool {
        isDirect ? identities != nil && isLarge : condition != nil
    }

    /// Returns the conditions that an installation `n` must meet, each after an `AND`.
    ///
    /// - Throws: `WhereError` for a condition on a field that is not stored.
    package func conditions(
        _ parameters: inout [PostgresValue],
        app: String
    ) throws(WhereError) -> String {
        var conditions = ""
        if let channels {
            parameters.append(.textArray(channels))
            conditions += " AND n.channels && $\(parameters.count)::text[]"
        }
        conditions += names(&parameters, of: "n")
        conditions += besideTopic(&parameters)
        if let condition {
            var compiler = WhereCompiler(app: app, parameters: parameters)
            conditions += " AND " + (try compiler.installations(condition, as: "n"))
            parameters = compiler.parameters
        }
        return conditions
    }

    /// Returns the conditions that leave out installations that get the content by a topic of FCM,
    /// have it already, or get template sends only.
    package func besideTopic(_ parameters: inout [PostgresValue]) -> String {
        var conditions = isOfTemplate ? "" : " AND NOT n.template_only"
        if exceptFCM { conditions += " AND n.provider <> '\(Platform.fcm.rawValue)'" }
        if let configBelow {
            parameters.append(.integer(configBelow))
            conditions += """
                 AND NOT EXISTS (SELECT FROM config_fetched f
                    WHERE f.app = n.app AND f.installation = n.object_id
                        AND f.version >= $\(parameters.count)::bigint)
                """
        }
        return conditions
    }

    /// Returns the conditions for selectors that list identities or installations.
    package func names(_ parameters: inout [PostgresValue], of alias: String) -> String {
        var conditions = ""
        if let identities {
            parameters.append(.textArray(identities))
            conditions += " AND \(alias).identity = ANY ($\(parameters.count)::text[])"
        }
        if let installations {
            parameters.append(.textArray(installations))
            let list = "ANY ($\(parameters.count)::text[])"
            conditions +=
                " AND (\(alias).object_id = \(list) OR \(alias).installation_id = \(list))"
        }
        return conditions
    }
}
