/// The server of a pool, and the pool's limits.
package struct PostgresConfiguration: Sendable {
    /// A libpq connection URI; its `sslmode` decides about TLS. Secret.
    package var uri: String
    /// The number of connections, 2...1000, not counting the listener's. A quarter of them are
    /// shared and pipelined; more shared ones gain nothing. Each of the others serves one
    /// transaction, stream or COPY at a time and is opened when first needed.
    package var connections: Int
    /// The name in `pg_stat_activity`.
    package var applicationName: String
    /// The time after which the server ends a statement; 0: never.
    package var statementTimeout: Duration
    /// The time after which the server ends a wait for a lock; 0: never.
    package var lockTimeout: Duration
    /// The time after which the server ends a connection that is idle in a transaction or does not
    /// read its results; 0: never. Until then a process that is stopped or cut off keeps its locks,
    /// and other sessions wait for them.
    package var idleTransactionTimeout: Duration
    /// The limit of one attempt to connect, name resolution included.
    package var connectTimeout: Duration
    /// The time without any bytes from the server after which a stream or a COPY fails with a
    /// retryable error; 0: never. Streams and COPYs have no statement timeout, so this limit
    /// detects a server that hangs. It must be longer than the longest pause for a sort or a lock.
    /// The time spent in the caller's `body` does not count.
    package var streamIdleTimeout: Duration
    /// How long a request waits for a connection before it fails with a retryable error.
    package var acquireTimeout: Duration
    /// Further settings of each new connection. They go into SQL unescaped, so only constants of
    /// the program are allowed.
    package var settings: [(name: String, value: String)]
    /// Schema names, separated by commas; nil: the default of the server or the URI.
    package var searchPath: String?
    /// The most requests that wait or are in flight at once, and the most waiting transactions; one
    /// more fails with a retryable error.
    package var maximumPending: Int
    /// The most prepared statements of a connection; the least recently used is evicted first.
    package var maximumPrepared: Int
    /// The time after which `close` gives up on requests in flight.
    package var drainTimeout: Duration

    package init(
        uri: String,
        connections: Int = 4,
        applicationName: String = "carillon",
        statementTimeout: Duration = .seconds(30),
        lockTimeout: Duration = .seconds(10),
        idleTransactionTimeout: Duration = .zero,
        connectTimeout: Duration = .seconds(5),
        streamIdleTimeout: Duration = .seconds(300),
        acquireTimeout: Duration = .seconds(10),
        settings: [(name: String, value: String)] = [],
        searchPath: String? = nil,
        maximumPending: Int = 20_000,
        maximumPrepared: Int = 256,
        drainTimeout: Duration = .seconds(10)
    ) {
        self.uri = uri
        self.connections = min(max(connections, 2), 1000)
        self.applicationName = applicationName
        self.statementTimeout = statementTimeout
        self.lockTimeout = lockTimeout
        self.idleTransactionTimeout = idleTransactionTimeout
        self.connectTimeout = connectTimeout
        self.streamIdleTimeout = streamIdleTimeout
        self.acquireTimeout = acquireTimeout
        self.settings = settings
        self.searchPath = searchPath
        self.maximumPending = max(1, maximumPending)
        self.maximumPrepared = max(1, maximumPrepared)
        self.drainTimeout = drainTimeout
    }

    var sharedConnections: Int { max(1, connections / 4) }
    var exclusiveConnections: Int { max(1, connections - sharedConnections) }

    /// The script that sets up each new connection. It sets everything that statements depend on,
    /// so that the server's own configuration does not matter. `jit` is off: statements are short,
    /// and compiling one takes a hundred times as long as running it.
    var sessionScript: String {
        var script = """
            SET client_encoding TO 'UTF8'; SET timezone TO 'UTC'; SET datestyle TO 'ISO, YMD';
            SET bytea_output TO 'hex'; SET standard_conforming_strings TO on;
            SET extra_float_digits TO 1;
            SET jit TO off;
            SET statement_timeout TO \(statementTimeout.wholeMilliseconds);
            SET lock_timeout TO \(lockTimeout.wholeMilliseconds);
            """
        if idleTransactionTimeout > .zero {
            let limit = idleTransactionTimeout.wholeMilliseconds
            // On a local socket the server silently ignores the four TCP settings. The name
            // overrides a name in the URI or the environment: operators and other processes find
            // the connection by it, and end it.
            let name = applicationName.replacing("'", with: "''")
            script += """
                 SET application_name TO '\(name)';
                SET idle_in_transaction_session_timeout TO \(limit);
                SET tcp_user_timeout TO \(limit * 2);
                SET tcp_keepalives_idle TO 10; SET tcp_keepalives_interval TO 5;
                SET tcp_keepalives_count TO 3;
                """
        }
        for (name, value) in settings { script += " SET \(name) TO \(value);" }
        if let searchPath {
            let schemas = searchPath.split(separator: ",").map { name in
                quotedIdentifier(name.trimmingBlanksAndQuotes)
            }
            if !schemas.isEmpty {
                script += " SET search_path TO \(schemas.joined(separator: ", "));"
            }
        }
        return script
    }
}

/// Returns an SQL identifier in double quotes.
package func quotedIdentifier(_ name: some StringProtocol) -> String {
    var quoted = "\""
    for character in name where character != "\0" {
        if character == "\"" { quoted.append("\"") }
        quoted.append(character)
    }
    return quoted + "\""
}

extension Duration {
    /// The duration in milliseconds, rounded up, so that a limit above zero never becomes "no
    /// limit".
    var wholeMilliseconds: Int {
        let (seconds, attoseconds) = components
        guard seconds >= 0, attoseconds >= 0 else { return 0 }
        return Int(seconds) * 1000
            + Int((attoseconds + 999_999_999_999_999) / 1_000_000_000_000_000)
    }
}

extension Substring {
    fileprivate var trimmingBlanksAndQuotes: Substring {
        var text = self
        while let first = text.first, first == " " || first == "\"" { text.removeFirst() }
        while let last = text.last, last == " " || last == "\"" { text.removeLast() }
        return text
    }
}
