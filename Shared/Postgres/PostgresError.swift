/// The error of a database operation.
///
/// `description` may be shown and logged: it has no row values, no parameters and no part of a
/// connection URI. `debugDescription` has the server's own message, values included.
package struct PostgresError: Error, Sendable, Equatable {
    package enum Kind: String, Sendable, CaseIterable {
        /// The server refused a statement; `sqlState` says why.
        case server
        /// No connection could be made.
        case connect
        /// The connection broke while the request was in flight.
        case connectionLost = "connection_lost"
        /// No connection became free in time.
        case unavailable
        /// Too many requests wait.
        case overloaded
        /// The pool is closing or closed.
        case closed
        /// A column does not have the type that its reader requested.
        case decoding
        /// A value cannot be sent.
        case encoding
        /// The caller's mistake: a COPY through `execute`, a transaction used after its end.
        case usage
    }

    package let kind: Kind
    package let sqlState: String?
    /// The name of the violated constraint, if the server gave one.
    package let constraint: String?
    /// Safe to show.
    let message: String
    /// Details for a debugger only.
    let detail: String
    /// Whether a commit was in flight when the connection broke: it may have happened.
    package let outcomeIsUnknown: Bool

    init(
        _ kind: Kind,
        _ message: String,
        sqlState: String? = nil,
        constraint: String? = nil,
        detail: String = "",
        outcomeIsUnknown: Bool = false
    ) {
        self.kind = kind
        self.message = message
        self.sqlState = sqlState
        self.constraint = constraint
        self.detail = detail
        self.outcomeIsUnknown = outcomeIsUnknown
    }

    /// Whether the same request may succeed later.
    package var isRetryable: Bool {
        switch kind {
        case .connect, .connectionLost, .unavailable, .overloaded: return true
        case .closed, .decoding, .encoding, .usage: return false
        case .server: return sqlState.map(isRetryable(sqlState:)) ?? false
        }
    }

    /// A label from a closed set.
    package var metricLabel: String {
        guard kind == .server, let sqlState else { return kind.rawValue }
        switch sqlState {
        case "40P01": return "deadlock"
        case "55P03": return "lock_timeout"
        case "57014": return "statement_timeout"
        default: break
        }
        switch sqlState.prefix(2) {
        case "22": return "data"
        case "23": return "constraint"
        case "28": return "authorization"
        case "40": return "serialization"
        case "42": return "statement"
        case "53": return "resources"
        case "57": return "operator"
        default: return "server"
        }
    }

    package static let metricLabels: [String] =
        Kind.allCases.map(\.rawValue) + [
            "deadlock", "lock_timeout", "statement_timeout", "data", "constraint",
            "authorization", "serialization", "statement", "resources", "operator",
        ]
}

extension PostgresError: CustomStringConvertible, CustomDebugStringConvertible {
    package var description: String {
        guard let sqlState else { return message }
        return "\(message) (SQLSTATE \(sqlState))"
    }

    package var debugDescription: String {
        detail.isEmpty ? description : "\(description): \(detail)"
    }
}

extension PostgresError {
    /// Makes the error of a server's error report.
    static func server(
        sqlState: String,
        primary: String,
        detail: String,
        constraint: String?
    ) -> PostgresError {
        // In these classes the primary message has names from the statement, never a value.
        let isSafe = [
            "08", "0A", "23", "25", "26", "28", "3D", "3F", "40", "42", "53", "55", "57", "58",
        ].contains(String(sqlState.prefix(2)))
        let fallback =
            sqlState.hasPrefix("22") ? "a value does not fit" : "the server refused the statement"
        return PostgresError(
            .server,
            isSafe ? primary : fallback,
            sqlState: sqlState,
            constraint: constraint,
            detail: detail.isEmpty ? primary : "\(primary): \(detail)"
        )
    }

    /// Makes the error of a failed connection attempt. libpq's message can contain parts of the
    /// URI, so only its kind is used.
    static func connect(libpq text: String) -> PostgresError {
        let known: [(fragment: String, meaning: String)] = [
            ("Connection refused", "connection refused"),
            ("could not translate host name", "the host name cannot be resolved"),
            ("password authentication failed", "password authentication failed"),
            ("no password supplied", "no password supplied"),
            ("pg_hba.conf", "the server's pg_hba.conf refuses it"),
            ("certificate verify failed", "the server's certificate is not trusted"),
            ("root certificate file", "the file of sslrootcert cannot be read"),
            ("does not match host name", "the server's certificate is for another host"),
            ("certificate", "the certificate was refused"),
            ("does not support SSL", "the server has no TLS"),
            ("SSL", "TLS failed"),
            ("starting up", "the server is starting up"),
            ("in recovery mode", "the server is recovering"),
            ("not yet accepting connections", "the server is recovering"),
            ("shutting down", "the server is shutting down"),
            ("too many clients", "the server has too many clients"),
            ("remaining connection slots", "the server has too many clients"),
            ("role", "the role does not exist or may not log in"),
            ("database", "the database does not exist or may not be used"),
            ("timeout", "timed out"),
            ("timed out", "timed out"),
            ("No such file", "the server's socket is missing"),
            ("unreachable", "the host is unreachable"),
            ("No route", "the host is unreachable"),
            ("closed the connection", "the server closed the connection"),
            ("session is read-only", "the server is a standby"),
            ("hot standby", "the server is a standby"),
            ("URI", "the connection URI cannot be read"),
        ]
        let meaning = known.first { text.contains($0.fragment) }?.meaning ?? "connecting failed"
        return PostgresError(.connect, "cannot connect to Postgres: \(meaning)", detail: text)
    }

    static func lost(_ cause: PostgresError?, outcomeIsUnknown: Bool = false) -> PostgresError {
        PostgresError(
            .connectionLost,
            "the connection to Postgres was lost",
            sqlState: cause?.sqlState,
            detail: cause?.debugDescription ?? "",
            outcomeIsUnknown: outcomeIsUnknown
        )
    }

    static let closed = PostgresError(.closed, "the pool is closed")
}

private func isRetryable(sqlState: String) -> Bool {
    switch sqlState {
    case "55P03", "55006", "25006", "25P03", "57014", "57P01", "57P02", "57P03", "57P05":
        return true
    default: return ["08", "40", "53"].contains(String(sqlState.prefix(2)))
    }
}
