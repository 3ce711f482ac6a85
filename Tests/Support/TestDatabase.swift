import EventLoop
import Foundation
import Storage

/// A database of the test's own on the server of `DATABASE_URL`, made and dropped by the test.
///
/// For tests that must share nothing with others, including advisory locks and NOTIFY channels.
package struct TestDatabase: Sendable {
    package let name: String
    package let url: String
    private let server: String

    /// Makes an empty one on the server of that URL; `nil` is that of `DATABASE_URL`.
    package static func make(on server: String? = nil) async throws -> TestDatabase {
        try await make(on: server ?? Self.server(), likeOneNamed: nil)
    }

    /// Makes a migrated one on the server of `DATABASE_URL`, as a copy: this process migrates one
    /// database, as a copy takes Postgres half of the time of all migrations.
    package static func makeMigrated() async throws -> TestDatabase {
        try await make(on: server(), likeOneNamed: MigratedDatabase.shared.name())
    }

    private static func server() throws -> String {
        guard let server = TestEnvironment.databaseURL else {
            throw TestFailure("DATABASE_URL is not set")
        }
        return server
    }

    private static func make(
        on server: String,
        likeOneNamed template: String?
    ) async throws -> TestDatabase {
        guard var parts = URLComponents(string: server) else {
            throw TestFailure("DATABASE_URL is not a URL")
        }
        let name = TestEnvironment.unique("carillon_test_")
        let source = template.map { " template \($0) strategy file_copy" } ?? ""
        _ = try await SQLSessions.shared.run("create database \(name)\(source)", at: server)
        parts.path = "/\(name)"
        guard let url = parts.string else { throw TestFailure("DATABASE_URL is not a URL") }
        return TestDatabase(name: name, url: url, server: server)
    }

    /// Excludes connections, so that it can be copied at any time.
    fileprivate func close() async throws {
        _ = try await SQLSessions.shared.run(
            "alter database \(name) allow_connections false",
            at: server
        )
    }

    /// Returns one line for each row, with its columns separated by `|`.
    package func query(_ sql: String) async throws -> [String] {
        try await SQLSessions.shared.run(sql, at: url)
    }

    package func drop() async throws {
        SQLSessions.shared.end(at: url)
        _ = try await SQLSessions.shared.run(
            "drop database if exists \(name) with (force)",
            at: server
        )
    }
}

/// The migrated database of this process, which others are copied from. It stays on the server,
/// which is a test run's own.
private actor MigratedDatabase {
    static let shared = MigratedDatabase()

    private var made: Task<String, any Error>?

    func name() async throws -> String {
        let made = made ?? Task { try await Self.make() }
        self.made = made
        return try await made.value
    }

    private static func make() async throws -> String {
        let server = try await TestDatabase.make()
        let loop = try EventLoop(name: "migrated-database")
        let database = PushDatabase(
            DatabaseConfiguration(uri: server.url, connections: 1),
            on: loop
        )
        let result: Result<Void, any Error>
        do {
            _ = try await database.migrate()
            result = .success(())
        } catch {
            result = .failure(error)
        }
        await database.close()
        await loop.stop()
        try result.get()
        try await server.close()
        return server.name
    }
}
