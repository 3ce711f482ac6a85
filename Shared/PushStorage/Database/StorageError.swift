import Postgres

/// What went wrong with what is stored. `description` is safe to show: no values, no URI.
package struct StorageError: Error, Sendable, Equatable, CustomStringConvertible {
    package enum Kind: Sendable, Equatable {
        /// The database itself: unreachable, overloaded, or a statement that it refused.
        case database
        /// Something of that name, or with that key, is there already.
        case conflict
        /// The dispatcher's session was taken for dead by another: it owns nothing any more.
        case sessionLost
        /// A row is not what this version wrote.
        case corrupt
        /// This machine and Postgres do not agree on what day it is.
        case clocksDisagree
    }

    package let kind: Kind
    package let description: String
    /// The same call may succeed later.
    package let isRetryable: Bool
    package let sqlState: String?

    package init(
        _ kind: Kind,
        _ description: String,
        isRetryable: Bool = false,
        sqlState: String? = nil
    ) {
        self.kind = kind
        self.description = description
        self.isRetryable = isRetryable
        self.sqlState = sqlState
    }

    /// The values themselves are refused, so that no repeat would help: data exceptions, integrity,
    /// and what exceeds the program's limits.
    package var isOfTheValues: Bool {
        guard !isRetryable, let sqlState else { return false }
        return ["22", "23", "54"].contains { sqlState.hasPrefix($0) }
    }

    /// The database answered, and might answer others: what it was asked to do is what it refuses, or
    /// takes too long for.
    package var mayBeOfThePush: Bool {
        isStatementTimeout || kind == .database && sqlState != nil && !isRetryable
    }

    /// The statement took longer than the database gives it.
    package var isStatementTimeout: Bool { sqlState == "57014" }

    init(_ error: PostgresError) {
        self.init(
            error.sqlState == "23505" ? .conflict : .database,
            error.description,
            isRetryable: error.isRetryable,
            // What cannot be sent as it is, a text with NUL, the server would refuse by this.
            sqlState: error.kind == .encoding ? "22021" : error.sqlState
        )
    }

    static let clocksDisagree = StorageError(
        .clocksDisagree,
        "this machine's clock and Postgres' differ by more than a day"
    )

    static let sessionLost = StorageError(
        .sessionLost,
        "another dispatcher took this session for dead"
    )
}

/// The schema says that this version is too old for it. A service exits with 78.
package struct SchemaTooNew: Error, Sendable, Equatable, CustomStringConvertible {
    package let schemaVersion: Int
    /// The oldest version of the schema that a service may have been built for.
    package let oldestUsable: Int
    package let ownVersion: Int
    /// What it was to be used for; `nil`: for anything.
    package let purpose: String?

    package init(
        schemaVersion: Int,
        oldestUsable: Int,
        ownVersion: Int,
        purpose: String? = nil
    ) {
        self.schemaVersion = schemaVersion
        self.oldestUsable = oldestUsable
        self.ownVersion = ownVersion
        self.purpose = purpose
    }

    package var description: String {
        let use = purpose.map { "used \($0)" } ?? "used"
        return "the schema is at version \(schemaVersion) and may be \(use) by services built for"
            + " version \(oldestUsable) or later; this one was built for version \(ownVersion)"
    }
}
