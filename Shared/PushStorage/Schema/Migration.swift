import Postgres

/// One step of the schema. It goes only forward, and the version before it still runs on it.
struct Migration: Sendable {
    let version: Int
    /// The oldest version that may use the schema after this step.
    let oldestUsable: Int
    let statements: [String]

    static let all: [Migration] = [
        .first, .second, .third, .fourth, .fifth, .sixth, .seventh, .eighth, .ninth, .tenth,
        .eleventh, .twelfth, .thirteenth, .fourteenth, .fifteenth, .sixteenth,
        .seventeenth, .eighteenth, .nineteenth, .twentieth, .twentyFirst,
        .twentySecond, .twentyThird,
        .twentyFourth, .twentyFifth, .twentySixth, .twentySeventh,
        .twentyEighth, .twentyNinth, .thirtieth,
        .thirtyFirst,
    ]

    static var current: Int { all.last?.version ?? 0 }
}

/// How the schema stands to this version.
package enum SchemaState: Sendable, Equatable {
    case missing
    case behind(version: Int, wanted: Int)
    case usable(version: Int)
    case tooNew(SchemaTooNew)

    package var notReadyReason: String? {
        switch self {
        case .missing: "schema missing: run carillon migrate"
        case .behind(let version, let wanted):
            "schema behind: version \(version), wanted \(wanted); run carillon migrate"
        case .usable: nil
        case .tooNew(let error): error.description
        }
    }

    static func judge(version: Int, oldestUsable: Int, own: Int) -> SchemaState {
        if oldestUsable > own {
            return .tooNew(
                SchemaTooNew(
                    schemaVersion: version,
                    oldestUsable: oldestUsable,
                    ownVersion: own
                )
            )
        }
        return version < own ? .behind(version: version, wanted: own) : .usable(version: version)
    }
}

/// The schema itself: its version, and the steps to this program's.
struct SchemaStore: Sendable {
    let database: Database

    func state() async throws -> SchemaState {
        let known = try await database.execute(
            "SELECT to_regclass('carillon_schema') IS NOT NULL AS known"
        )
        guard try known.first?.boolean("known") == true else { return .missing }
        let result = try await database.execute(
            "SELECT max(version) AS version, max(oldest_usable) AS oldest FROM carillon_schema"
        )
        guard let row = result.first, let version = try row.integerOrNil("version") else {
            return .missing
        }
        return .judge(
            version: version,
            oldestUsable: try row.integerOrNil("oldest") ?? 0,
            own: Migration.current
        )
    }

    /// Brings the schema to this version: safe to repeat, and safe from many at once, as each step
    /// is a transaction of its own under one advisory lock.
    ///
    /// - Returns: The versions that this call applied; empty when there was nothing to do.
    /// - Throws: `SchemaTooNew` where the schema has left this version behind.
    func migrate() async throws -> [Int] {
        var applied: [Int] = []
        for migration in Migration.all where try await applyPatiently(migration) {
            applied.append(migration.version)
        }
        return applied
    }

    /// Whoever waits for a table's lock makes all wait who come after him. So a step does not wait
    /// for long: it gives way, and tries again.
    private func applyPatiently(_ migration: Migration) async throws -> Bool {
        var attempts = 1
        while true {
            do {
                return try await apply(migration)
            } catch let error as StorageError where error.sqlState == "55P03" && attempts < 60 {
                attempts += 1
                try await Task.sleep(for: .seconds(1))
            }
        }
    }

    private func apply(_ migration: Migration) async throws -> Bool {
        try await database.transaction { transaction in
            _ = try await transaction.execute("SET LOCAL lock_timeout = 0")
            _ = try await transaction.execute("SET LOCAL statement_timeout = 0")
            // Of each schema its own lock: tests migrate many of them at once.
            _ = try await transaction.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended('carillon ' || current_schema(), 0))"
            )
            _ = try await transaction.execute(
                """
                CREATE TABLE IF NOT EXISTS carillon_schema (
                    version integer PRIMARY KEY,
                    oldest_usable integer NOT NULL,
                    applied_at timestamptz NOT NULL DEFAULT now())
                """
            )
            let rows = try await transaction.execute(
                """
                SELECT coalesce(max(version), 0) AS version,
                    coalesce(max(oldest_usable), 0) AS oldest
                FROM carillon_schema
                """
            )
            let version = try rows.first?.integer("version") ?? 0
            let oldest = try rows.first?.integer("oldest") ?? 0
            if case .tooNew(let error) = SchemaState.judge(
                version: version,
                oldestUsable: oldest,
                own: Migration.current
            ) {
                throw error
            }
            guard version < migration.version else { return false }
            _ = try await transaction.execute("SET LOCAL lock_timeout = '3s'")
            for statement in migration.statements {
                _ = try await transaction.execute(statement)
            }
            _ = try await transaction.execute(
                "INSERT INTO carillon_schema (version, oldest_usable) VALUES ($1, $2)",
                [.integer(migration.version), .integer(migration.oldestUsable)]
            )
            return true
        }
    }
}
