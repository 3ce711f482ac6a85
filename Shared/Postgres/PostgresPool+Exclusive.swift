internal import EventLoop

extension PostgresPool {
    /// A task that waits for an exclusive connection.
    struct Waiter {
        let id: Int
        let deadline: ContinuousClock.Instant
        let continuation: CheckedContinuation<PostgresConnection, any Error>
    }

    // MARK: Lending

    /// Borrows an exclusive connection; waiting callers are served in their order.
    private func acquire() async throws -> PostgresConnection {
        guard phase == .open || phase == .idle else { throw PostgresError.closed }
        if isGivenUp { throw unavailable() }
        try Task.checkCancellation()
        start()
        idle.removeAll { !$0.isUsable }
        if waiters.isEmpty, let connection = idle.popLast() {
            lent.append(connection)
            return connection
        }
        guard waiters.count < configuration.maximumPending else {
            throw PostgresError(.overloaded, "too many transactions wait for Postgres")
        }
        addExclusiveSlotIfAllowed()
        nextWaiter += 1
        let id = nextWaiter
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                // Checked again, as a task that does not prefer the loop is queued once more before
                // this.
                guard phase == .open || phase == .idle, !Task.isCancelled else {
                    return continuation.resume(
                        throwing: Task.isCancelled ? CancellationError() : PostgresError.closed
                    )
                }
                if waiters.isEmpty, let connection = idle.popLast() {
                    lent.append(connection)
                    return continuation.resume(returning: connection)
                }
                waiters.append(
                    Waiter(
                        id: id,
                        deadline: .now + configuration.acquireTimeout,
                        continuation: continuation
                    )
                )
            }
        } onCancel: {
            loop.execute { self.assumeIsolated { $0.giveUp(id) } }
        }
    }

    private func giveUp(_ id: Int) {
        guard let index = waiters.firstIndex(where: { $0.id == id }) else { return }
        let waiter = waiters.remove(at: index)
        waiter.continuation.resume(throwing: CancellationError())
        checkDrained()
    }

    func offer(_ connection: PostgresConnection) {
        guard connection.isUsable else { return }
        guard !waiters.isEmpty else {
            idle.append(connection)
            return
        }
        lent.append(connection)
        waiters.removeFirst().continuation.resume(returning: connection)
    }

    private func giveBack(_ connection: PostgresConnection) {
        lent.removeAll { $0 === connection }
        if connection.isUsable, connection.mode != .pipeline || !connection.handle.isIdle {
            connection.fail(PostgresError(.connectionLost, "the session was left in a transaction"))
        }
        if phase == .closed { connection.fail(.closed) }
        offer(connection)
        checkDrained()
    }

    // MARK: Transactions

    /// Runs `body` between BEGIN and COMMIT on a connection of its own. An error of `body`, or a
    /// cancellation, rolls back. BEGIN is sent with the first statement.
    ///
    /// Do not request a second connection inside `body`: with all connections lent, none becomes
    /// free.
    ///
    /// - Throws: The errors of `body`; `PostgresError`; `CancellationError`. If the error's
    ///   `outcomeIsUnknown` is true, the transaction may have committed.
    package func transaction<Value: Sendable>(
        _ body: @Sendable (PostgresTransaction) async throws -> Value
    ) async throws -> Value {
        try await withExclusiveConnection { transaction in
            let value = try await body(transaction)
            try Task.checkCancellation()
            try await transaction.commit()
            return value
        }
    }

    /// Runs statements between BEGIN and COMMIT, in one round trip; they must not depend on each
    /// other's results.
    ///
    /// - Returns: A result for each.
    /// - Throws: As the other `transaction`.
    package func transaction(
        of statements: [(sql: String, parameters: [PostgresValue])]
    ) async throws -> [PostgresResult] {
        try await withExclusiveConnection { try await $0.complete(statements) }
    }

    /// Lends a connection to `body`, which ends the transaction unless it throws.
    private func withExclusiveConnection<Value: Sendable>(
        _ body: @Sendable (PostgresTransaction) async throws -> Value
    ) async throws -> Value {
        let connection: PostgresConnection
        do {
            connection = try await acquire()
        } catch {
            count((error as? PostgresError)?.metricLabel ?? "cancelled")
            throw error
        }
        let transaction = PostgresTransaction(connection)
        do {
            let value = try await body(transaction)
            giveBack(connection)
            count("ok")
            return value
        } catch {
            await transaction.rollBack()
            giveBack(connection)
            count((error as? PostgresError)?.metricLabel ?? "cancelled")
            throw error
        }
    }

    // MARK: Bulk

    /// Streams a statement's rows in batches; the server continues only as fast as `body` takes
    /// them. One snapshot, one transaction, no statement timeout.
    ///
    /// - Parameters:
    ///   - sql: One statement that returns rows.
    ///   - parameters: Its values, `$1` on.
    ///   - batch: Rows a call; the last call may have fewer.
    ///   - body: Takes each batch. Its error, or a cancellation, ends the statement.
    /// - Returns: How many rows there were.
    /// - Throws: The errors of `body`; `PostgresError`; `CancellationError`.
    package func stream(
        _ sql: String,
        _ parameters: [PostgresValue] = [],
        batch: Int = 1000,
        _ body: @Sendable ([PostgresRow]) async throws -> Void
    ) async throws -> Int {
        try await bulk { connection in
            var count = 0
            try await connection.beginStream(sql, parameters)
            while let block = try await connection.nextRows(limit: max(1, batch)) {
                count += block.rowCount
                try await body((0..<block.rowCount).map { PostgresRow(block: block, row: $0) })
            }
            return count
        }
    }

    /// Runs `COPY (query) TO STDOUT (FORMAT binary)`, in batches, with backpressure.
    ///
    /// - Parameters:
    ///   - query: A SELECT without parameters.
    ///   - columns: The names by which the rows' columns are read; without names, use positions.
    ///   - batch: Rows a call; the last call may have fewer.
    ///   - body: Takes each batch. Its error, or a cancellation, ends the COPY.
    /// - Returns: How many rows there were.
    /// - Throws: The errors of `body`; `PostgresError`; `CancellationError`.
    package func copyOut(
        _ query: String,
        columns: [String] = [],
        batch: Int = 1000,
        _ body: @Sendable ([PostgresRow]) async throws -> Void
    ) async throws -> Int {
        try await bulk { connection in
            var count = 0
            var decoder = CopyDecoder(columnNames: columns)
            try await connection.beginCopy("COPY (\(query)) TO STDOUT (FORMAT binary)", .copyOut)
            while let block = try await connection.nextCopiedRows(
                limit: max(1, batch),
                into: &decoder
            ) {
                count += block.rowCount
                try await body((0..<block.rowCount).map { PostgresRow(block: block, row: $0) })
            }
            return count
        }
    }

    /// Runs `COPY table (columns) FROM STDIN (FORMAT binary)`, all or nothing, with backpressure:
    /// the next batch is requested when the previous batch is written.
    ///
    /// - Parameters:
    ///   - table: Its name, with or without a schema; quoted here.
    ///   - columns: The names of the columns; the values must fit the types that the server
    ///     reports.
    ///   - next: Returns the next rows; nil at the end.
    /// - Returns: How many rows were copied.
    /// - Throws: The errors of `next`; `PostgresError`; `CancellationError`. Nothing is copied
    ///   then.
    package func copyIn(
        table: String,
        columns: [String],
        _ next: @Sendable () async throws -> [[PostgresValue]]?
    ) async throws -> Int {
        let name = table.split(separator: ".").map { quotedIdentifier($0) }.joined(separator: ".")
        let list = columns.map { quotedIdentifier($0) }.joined(separator: ", ")
        return try await bulk { connection in
            let shape = try await connection.runScript("SELECT \(list) FROM \(name) WHERE false")
            let encoder = CopyEncoder(columns: shape.rows.block.columns)
            try await connection.beginCopy(
                "COPY \(name) (\(list)) FROM STDIN (FORMAT binary)",
                .copyIn
            )
            var bytes = CopyEncoder.header
            while let rows = try await next() {
                for row in rows {
                    try encoder.write(row, into: &bytes)
                    if bytes.count >= 64 << 10 {
                        try await connection.putCopyData(bytes)
                        bytes.removeAll(keepingCapacity: true)
                    }
                }
            }
            bytes.append(contentsOf: CopyEncoder.trailer)
            try await connection.putCopyData(bytes)
            return try await connection.endCopyIn()
        }
    }

    /// Runs statements without parameters on one connection, each outside of any transaction and
    /// without a statement timeout, as `CREATE INDEX CONCURRENTLY` requires.
    ///
    /// - Parameters:
    ///   - statements: Run in their order, until one fails. They may set a lock timeout, which is
    ///     set back afterwards.
    ///   - finally: Run at the end, also after a failure.
    /// - Throws: `PostgresError`; `CancellationError`, after which the statement has ended too.
    package func executeAlone(_ statements: [String], finally: String = "") async throws {
        let connection = try await acquire()
        let restore = """
            SET statement_timeout TO \(configuration.statementTimeout.wholeMilliseconds);
            SET lock_timeout TO \(configuration.lockTimeout.wholeMilliseconds);
            \(finally)
            """
        do {
            try connection.leavePipelineMode()
            _ = try await connection.runScript("SET statement_timeout = 0")
            for sql in statements { _ = try await connection.runScript(sql) }
            _ = try await connection.runScript(restore, isCancellable: false)
            try connection.enterPipelineMode()
            giveBack(connection)
            count("ok")
        } catch {
            connection.silenceLimit = .seconds(10)
            await connection.abandonPlain(after: error)
            if connection.mode == .plain {
                _ = try? await connection.runScript(restore, isCancellable: false)
                try? connection.enterPipelineMode()
            }
            connection.silenceLimit = .zero
            giveBack(connection)
            let told = connection.lossAsSeenByBorrower(of: error)
            count((told as? PostgresError)?.metricLabel ?? "cancelled")
            throw told
        }
    }

    /// Runs `body` in plain mode, in a transaction without a statement timeout.
    private func bulk<Value: Sendable>(
        _ body: (PostgresConnection) async throws -> Value
    ) async throws -> Value {
        let connection = try await acquire()
        do {
            try connection.leavePipelineMode()
            _ = try await connection.runScript("BEGIN; SET LOCAL statement_timeout = 0")
            connection.silenceLimit = configuration.streamIdleTimeout
            let value = try await body(connection)
            _ = try await connection.runScript("COMMIT", isCancellable: false)
            connection.silenceLimit = .zero
            try connection.enterPipelineMode()
            giveBack(connection)
            count("ok")
            return value
        } catch {
            await connection.abandonPlain(after: error)
            connection.silenceLimit = .seconds(10)
            if connection.mode == .plain {
                _ = try? await connection.runScript("ROLLBACK", isCancellable: false)
                try? connection.enterPipelineMode()
            }
            connection.silenceLimit = .zero
            giveBack(connection)
            let told = connection.lossAsSeenByBorrower(of: error)
            count((told as? PostgresError)?.metricLabel ?? "cancelled")
            throw told
        }
    }
}

extension PostgresConnection {
    /// The number of commands in front of a new request.
    var backlog: Int { ledger.count }

    /// Returns the error that the borrower gets. If the connection broke, that is `lost`, which is
    /// retryable, unless the error is a usage, closed or decoding error.
    func lossAsSeenByBorrower(of error: any Error) -> any Error {
        guard let brokenBy, let error = error as? PostgresError else { return error }
        if error.kind == .usage || error.kind == .closed || error.kind == .decoding { return error }
        return PostgresError.lost(brokenBy)
    }
}
