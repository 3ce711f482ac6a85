package import Postgres

extension Database {
    /// How long an attempt waits for a lock. Later statements wait behind it for as long, so the
    /// attempt soon fails, and is retried a few times.
    private static let lockTimeout = "50ms"
    private static let lockAttempts = 10

    /// Runs an operation that only one replica may run at a time; `nil` if another replica runs it,
    /// or if the tables are too busy now; the caller's next round retries.
    package func locked<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresTransaction) async throws -> Value
    ) async throws -> Value? {
        for attempt in 1...Self.lockAttempts {
            do {
                return try await lockedOnce(body)
            } catch let error as StorageError where error.sqlState == "55P03" {
                guard attempt < Self.lockAttempts else { break }
                try await Task.sleep(for: .milliseconds(100) * Double.random(in: 1...3))
            }
        }
        return nil
    }

    private func lockedOnce<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresTransaction) async throws -> Value
    ) async throws -> Value? {
        try await transaction { transaction in
            let lock = try await transaction.execute(
                """
                SELECT pg_try_advisory_xact_lock(
                    hashtextextended('carillon maintenance ' || current_schema(), 0)) AS mine
                """
            )
            guard try lock.first?.boolean("mine") == true else { return nil }
            _ = try await transaction.execute(
                "SET LOCAL lock_timeout = '\(Self.lockTimeout)'"
            )
            return try await body(transaction)
        }
    }
}
