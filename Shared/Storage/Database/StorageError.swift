package import Postgres

/// An error of the storage. `description` is safe to show: no values, no URI.
package struct StorageError: Error, Sendable, Equatable, CustomStringConvertible {
    package enum Kind: Sendable, Equatable {
        /// The database itself: unreachable, overloaded, or a statement that it refused.
        case database
        /// An object of that name, or with that key, already exists.
        case conflict
        /// The dispatcher's session has expired and was ended by another process: it owns nothing any more.
        case sessionLost
        /// A row has a form that this version does not write.
        case corrupt
        /// This machine and Postgres disagree about the current day.
        case clocksDisagree
    }

    package let kind: Kind
    package let description: String
    /// Whether the same call may succeed later.
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

    /// Whether the values are rejected, so that a retry would not help: data exceptions, integrity,
    /// and exceeded limits.
    package var isOfTheValues: Bool {
        guard !isRetryable, let sqlState else { return false }
        return ["22", "23", "54"].contains { sqlState.hasPrefix($0) }
    }

    /// Whether the push may be at fault: the database works, but rejects the statement, or the
    /// statement takes too long.
    package var mayBeOfThePush: Bool {
        isStatementTimeout || kind == .database && sqlState != nil && !isRetryable
    }

    /// Whether the statement exceeded its timeout.
    package var isStatementTimeout: Bool { sqlState == "57014" }

    package init(_ error: PostgresError) {
        self.init(
            error.sqlState == "23505" ? .conflict : .database,
            error.description,
            isRetryable: error.isRetryable,
            // A value that cannot be sent, such as a string with NUL, gets the state with which the
            // server would reject it.
            sqlState: error.kind == .encoding ? "22021" : error.sqlState
        )
    }

    package static let clocksDisagree = StorageError(
        .clocksDisagree,
        "this machine's clock and Postgres' differ by more than a day"
    )

    package static let sessionLost = StorageError(
        .sessionLost,
        "another dispatcher took over this session"
    )
}

/// The schema excludes this version as too old. A service exits with 78.
package struct SchemaTooNew: Error, Sendable, Equatable, CustomStringConvertible {
    package let schemaVersion: Int
    /// The oldest version of the schema that a service may have been built for.
    package let oldestUsable: Int
    package let ownVersion: Int
    /// The purpose that needs the schema; `nil`: any.
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
