internal import EventLoop

/// Serves one socket or many; each socket retains its handler until the socket ends. All calls come
/// on the socket's loop.
package protocol WebSocketHandler: AnyObject, Sendable {
    func opened(_ socket: WebSocket)
    func received(_ message: WebSocketMessage, on socket: WebSocket)
    /// Notes pings of the client; they are answered already.
    func pinged(_ socket: WebSocket, count: Int)
    /// Notes the end of a socket, once. The code is the client's, or the server's if it closed
    /// first, or 1006 without a close frame.
    func closed(_ socket: WebSocket, code: Int)
    /// Notes that the server stops. By default, the socket closes with 1001.
    func serverStops(_ socket: WebSocket)
    /// Notes that the client's bytes cannot be read, before a socket ends that ends without a close
    /// frame. Messages that are sent now go before the end. By default, there are none.
    func unreadable(_ socket: WebSocket)
}

extension WebSocketHandler {
    package func serverStops(_ socket: WebSocket) { socket.close(1001, "the server stops") }
    package func unreadable(_ socket: WebSocket) {}
}

/// One WebSocket, the driver of its connection after the handshake. It belongs to the connection's loop;
/// it has no task, no timer and, while no message arrives, no buffer of its own.
///
/// States: open, closing (our close frame is sent, the client's is awaited), ended.
package final class WebSocket: ProtocolDriver, @unchecked Sendable {
    package let remoteAddress: String
    package let subprotocol: String?
    /// The handler's own object for this socket.
    package var context: AnyObject?

    private unowned let connection: Connection
    private let limits: WebSocketLimits
    /// A strong reference until the end, as a handler may serve only this socket.
    private var handler: (any WebSocketHandler)?
    private var reader: WebSocketReader
    private var lastInput = ContinuousClock.now
    /// The beginning of the message that is arriving, and its bytes so far.
    private var arriving: (since: ContinuousClock.Instant, bytes: Int)?
    private var closingSince: ContinuousClock.Instant?
    private var isOpen = true
    private var isPaused = false

    init(_ connection: Connection, _ upgrade: WebSocketUpgrade) {
        self.connection = connection
        remoteAddress = connection.stream.remoteAddress
        subprotocol = upgrade.subprotocol
        limits = upgrade.limits
        reader = WebSocketReader(maximumMessageBytes: limits.messageBytes, hold: limits.hold)
        handler = upgrade.handler
    }

    /// Notifies the handler, once this socket is the connection's driver.
    func open() { handler?.opened(self) }

    // MARK: For the handler

    /// The bytes that the client's system has not taken.
    package var queuedBytes: Int { isOpen ? connection.backlogBytes : 0 }

    /// Sends a message. If more than `queuedBytes` would wait, drops the socket: its client reads
    /// too slowly.
    package func send(_ frame: WebSocketFrame) {
        guard isOpen, closingSince == nil else { return }
        guard connection.backlogBytes + frame.bytes.count <= limits.queuedBytes else {
            return abort()
        }
        connection.send(frame.bytes)
    }

    package func ping() {
        guard isOpen, closingSince == nil else { return }
        connection.send(WebSocketFrame.ping().bytes)
    }

    /// Reads nothing more until `resumeReading`; messages that were read already still come.
    package func pauseReading() {
        guard isOpen, !isPaused else { return }
        isPaused = true
        connection.pauseReading()
    }

    package func resumeReading() {
        guard isOpen, isPaused else { return }
        isPaused = false
        lastInput = .now
        arriving?.since = .now
        connection.resumeReading()
    }

    /// Sends a close frame, and waits a little for the client's.
    package func close(_ code: UInt16, _ reason: String = "") {
        guard isOpen, closingSince == nil else { return }
        if limits.endsWithoutClose { return finish() }
        closingSince = .now
        connection.server.checkOften(connection)
        connection.send(WebSocketFrame.close(code, reason).bytes)
        end(Int(code))
    }

    /// Ends with bytes that are not a valid frame, for clients that reconnect only after an error.
    package func end(sending bytes: [UInt8]) {
        guard isOpen else { return }
        connection.send(bytes)
        end(1006)
        connection.finish()
    }

    /// Ends without a close frame, after what was sent.
    package func finish() { end(sending: []) }

    /// Drops the connection.
    package func abort() {
        guard isOpen else { return }
        end(1006)
        connection.abort()
    }

    private func end(_ code: Int) {
        guard isOpen else { return }
        isOpen = false
        _ = limits.hold?(0)
        let handler = handler
        self.handler = nil
        handler?.closed(self, code: code)
        context = nil
    }

    // MARK: Driver

    func received(_ bytes: UnsafeRawBufferPointer) {
        lastInput = .now
        let output = unsafe reader.receive(bytes)
        if reader.isIdle || !output.messages.isEmpty {
            arriving = nil
        } else {
            arriving = (arriving?.since ?? lastInput, (arriving?.bytes ?? 0) + bytes.count)
        }
        for message in output.messages where isOpen { handler?.received(message, on: self) }
        if !output.messages.isEmpty, reader.isIdle, isOpen { _ = limits.hold?(0) }
        if output.closeCode != nil, limits.endsWithoutClose {
            handler?.unreadable(self)
            return finish()
        }
        // A close frame is the last: the handler's answers go before it.
        if !output.bytes.isEmpty, closingSince == nil { connection.send(output.bytes) }
        if output.pings > 0, isOpen { handler?.pinged(self, count: output.pings) }
        if let code = output.closeCode {
            end(code)
            return connection.finish()
        }
        // The pongs wait for the client, too.
        if isOpen, connection.backlogBytes > limits.queuedBytes { abort() }
    }

    func inputEnded() {
        end(1006)
        connection.finish()
    }

    func outputDrained() {}

    func fillOutput() {}

    func tick(_ now: ContinuousClock.Instant) {
        if let closingSince {
            if now >= closingSince + limits.closing { connection.finish() }
        } else if now >= lastInput + limits.idle || isSlow(now), !isPaused {
            limits.endsWithoutClose ? finish() : abort()
        }
    }

    /// Whether the message that is arriving holds its memory for too long.
    private func isSlow(_ now: ContinuousClock.Instant) -> Bool {
        guard let arriving else { return false }
        let rate = HTTPBodyReader.minimumBytesPerSecond
        return now >= arriving.since + limits.messageTime + .seconds(arriving.bytes / rate)
    }

    func beginStop() {
        handler?.serverStops(self)
        connection.finish()
    }

    func connectionClosed() { end(1006) }

    // A socket has no responses.
    func answered(_ ticket: Int, _ response: HTTPServerResponse) {}
    func startStream(_ ticket: Int, _ response: HTTPServerResponse) -> Bool { false }
    func sendPart(_ ticket: Int, _ bytes: [UInt8]) {}
    func backlog(_ ticket: Int) -> Int { 0 }
    func endStream(_ ticket: Int, isWhole: Bool, isLast: Bool) {}
    func takeTurn() {}
    func allowStreams(_ count: Int) {}
    func sendGoAway(lastStreamID: Int?, code: UInt32, data: [UInt8]) {}
    var heldBytes: Int { 0 }
    var unsentBytes: Int { 0 }
    var sentBytes: Int? { nil }
    func discardUnread() { abort() }
}
