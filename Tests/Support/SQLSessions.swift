import CPQ
import Foundation
import Synchronization

/// Open sessions with Postgres, for the statements of tests. A session for each statement would take
/// 25 ms of a core, most of them to fork a server's process.
final class SQLSessions: Sendable {
    static let shared = SQLSessions()

    private let idle = Mutex<[String: [SQLSession]]>([:])

    /// Runs statements, as one text, in a session that no other statement uses meanwhile.
    ///
    /// - Returns: One line for each row of each statement, with its columns separated by `|`.
    func run(_ sql: String, at url: String) async throws -> [String] {
        try await withCheckedThrowingContinuation { continuation in
            DispatchQueue.global().async {
                continuation.resume(
                    with: Result {
                        let session = try self.take(url) ?? SQLSession(url)
                        let text = try session.run(sql)
                        if session.reset() {
                            self.idle.withLock { $0[url, default: []].append(session) }
                        }
                        return text.split(separator: "\n").map(String.init)
                    }
                )
            }
        }
    }

    /// Ends the sessions with a database that is about to be dropped.
    func end(at url: String) {
        _ = idle.withLock { $0.removeValue(forKey: url) }
    }

    /// Returns an idle session that its server has not ended.
    private func take(_ url: String) -> SQLSession? {
        idle.withLock { idle in
            while let session = idle[url]?.popLast() {
                if session.isOpen { return session }
            }
            return nil
        }
    }
}

/// One session. One thread at a time uses it.
@safe private final class SQLSession: @unchecked Sendable {
    private let connection: OpaquePointer
    /// No statement of a test takes as long.
    private static let longest = Duration.seconds(300)

    init(_ url: String) throws {
        guard let connection = unsafe PQconnectdb(url) else { throw TestFailure("no memory") }
        unsafe self.connection = connection
        guard unsafe PQstatus(connection) == CONNECTION_OK else { throw failure }
        _ = unsafe PQsetNoticeProcessor(connection, { _, _ in }, nil)
    }

    deinit { unsafe PQfinish(connection) }

    /// Whether the server has neither ended it nor said that it will: an idle session is sent nothing.
    var isOpen: Bool {
        var socket = unsafe pollfd(fd: PQsocket(connection), events: Int16(POLLIN), revents: 0)
        return unsafe poll(&socket, 1, 0) == 0 && PQstatus(connection) == CONNECTION_OK
    }

    private var failure: TestFailure {
        TestFailure("Postgres: " + (unsafe String(cString: PQerrorMessage(connection))))
    }

    func run(_ sql: String) throws -> String {
        guard unsafe PQsendQuery(connection, sql) == 1 else { throw failure }
        let end = ContinuousClock.now + Self.longest
        var text = ""
        while true {
            while unsafe PQisBusy(connection) == 1 {
                var socket = unsafe pollfd(
                    fd: PQsocket(connection),
                    events: Int16(POLLIN),
                    revents: 0
                )
                _ = unsafe poll(&socket, 1, 1_000)
                guard ContinuousClock.now < end else {
                    throw TestFailure("Postgres does not answer \(sql)")
                }
                guard unsafe PQconsumeInput(connection) == 1 else { throw failure }
            }
            guard let result = unsafe PQgetResult(connection) else { break }
            defer { unsafe PQclear(result) }
            switch unsafe PQresultStatus(result) {
            case PGRES_TUPLES_OK: unsafe Self.write(result, to: &text)
            case PGRES_COMMAND_OK, PGRES_EMPTY_QUERY: break
            // An error, or a COPY: the session is not used again.
            default: throw failure
            }
        }
        return text
    }

    private static func write(_ result: OpaquePointer, to text: inout String) {
        let columns = unsafe PQnfields(result)
        for row in unsafe 0..<PQntuples(result) {
            for column in 0..<columns {
                if column > 0 { text += "|" }
                text += unsafe String(cString: PQgetvalue(result, row, column))
            }
            text += "\n"
        }
    }

    /// Takes back what a statement left in the session; returns whether it can be used again.
    func reset() -> Bool {
        guard unsafe PQtransactionStatus(connection) == PQTRANS_IDLE else { return false }
        return (try? run("DISCARD ALL")) != nil
    }
}
