import EventLoop

/// Operations that need an exclusive connection: scripts, row streams, COPY. All in plain mode.
extension PostgresConnection {
    /// Flushes libpq's output, reading meanwhile so that neither side waits for the other.
    func flushPlain(isCancellable: Bool = true) async throws {
        while true {
            switch handle.flush() {
            case .done:
                // After a failed write libpq closes its socket and reports success. The watch of
                // that socket must be closed at once, before another socket gets its number.
                guard handle.isAlive else { throw broken() }
                return
            case .failed: throw broken()
            case .more:
                try await waitForSocket([.readable, .writable], isCancellable: isCancellable)
                guard handle.consumeInput() else { throw broken() }
            }
        }
    }

    /// Waits until libpq has a complete result, row or end.
    func waitForResult(isCancellable: Bool = true) async throws {
        while handle.isBusy {
            // Reads what has already arrived, without waiting for a turn of the loop.
            guard handle.consumeInput() else { throw broken() }
            guard handle.isBusy else { return }
            try await waitForInput(isCancellable: isCancellable)
        }
    }

    /// Waits until there is more to read, and reads it.
    func waitForInput(isCancellable: Bool = true) async throws {
        try await waitForSocket(.readable, isCancellable: isCancellable)
        guard handle.consumeInput() else { throw broken() }
        if handle.usesTLS, !handle.consumeInput() { throw broken() }
    }

    func broken() -> PostgresError {
        failFromLibpq()
        return brokenBy ?? .lost(nil)
    }

    /// Runs statements separated by semicolons, with no parameters, as one simple query.
    ///
    /// - Returns: The result of the last statement.
    func runScript(_ sql: String, isCancellable: Bool = true) async throws -> PostgresResult {
        guard handle.sendScript(sql) else { throw broken() }
        try await flushPlain(isCancellable: isCancellable)
        var last = PostgresResult.empty
        var failure: PostgresError?
        while true {
            try await waitForResult(isCancellable: isCancellable)
            guard let result = handle.nextResult() else { break }
            switch result.status {
            case .done: last = result.makeResult(columns: nil)
            case .failed:
                failure = failure ?? result.error
                onServerError?(result.error)
                if result.error.endsConnection { lastFatal = result.error }
            case .copyIn, .copyOut, .singleRow, .aborted, .sync, .unexpected:
                let error = PostgresError(.usage, "a COPY went through a script")
                fail(error)
                throw error
            }
        }
        if let failure {
            if failure.endsConnection || failure.kind == .connectionLost { throw broken() }
            throw failure
        }
        return last
    }

    // MARK: Rows, one at a time

    /// Starts a statement whose rows `nextRows` returns.
    func beginStream(_ sql: String, _ parameters: [PostgresValue]) async throws {
        currentColumns = nil
        try self.parameters.encode(parameters)
        guard handle.send(sql, self.parameters), handle.setSingleRowMode() else { throw broken() }
        try await flushPlain()
    }

    /// Reads at most `limit` rows, and no more from the socket than they need.
    ///
    /// - Returns: Nil when the statement is done.
    func nextRows(limit: Int) async throws -> RowBlock? {
        var builder: RowBlockBuilder?
        while (builder?.rowCount ?? 0) < limit {
            try await waitForResult()
            guard let result = handle.nextResult() else { break }
            switch result.status {
            case .singleRow:
                var rows = builder ?? RowBlockBuilder(columns: streamColumns(result))
                builder = nil
                result.append(to: &rows)
                builder = rows
            case .done: continue
            case .failed:
                onServerError?(result.error)
                throw failure(result.error)
            case .aborted, .sync, .copyIn, .copyOut, .unexpected:
                let error = PostgresError(.usage, "a COPY went through stream")
                fail(error)
                throw error
            }
        }
        return builder?.finish()
    }

    private func streamColumns(_ result: borrowing ResultHandle) -> ColumnSet {
        if let columns = currentColumns, columns.count == result.columnCount { return columns }
        let columns = result.makeColumns()
        currentColumns = columns
        return columns
    }

    // MARK: Ending interrupted operations

    /// Cancels the running statement, unless the server itself failed it, and reads the remaining
    /// results. Closes the connection if that takes longer than 5 s, or than half of the time that is
    /// left of a stop.
    func abandonPlain(after error: any Error) async {
        guard mode == .plain else { return }
        let timer = loop.schedule(after: loop.stopClock.limit(.seconds(5), share: 0.5)) {
            self.fail(PostgresError(.connectionLost, "cancelling took too long"))
        }
        defer { timer.cancel() }
        if (error as? PostgresError)?.kind != .server {
            cancelRunning()
            await settleCancellation()
        }
        try? await drainPlain()
    }

    private func drainPlain() async throws {
        while true {
            try await waitForResult(isCancellable: false)
            guard let result = handle.nextResult() else { return }
            switch result.status {
            case .copyIn:
                guard handle.endCopy(refusal: "abandoned") else { throw broken() }
                try await flushPlain(isCancellable: false)
            case .copyOut:
                draining: while true {
                    switch unsafe handle.getCopyData({ _ in }) {
                    case .data: continue
                    case .wait:
                        try await waitForInput(isCancellable: false)
                    case .end, .failed: break draining
                    }
                }
            case .done, .singleRow, .failed, .aborted, .sync, .unexpected: continue
            }
        }
    }

    /// Reads the next result, which must not be an error.
    ///
    /// - Returns: The status of the result, or nil if there are no more results.
    func nextStatus() async throws -> (status: ResultHandle.Status, affectedRows: Int)? {
        try await waitForResult()
        guard let result = handle.nextResult() else { return nil }
        if result.status == .failed {
            onServerError?(result.error)
            throw failure(result.error)
        }
        return (result.status, result.affectedRows)
    }

    /// Returns the error to throw for a statement's error.
    private func failure(_ error: PostgresError) -> PostgresError {
        guard error.endsConnection else { return error }
        lastFatal = error
        return error.isOfStandby ? broken() : error
    }
}
