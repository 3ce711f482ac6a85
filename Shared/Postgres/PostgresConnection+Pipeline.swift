import EventLoop

extension PostgresConnection {
    /// Enters pipeline mode. Requires plain mode and nothing in flight.
    func enterPipelineMode() throws(PostgresError) {
        guard mode == .plain, handle.enterPipeline() else {
            throw brokenBy ?? PostgresError(.usage, "the connection is not idle")
        }
        mode = .pipeline
        watch?.interest = .readable
    }

    /// Whether nothing is in flight, and nothing waits to be sent.
    var isQuiet: Bool { ledger.isEmpty && groupSize == 0 && deallocations.isEmpty }

    /// Leaves pipeline mode. Requires that nothing is in flight.
    func leavePipelineMode() throws(PostgresError) {
        if let brokenBy { throw brokenBy }
        guard mode == .pipeline, ledger.isEmpty, groupSize == 0, handle.exitPipeline() else {
            throw PostgresError(.usage, "the connection is not idle")
        }
        mode = .plain
        watch?.interest = []
    }

    // MARK: Sending

    /// Sends a request together with the others of this turn of the loop. The request completes
    /// when the server has answered their Sync.
    func submit(_ request: PostgresRequest) {
        guard mode == .pipeline else {
            request.finish(.failure(PostgresError.lost(brokenBy)))
            return
        }
        do {
            try parameters.encode(request.parameters)
        } catch {
            request.finish(.failure(error))
            return
        }
        if ledger.isEmpty { lastProgress = .now }
        if request.runsAlone && groupSize > 0 { sendSync() }
        request.connection = self
        request.runs += 1
        let isSent = send(request)
        groupSize += 1
        scheduleTurn()
        guard isSent else { return failFromLibpq() }
        if isShared, request.runsAlone || groupSize >= Self.maximumGroup { sendSync() }
    }

    /// Sends a request whose parameters were encoded just before.
    private func send(_ request: PostgresRequest) -> Bool {
        guard request.isPrepared else {
            ledger.sent(.member(request))
            return handle.send(request.sql, parameters)
        }
        let name: String
        switch statements.use(request.sql, parameters.types) {
        case .known(let known): name = known
        case .new(let new, let evicted):
            name = new
            deallocations += evicted
            ledger.sent(.prepare(sql: request.sql))
            guard handle.sendPrepare(name: name, sql: request.sql, parameters.types)
            else {
                ledger.sent(.member(request))
                return false
            }
        }
        ledger.sent(.member(request))
        return handle.sendPrepared(name: name, parameters)
    }

    private func sendSync() {
        guard mode == .pipeline else { return }
        groupSize = 0
        ledger.sent(.sync)
        if !handle.sendSync() { failFromLibpq() }
    }

    private func scheduleTurn() {
        guard !isTurnScheduled else { return }
        isTurnScheduled = true
        loop.atEndOfTurn { self.endTurn() }
    }

    private func endTurn() {
        isTurnScheduled = false
        guard mode == .pipeline else { return }
        if groupSize > 0 { sendSync() }
        if !deallocations.isEmpty { sendDeallocations() }
        flush()
        // libpq may have read while it wrote; the socket does not signal those bytes again.
        receive()
        failIfGone()
    }

    /// Fails the connection if libpq has closed it. After a failed write libpq reads; at the end of
    /// the stream it closes the socket and reports success, so no event ever comes.
    private func failIfGone() {
        if mode == .pipeline, !handle.isAlive { failFromLibpq() }
    }

    /// Sends the pending DEALLOCATEs in a separate group, so that their errors cannot fail other
    /// requests.
    private func sendDeallocations() {
        let names = deallocations
        deallocations = []
        guard mode == .pipeline else { return }
        parameters.clear()
        for name in names {
            ledger.sent(.deallocate(name))
            guard handle.send("DEALLOCATE \(name)", parameters) else { return failFromLibpq() }
        }
        sendSync()
    }

    private func flush() {
        guard mode == .pipeline else { return }
        switch handle.flush() {
        case .done: watch?.interest = .readable
        case .more: watch?.interest = [.readable, .writable]
        case .failed:
            // The server's last messages may still be unread.
            _ = handle.consumeInput()
            receive()
            failFromLibpq()
        }
    }

    // MARK: Receiving

    func pipelineReady(_ readiness: DescriptorReadiness) {
        var isAlive = true
        if !readiness.isDisjoint(with: [.readable, .disconnected]) {
            lastProgress = .now
            isAlive = handle.consumeInput()
            // OpenSSL may have buffered more bytes than libpq took in one read.
            if isAlive, handle.usesTLS { isAlive = handle.consumeInput() }
        }
        receive()
        if !isAlive { return failFromLibpq() }
        if readiness.contains(.writable) {
            flush()
            receive()
        }
        failIfGone()
    }

    private func receive() {
        var emptyAnswers = 0
        while mode == .pipeline, !ledger.isEmpty, !handle.isBusy {
            guard let result = handle.nextResult() else {
                // The end of one command's results; repeated ends mean that there are no more
                // results.
                ledger.commandEnded()
                emptyAnswers += 1
                if emptyAnswers > 2 { break }
                continue
            }
            emptyAnswers = 0
            take(result)
        }
        deliverNotifications()
    }

    private func deliverNotifications() {
        while mode == .pipeline, let (channel, payload) = handle.nextNotification() {
            onNotification?(channel, payload)
        }
    }

