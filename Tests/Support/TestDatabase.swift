import Foundation

/// A database of the test's own on the server of `DATABASE_URL`, made and dropped through Debian's
/// psql.
///
/// For tests that must share nothing with others, including advisory locks and NOTIFY channels.
package struct TestDatabase: Sendable {
    package let name: String
    package let url: String
    private let server: String

    /// Makes one on the server of that URL; `nil` is that of `DATABASE_URL`.
    package static func make(on server: String? = nil) async throws -> TestDatabase {
        guard let server = server ?? TestEnvironment.databaseURL,
            var parts = URLComponents(string: server)
        else { throw TestFailure("DATABASE_URL is not set") }
        let name = TestEnvironment.unique("carillon_test_")
        _ = try await psql(server, "create database \(name)")
        parts.path = "/\(name)"
        guard let url = parts.string else { throw TestFailure("DATABASE_URL is not a URL") }
        return TestDatabase(name: name, url: url, server: server)
    }

    /// Returns one line for each row, with its columns separated by `|`.
    package func query(_ sql: String) async throws -> [String] {
        try await Self.psql(url, sql)
    }

    package func drop() async throws {
        _ = try await Self.psql(server, "drop database if exists \(name) with (force)")
    }

    private static func psql(_ url: String, _ sql: String) async throws -> [String] {
        try await run(
            "/usr/bin/psql",
            ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", url, "-c", sql]
        )
        .successful("psql")
        .split(separator: "\n").map(String.init)
    }
}
