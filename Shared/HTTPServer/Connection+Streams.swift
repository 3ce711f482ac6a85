internal import EventLoop
internal import Observability

/// Responses whose body is produced while it is sent.
extension Connection {
    /// Starts a streamed response. Returns nil if no body follows, as in the response to a HEAD.
    func startStream(
        _ response: HTTPServerResponse,
        of progress: RequestInProgress,
        _ ticket: Int
    ) -> HTTPBodyWriter? {
        server.loop.checkIsolated()
        guard let writer = HTTPBodyWriter(response, progress, ticket, self),
            driver?.startStream(ticket, response) == true
        else {
            answered(ticket, response, to: progress)
            return nil
        }
        server.instruments.streams.add(1)
        streams[ticket] = writer
        if isStopping, writer.stream.endsOnStop { endStream(ticket, .serverStops) }
        return writer
    }

    /// Hands a response over to its feed, and ends the request's task.
    func leave(_ writer: HTTPBodyWriter, to feed: any HTTPStreamFeed) {
        handlers.removeValue(forKey: writer.ticket)
        writer.progress.request.caller.leaveRoom()
        writer.progress.forgetRequest()
        if writer.ended == nil { feed.began(writer) } else { finished(writer) }
    }

    private func finished(_ writer: HTTPBodyWriter) {
        server.instruments.streams.add(-1)
        server.record(writer.progress, writer.response)
    }

    func feed(
        _ writer: HTTPBodyWriter,
        _ body: @Sendable (HTTPBodyWriter) async throws -> Void
    ) async {
        let ticket = writer.ticket
        var failure: (any Error)?
        do {
            try await body(writer)
        } catch {
            failure = error
        }
        server.loop.checkIsolated()
        handlers.removeValue(forKey: ticket)
        writer.progress.request.caller.leaveRoom()
        finished(writer)
        guard streams.removeValue(forKey: ticket) != nil else { return }
        writer.end(.disconnected)
        driver?.endStream(ticket, isWhole: failure == nil, isLast: false)
        guard let failure, !(failure is CancellationError) else { return }
        server.log.error(
            "response stream failed",
            [
                .httpRoute: .string(writer.progress.match.pattern),
                .error: .string(String(describing: failure)),
            ]
        )
    }

    /// Ends a streamed response from the server's side. The handler is notified, and may return
    /// later.
    func endStream(_ ticket: Int, _ reason: HTTPStreamEnded) {
        guard let writer = streams.removeValue(forKey: ticket) else { return }
        let isDrained = reason == .serverStops || reason == .finished
        if case .feed(let feed) = writer.stream.source, isDrained {
            let words = feed.finalBytes()
            if !words.isEmpty { driver?.sendPart(ticket, words) }
        }
        let isWhole = isDrained || reason == .deadline
        driver?.endStream(ticket, isWhole: isWhole, isLast: true)
        writer.end(reason)
        switch writer.stream.source {
        case .task: handlers[ticket]?.task?.cancel()
        case .feed(let feed):
            // While the handler's task runs, the feed has not begun; `leave` then ends the
            // response.
            guard handlers[ticket] == nil else { return }
            finished(writer)
            feed.ended(writer)
        }
    }

    /// Ends a streamed response that the peer does not read, unless it is an event stream.
    func discardUnread(_ ticket: Int) {
        if streams[ticket]?.stream.endsOnStop == false { endStream(ticket, .stalled) }
    }
}
