import Postgres
import PushCore

extension PushRequest.Selectors {
    /// Whether their members are chosen when the push is planned, and kept with its shards: as an
    /// answer to the condition, or as an identity may change hands. Others are cut, or become rows.
    func isChosen(isLarge: Bool) -> Bool {
        isDirect ? identities != nil && isLarge : condition != nil
    }

    /// What an installation `n` has to fulfil, each condition behind an `AND`.
    ///
    /// - Throws: `WhereError` for a condition over what is not kept.
    func conditions(
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

    /// The part of them that leaves installations out which hear of it otherwise, or have heard, or
    /// get template sends only.
    func besideTopic(_ parameters: inout [PostgresValue]) -> String {
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

    /// The part of them that names installations one by one.
    func names(_ parameters: inout [PostgresValue], of alias: String) -> String {
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
