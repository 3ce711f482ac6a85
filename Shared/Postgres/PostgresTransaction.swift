internal import EventLoop

/// One transaction's statements, on the pool's loop. After the first error nothing more is sent, as
/// the server would refuse it; the transaction can only be rolled back.
package actor PostgresTransaction {
    private enum State {
        case new
        case open
        case failed(PostgresError)
        case ended
    }

    private let connection: PostgresConnection
    private nonisolated let loop: EventLoop
    private var state = State.new

    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    init(_ connection: PostgresConnection) {
        self.connection = connection
        loop = connection.loop
    }

    /// - Returns: The statement's result; nothing of it is durable before the commit.
    /// - Throws: `PostgresError`; `CancellationError`.
    package func execute(
        _ sql: String,
        _ parameters: [PostgresValue] = [],
        isPrepared: Bool = true
    ) async throws -> PostgresResult {
        let results = try await pipeline([(sql, parameters)], isPrepared: isPrepared)
        return results[0]
    }

    /// Runs several statements in one round trip; each may rely on earlier ones.
    ///
    /// Set `isPrepared` if the same texts will be run again: then they are prepared and cached. A text
    /// that is run once would only evict others from the connection's cache.
    ///
    /// - Returns: A result for each.
    /// - Throws: The first error; then none of them has happened.
    package func pipeline(
        _ statements: [(sql: String, parameters: [PostgresValue])],
        isPrepared: Bool = true
    ) async throws -> [PostgresResult] {
        try Task.checkCancellation()
        var first = false
        switch state {
        case .new: first = true
        case .open: break
        case .failed(let error): throw error
        case .ended: throw PostgresError(.usage, "the transaction has ended")
        }
        if statements.isEmpty { return [] }
        try Self.check(statements)
        state = .open
        do {
            let begin = first ? [(sql: "BEGIN", parameters: [PostgresValue]())] : []
            let results = try await send(
                begin + statements,
                isCancellable: true,
                isPrepared: isPrepared
            )
            return first ? Array(results.dropFirst()) : results
        } catch {
            let failure = (error as? PostgresError) ?? PostgresError(.usage, "cancelled")
            if case .open = state { state = .failed(failure) }
            throw error
        }
    }

    /// Runs the whole transaction, with its COMMIT, in one round trip: for statements that do not
    /// depend on each other's results.
    ///
    /// - Returns: A result for each.
    /// - Throws: The first error; then none of them has happened.
    func complete(
        _ statements: [(sql: String, parameters: [PostgresValue])]
    ) async throws -> [PostgresResult] {
        guard case .new = state else {
            throw PostgresError(.usage, "the transaction has begun")
        }
        try Self.check(statements)
        state = .open
        do {
            let results = try await send(
                [("BEGIN", [])] + statements + [("COMMIT", [])],
                isCancellable: true
            )
            try requireCommit(results.last)
            return Array(results.dropFirst().dropLast())
        } catch {
            if case .open = state {
                state = .failed((error as? PostgresError) ?? PostgresError(.usage, "cancelled"))
            }
            throw error
        }
    }

    /// Checks the values first, so that an invalid one does not touch the pipeline.
    private static func check(
        _ statements: [(sql: String, parameters: [PostgresValue])]
    ) throws(PostgresError) {
        for statement in statements {
            for parameter in statement.parameters { try parameter.check() }
        }
    }

    /// Runs statements without parameters, separated by semicolons: a migration's text.
    package func script(_ sql: String) async throws {
        _ = try await plain { try await $0.runScript(sql) }
    }

    /// Runs an operation that needs plain mode, inside the transaction.
    func plain<Value: Sendable>(
        _ body: (PostgresConnection) async throws -> Value
    ) async throws -> Value {
        // BEGIN must have been sent.
        if case .open = state {} else { try await awaitEarlierStatements() }
        // After the last answer the statements that the cache evicted are deallocated, and for that the
        // connection is busy once more.
        for _ in 0..<Self.maximumWaits where !connection.isQuiet {
            try await awaitEarlierStatements()
        }
        do {
            try connection.leavePipelineMode()
            let value = try await body(connection)
            try connection.enterPipelineMode()
            return value
        } catch {
            await connection.abandonPlain(after: error)
            try? connection.enterPipelineMode()
            let told = connection.lossAsSeenByBorrower(of: error)
            state = .failed((told as? PostgresError) ?? PostgresError(.usage, "cancelled"))
            throw told
        }
    }

    private static let maximumWaits = 4

    /// Returns when all earlier statements are answered. Not prepared, as that could evict another
    /// statement.
    private func awaitEarlierStatements() async throws {
        _ = try await pipeline([("SELECT 1", [])], isPrepared: false)
    }

    func commit() async throws {
        switch state {
        case .new:
            state = .ended
            return
        case .failed(let error): throw error
        case .ended: throw PostgresError(.usage, "the transaction has ended")
        case .open: break
        }
        let results: [PostgresResult]
        do {
            results = try await send([("COMMIT", [])], isCancellable: false)
        } catch {
            state = .failed((error as? PostgresError) ?? .closed)
            throw error
        }
        try requireCommit(results.first)
    }

    private func requireCommit(_ result: PostgresResult?) throws {
        state = .ended
        guard result?.command == "COMMIT" else {
            throw PostgresError(
                .server,
                "the transaction had failed and was rolled back",
                sqlState: "25P02"
            )
        }
    }

    /// Rolls back. Never throws: a connection that cannot roll back is closed, which has the same
    /// effect.
    func rollBack() async {
        defer { state = .ended }
        switch state {
        case .new, .ended: return
        case .open, .failed: break
        }
        await connection.settleCancellation()
        for _ in 0..<2 where connection.mode == .pipeline {
            // The second try is for a late cancellation that hit the first.
            if (try? await send([("ROLLBACK", [])], isCancellable: false)) != nil { return }
        }
        connection.fail(PostgresError(.connectionLost, "the transaction could not be rolled back"))
    }

    /// Sends all statements in one group.
    private func send(
        _ statements: [(sql: String, parameters: [PostgresValue])],
        isCancellable: Bool,
        isPrepared: Bool = true
    ) async throws -> [PostgresResult] {
        let batch = RequestBatch(statements.count)
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                batch.start(continuation)
                for statement in statements {
                    let isControl = ["BEGIN", "COMMIT", "ROLLBACK"].contains(statement.sql)
                    let request = batch.add {
                        PostgresRequest(
                            statement.sql,
                            statement.parameters,
                            isPrepared: isPrepared && !isControl,
                            commits: statement.sql == "COMMIT",
                            completion: $0
                        )
                    }
                    connection.submit(request)
                }
            }
        } onCancel: {
            guard isCancellable else { return }
            loop.execute { self.assumeIsolated { $0.cancel(batch) } }
        }
    }

    private func cancel(_ batch: RequestBatch) {
        for request in batch.requests where !request.isFinished { connection.cancel(request) }
    }
}
