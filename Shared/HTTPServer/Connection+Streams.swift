internal import EventLoop
internal import Observability

/// Answers whose body is made while it is sent.
extension Connection {
    /// Nil where no body is to follow, as when a HEAD is answered.
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

    func feed(_ writer: HTTPBodyWriter) async {
        let ticket = writer.ticket
        var failure: (any Error)?
        do {
            try await writer.stream.body(writer)
        } catch {
            failure = error
        }
        server.loop.checkIsolated()
        server.instruments.streams.add(-1)
        handlers.removeValue(forKey: ticket)
        writer.progress.request.caller.leaveRoom()
        server.record(writer.progress, writer.response)
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

    /// Ends a streamed answer from this side; its handler learns it, and may take its time.
    func endStream(_ ticket: Int, _ reason: HTTPStreamEnded) {
        guard let writer = streams.removeValue(forKey: ticket) else { return }
        let isWhole = reason == .deadline || reason == .serverStops
        driver?.endStream(ticket, isWhole: isWhole, isLast: true)
        writer.end(reason)
        handlers[ticket]?.task?.cancel()
    }

    /// Ends a streamed answer that its peer does not read, unless it is one of events.
    func dropUnread(_ ticket: Int) {
        if streams[ticket]?.stream.endsOnStop == false { endStream(ticket, .stalled) }
    }
}