    private func take(_ result: borrowing ResultHandle) {
        switch result.status {
        case .done:
            var answer = PostgresResult.empty
            if case .member(let request)? = ledger.next {
                let known = statements.columns(of: request.sql)
                answer = result.makeResult(
                    columns: known?.count == result.columnCount ? known : nil
                )
                if request.isPrepared, known == nil, result.columnCount > 0 {
                    statements.remember(answer.rows.block.columns, of: request.sql)
                }
            }
            note(ledger.received(.done(answer)))
        case .failed:
            let error = result.error
            if error.kind == .connectionLost { return failFromLibpq() }
            if error.endsConnection { lastFatal = error }
            onServerError?(error)
            // A standby reports this error and keeps the connection open.
            if error.isOfStandby { return failFromLibpq() }
            note(ledger.received(.failed(error)))
        case .aborted: note(ledger.received(.aborted))
        case .sync: groupEnded()
        case .singleRow, .copyIn, .copyOut, .unexpected:
            fail(PostgresError(.usage, "a COPY went through execute; it has functions of its own"))
        }
    }

    private func note(_ note: PipelineTracker<PostgresRequest>.Note) {
        switch note {
        case .nothing: break
        case .prepared(let sql): statements.prepared(sql)
        case .notPrepared(let sql): _ = statements.forget(sql)
        case .notDeallocated(let name):
            // The retries are bounded: if the connection's own state is at fault, a retry does not
            // help.
            if deallocations.count < configuration.maximumPrepared { deallocations.append(name) }
        case .outOfStep:
            fail(PostgresError(.connectionLost, "the server's answers are out of step"))
        }
    }

    private func groupEnded() {
        guard let verdicts = ledger.synced() else {
            return fail(PostgresError(.connectionLost, "the server's answers are out of step"))
        }
        if isShared, ledger.isEmpty, groupSize == 0, !handle.isIdle {
            // `execute` ran a BEGIN or the like: other tasks' statements would join its
            // transaction.
            for (request, _) in verdicts {
                request.finish(
                    .failure(PostgresError(.usage, "a transaction was begun through execute"))
                )
            }
            return fail(PostgresError(.connectionLost, "the session was left in a transaction"))
        }
        for (request, verdict) in verdicts { conclude(request, verdict, of: verdicts.count) }
        // Notifications from before an UNLISTEN are delivered before a later LISTEN completes.
        if onNotification != nil { deliverNotifications() }
    }

    private func conclude(
        _ request: PostgresRequest,
        _ verdict: PipelineTracker<PostgresRequest>.Verdict,
        of groupSize: Int
    ) {
        switch verdict {
        case .answered(let result): request.finish(.success(result))
        case .innocent(let error):
            if request.isCancelled {
                request.finish(.failure(CancellationError()))
            } else if isShared, !error.endsConnection, request.runs < 4 {
                runAgain(request)
            } else {
                request.finish(.failure(error.endsConnection ? .lost(error) : error))
            }
        case .guilty(let error):
            if request.isPrepared, error.isStalePlan, let name = statements.forget(request.sql) {
                deallocations.append(name)
            }
            if error.sqlState == "57014", request.isCancelled {
                request.finish(.failure(CancellationError()))
            } else if error.endsConnection {
                request.finish(.failure(PostgresError.lost(error)))
            } else if isShared, !request.isCancelled, request.runs < 4,
                error.isStalePlan || isStrayCancel(error)
                    || (groupSize > 1 && error.isOfTheGroup)
            {
                runAgain(request)
            } else {
                request.finish(.failure(error))
            }
        }
    }

    private func runAgain(_ request: PostgresRequest) {
        request.runsAlone = true
        submit(request)
    }

    /// Whether the error comes from a cancellation that was meant for an earlier statement and hit
    /// this one.
    private func isStrayCancel(_ error: PostgresError) -> Bool {
        guard error.sqlState == "57014" else { return false }
        if isCancelling { return true }
        guard let lastCancel else { return false }
        return ContinuousClock.now - lastCancel < .seconds(1)
    }

    // MARK: Cancelling

    /// Notes that the request's task was cancelled. If the server still works on the request 10 ms
    /// later, asks the server to stop; innocent members of its group then run again.
    func cancel(_ request: PostgresRequest) {
        request.isCancelled = true
        cancelLater(request, after: .milliseconds(10))
    }

    private func cancelLater(_ request: PostgresRequest, after delay: Duration) {
        loop.schedule(after: delay) { [self] in
            guard !request.isFinished, request.connection === self else { return }
            if self.ledger.isInOldestGroup(where: { $0 === request }) { self.cancelRunning() }
            self.cancelLater(request, after: .milliseconds(100))
        }
    }
}

extension PostgresError {
    /// Whether the connection cannot be used after this error. Either the server closes the
    /// connection: at a shutdown, after a crash, or because a transaction was idle for too long. Or
    /// the server became a standby in a failover, and only a new connection finds the primary.
    var endsConnection: Bool {
        guard let sqlState else { return kind == .connectionLost }
        if isOfStandby { return true }
        return ["25P03", "57P01", "57P02", "57P03", "57P05", "08006", "08003"].contains(sqlState)
    }

    /// Whether the error is "Cannot execute … in a read-only transaction" or "… during recovery".
    var isOfStandby: Bool { kind == .server && sqlState == "25006" }

    /// Whether the prepared statement no longer exists or fits; it must be prepared again.
    var isStalePlan: Bool {
        sqlState == "26000" || (sqlState == "0A000" && detail.contains("cached plan"))
    }

    /// Whether the error came from sharing a group, not from the statement: deadlock,
    /// serialization, or a statement that may not share an implicit transaction.
    var isOfTheGroup: Bool {
        sqlState == "40P01" || sqlState == "40001" || sqlState == "25001"
    }
}
