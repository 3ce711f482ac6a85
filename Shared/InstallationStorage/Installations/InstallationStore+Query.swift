import Postgres
package import PushCore
import Storage

extension InstallationStore {
    /// Conditions on an installation, all of which it must meet.
    package struct Filter: Sendable {
        package var objectIDs: [String]?
        package var installationID: String?
        package var deviceType: String?
        /// A token in its canonical form, see `DeviceToken`.
        package var token: String?
        package var identity: String?
        package var isValid: Bool?
        /// The object id after which the page begins, in the order of the ids.
        package var after: String?

        package init() {}
    }

    package enum Order: Sendable {
        case objectID, createdAt, createdAtDescending, updatedAt, updatedAtDescending

        fileprivate var sql: String {
            switch self {
            case .objectID: "object_id"
            case .createdAt: "created_at, object_id"
            case .createdAtDescending: "created_at DESC, object_id DESC"
            case .updatedAt: "updated_at, object_id"
            case .updatedAtDescending: "updated_at DESC, object_id DESC"
            }
        }
    }

    package func query(
        app: String,
        _ filter: Filter = Filter(),
        order: Order = .objectID,
        limit: Int = 100,
        skip: Int = 0
    ) async throws -> [Installation] {
        var conditions = Conditions(app: app, filter)
        let limit = conditions.bind(.integer(min(max(limit, 0), 1000)))
        let skip = conditions.bind(.integer(max(skip, 0)))
        return try await database.execute(
            """
            SELECT \(InstallationRow.columns) FROM installations WHERE \(conditions.sql)
            ORDER BY \(order.sql) LIMIT \(limit) OFFSET \(skip)
            """,
            conditions.parameters
        ).rows.map(InstallationRow.read)
    }

    /// Returns the installation with this object id, or else with this installationId. If there is
    /// none and `beginnings` is set, returns the installations whose ids begin with the name.
    package func find(
        app: String,
        named name: String,
        beginnings: Bool,
        limit: Int
    ) async throws -> [Installation] {
        var conditions = ["object_id = $2", "installation_id = $2"]
        if beginnings {
            conditions.append(
                """
                object_id >= $2 AND object_id < $2::text || chr(1114111)
                    OR starts_with(installation_id, $2)
                """
            )
        }
        for condition in conditions {
            let found = try await database.execute(
                """
                SELECT \(InstallationRow.columns) FROM installations WHERE app = $1 AND (\(condition))
                ORDER BY object_id LIMIT $3
                """,
                [.text(app), .text(name), .integer(limit)]
            ).rows.map(InstallationRow.read)
            if !found.isEmpty { return found }
        }
        return []
    }

    package func count(app: String, _ filter: Filter = Filter()) async throws -> Int {
        let conditions = Conditions(app: app, filter)
        return try await database.execute(
            "SELECT count(*) AS count FROM installations WHERE \(conditions.sql)",
            conditions.parameters
        ).first?.integer("count") ?? 0
    }

    private struct Conditions {
        private(set) var sql = "app = $1"
        private(set) var parameters: [PostgresValue]

        init(app: String, _ filter: Filter) {
            parameters = [.text(app)]
            if let ids = filter.objectIDs { add("object_id = ANY (%::text[])", .textArray(ids)) }
            if let id = filter.installationID { add("installation_id = %", .text(id)) }
            if let type = filter.deviceType { add("device_type = %", .text(type)) }
            if let token = filter.token {
                add("token_hash = sha256(convert_to(%, 'UTF8'))", .text(token))
            }
            if let identity = filter.identity { add("identity = %", .text(identity)) }
            if let isValid = filter.isValid { add("valid = %", .boolean(isValid)) }
            if let after = filter.after { add("object_id > %", .text(after)) }
        }

        mutating func bind(_ value: PostgresValue) -> String {
            parameters.append(value)
            return "$\(parameters.count)"
        }

        private mutating func add(_ condition: String, _ value: PostgresValue) {
            let name = bind(value)
            sql +=
                " AND "
                + condition.split(separator: "%", omittingEmptySubsequences: false)
                .joined(separator: name)
        }
    }
}
