/// One step of the schema. It goes only forward, and the version before it still runs on it, also on what
/// is there between two of its statements: each is a transaction of its own (`MigrationStep`).
struct Migration: Sendable {
    let version: Int
    /// The oldest version that may use the schema after this step.
    let oldestUsable: Int
    /// All statements are one transaction, which writes a table anew and lets no other write to it
    /// meanwhile. Only migrations from before this rule are so.
    var isWhole = false
    let statements: [String]

    static let all: [Migration] = [
        .first, .second, .third, .fourth, .fifth, .sixth, .seventh, .eighth, .ninth, .tenth,
        .eleventh, .twelfth, .thirteenth, .fourteenth, .fifteenth, .sixteenth,
        .seventeenth, .eighteenth, .nineteenth, .twentieth, .twentyFirst,
        .twentySecond, .twentyThird,
        .twentyFourth, .twentyFifth, .twentySixth, .twentySeventh,
        .twentyEighth, .twentyNinth, .thirtieth,
        .thirtyFirst, .thirtySecond, .thirtyThird, .thirtyFourth, .thirtyFifth,
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
