/// One step of the schema, forward only. The previous version of the services still runs on it,
/// also between two of its statements: each statement is a separate transaction (`MigrationStep`).
package struct Migration: Sendable {
    let version: Int
    /// The oldest version that may use the schema after this step.
    let oldestUsable: Int
    /// Whether all statements are one transaction, which rewrites a table and blocks other writes
    /// to it meanwhile. True only for migrations that are older than the rule of separate
    /// transactions.
    var isWhole = false
    let statements: [String]

    /// One migration for each file in `Migrations`, in the order of the versions in their names.
    /// Empty if a file is invalid, which a test excludes: no schema is usable then.
    static let all = (try? MigrationFile.migrations(MigrationFile.embedded)) ?? []

    /// The last version. The files are counted, not parsed: every start of a program asks.
    package static var current: Int { MigrationFile.embedded.count }
}

/// The state of the schema for this version.
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

    static func assess(version: Int, oldestUsable: Int, own: Int) -> SchemaState {
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
