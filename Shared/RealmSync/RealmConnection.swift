/// The result of one event: messages to send, in order, and then the end, if there is one.
package struct RealmOutput: Sendable {
    /// Each is one binary message of the WebSocket.
    package var messages: [[UInt8]] = []
    /// Transactions to store, and then to report with `RealmConnection.stored`.
    package var upload: RealmUpload?
    /// A report of an error of this server, which an operator must see.
    package var complaint: RealmComplaint?
    /// Why TCP must end, without a close frame, after the messages.
    package var end: RealmFault?
}

/// The server's side of one WebSocket of a Realm client, with all its sessions.
///
/// States: open, draining (the client was asked to leave; nothing counts any more), ended. The owner
/// passes whole binary messages in their order, and sends what comes out in its order. While
/// `isFull`, it should stop to read the socket.
package struct RealmConnection: Sendable {
    private enum State { case open, draining, ended }

    private let dialect: RealmDialect
    private let limits: RealmLimits
    private let random: @Sendable () -> UInt64
    private var state = State.open
    private var sessions: [Int64: RealmSession] = [:]
    private var uploads: UInt64 = 0
    private var pendingUploads = 0

    /// The seconds for which a client should be away at least.
    package static let shortestPause: Int64 = 2

    /// - Parameters:
    ///   - dialect: The dialect that both have agreed on.
    ///   - limits: The bounds of the connection.
    ///   - random: Unpredictable numbers, for identities and salts.
    package init(
        _ dialect: RealmDialect,
        limits: RealmLimits = RealmLimits(),
        random: @escaping @Sendable () -> UInt64
    ) {
        self.dialect = dialect
        self.limits = limits
        self.random = random
    }

    /// Whether half of the uploads that may be pending are.
    package var isFull: Bool { pendingUploads * 2 >= limits.pendingUploads }

    package var sessionCount: Int { sessions.count }

    // MARK: Events

    /// Receives a binary message. Text messages are not part of the protocol.
    package mutating func receive(_ message: [UInt8]) -> RealmOutput {
        guard state == .open else { return RealmOutput() }
        var output = RealmOutput()
        do throws(RealmFault) {
            let parsed = try ClientMessage(message, limits: limits)
            try handle(parsed, message, &output)
        } catch {
            end(error, &output)
        }
        return output
    }

    /// Notes that all transactions of some uploads are durable.
    ///
    /// - Parameter outcomes: The tickets of the uploads, with the outcome of each transaction in the
    ///   order of `RealmUpload.changesets`.
    /// - Returns: The acknowledgement of those that no earlier upload holds up.
    package mutating func stored(
        _ outcomes: [(ticket: RealmUpload.Ticket, changesets: [RealmStored])]
    ) -> RealmOutput {
        var output = RealmOutput()
        let hasLog = dialect.hasLogMessages
        for (number, own) in Dictionary(grouping: outcomes, by: \.ticket.session) {
            // A session that the client has unbound is a new one when it comes back.
            guard state == .open, sessions[number] != nil else { continue }
            do throws(RealmFault) {
                try change(number) { session, limits throws(RealmFault) in
                    try session.stored(
                        own.map { ($0.ticket.number, $0.changesets) },
                        limits: limits,
                        hasLog: hasLog
                    )
                }.send(&output)
            } catch {
                end(error, &output)
            }
        }
        return output
    }

    /// Notes that an upload cannot be stored now. The client repeats it after a pause.
    package mutating func unavailable(_ ticket: RealmUpload.Ticket) -> RealmOutput {
        var output = RealmOutput()
        guard state == .open, var session = sessions[ticket.session] else { return output }
        pendingUploads -= session.pendingCount
        session.pause().send(&output)
        pendingUploads += session.pendingCount
        sessions[ticket.session] = session
        return output
    }

    /// Notes that an upload cannot be decompressed or split.
    package mutating func failed(_ fault: RealmFault) -> RealmOutput {
        var output = RealmOutput()
        guard state == .open else { return output }
        end(fault, &output)
        return output
    }

    /// Asks the client to leave, and to come back after a pause.
    ///
    /// - Parameter pause: The seconds until then, of which a client may leave out a quarter.
    /// - Returns: The request, unless the conversation has ended.
    package mutating func drain(pause: Int64 = RealmConnection.shortestPause) -> RealmOutput {
        var output = RealmOutput()
        guard state == .open else { return output }
        leave(.draining)
        [.error(.drain(pause: pause))].send(&output)
        return output
    }

    private mutating func end(_ fault: RealmFault, _ output: inout RealmOutput) {
        leave(.ended)
        switch fault.reaction {
        case .end: break
        case .backOff: [.error(.drain(pause: Self.shortestPause))].send(&output)
        }
        output.upload = nil
        output.end = fault
    }

    private mutating func leave(_ state: State) {
        self.state = state
        sessions = [:]
        pendingUploads = 0
    }

    // MARK: Messages

    private mutating func handle(
        _ message: ClientMessage,
        _ bytes: [UInt8],
        _ output: inout RealmOutput
    ) throws(RealmFault) {
        let random = random
        switch message {
        case .bind(let session, let needsIdent):
            guard sessions[session] == nil else { throw .unexpected("bind") }
            guard sessions.count < limits.sessions else { throw .tooManySessions }
            sessions[session] = RealmSession(session)
            if needsIdent {
                [.ident(session: session, FileIdent(random: random))].send(&output)
            }
        case .ident(let session, let progress):
            try change(session) { session, _ throws(RealmFault) in
                try session.begin(progress, random: random)
            }.send(&output)
        case .query(let session, let version):
            try change(session) { session, _ throws(RealmFault) in try session.query(version) }
                .send(&output)
        case .mark(let session, let request):
            try change(session) { session, _ throws(RealmFault) in try session.mark(request) }
                .send(&output)
        case .upload(let session, let body):
            output.upload = try upload(session, body, bytes)
        case .unbind(let session):
            guard let removed = sessions.removeValue(forKey: session) else {
                throw .unexpected("unbind")
            }
            pendingUploads -= removed.pendingCount
            [.unbound(session: session)].send(&output)
        case .ping(let timestamp): [.pong(timestamp: timestamp)].send(&output)
        case .complaint(let complaint): output.complaint = complaint
        case .test: break
        }
    }

    /// - Returns: `nil` for an upload without transactions: it is the client's acknowledgement, and an
    ///   acknowledgement of that would have no end.
    private mutating func upload(
        _ session: Int64,
        _ body: ClientMessage.UploadBody,
        _ bytes: [UInt8]
    ) throws(RealmFault) -> RealmUpload? {
        guard let known = sessions[session] else { throw .unexpected("session") }
        if known.isPaused { return nil }
        guard pendingUploads < limits.pendingUploads else { throw .tooManyUploads }
        uploads += 1
        let number = uploads
        let isEmpty = body.plainSize == 0 && !body.isCompressed
        _ = try change(session) { session, _ throws(RealmFault) in
            if isEmpty {
                // It must be valid all the same.
                try session.requireActive("upload")
            } else {
                try session.add(upload: number)
            }
            return []
        }
        guard !isEmpty else { return nil }
        return RealmUpload(.init(session: session, number: number), bytes, body, limits)
    }

    /// Changes a session that is bound. Messages for one that pauses are in flight, and ignored.
    private mutating func change(
        _ number: Int64,
        _ event: (inout RealmSession, RealmLimits) throws(RealmFault) -> [ServerMessage]
    ) throws(RealmFault) -> [ServerMessage] {
        guard var session = sessions[number] else { throw .unexpected("session") }
        guard !session.isPaused else { return [] }
        pendingUploads -= session.pendingCount
        let messages = try event(&session, limits)
        pendingUploads += session.pendingCount
        sessions[number] = session
        return messages
    }
}

extension [ServerMessage] {
    fileprivate func send(_ output: inout RealmOutput) {
        output.messages += map(\.bytes)
    }
}
