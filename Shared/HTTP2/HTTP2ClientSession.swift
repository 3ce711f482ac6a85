internal import CNGHTTP2

/// The client's side of one HTTP/2 connection. Sole owner of one `nghttp2_session *`.
///
/// Requests go in by `submit`, bytes by `receive`; after either, `drain` and take the completions.
/// Every request that was submitted completes exactly once, `abandon` at the latest. No request
/// waits in here: what is more than the peer admits at that moment is not taken.
@safe
package final class HTTP2ClientSession {
    package struct Settings: Sendable {
        /// Own bound on streams, where the peer's is higher.
        package var maximumStreams: Int
        /// Of one answer: names, values and 4 bytes a field.
        package var maximumHeadBytes: Int
        package var maximumBodyBytes: Int

        package init(
            maximumStreams: Int = 1000,
            maximumHeadBytes: Int = 16_384,
            maximumBodyBytes: Int = 262_144
        ) {
            self.maximumStreams = maximumStreams
            self.maximumHeadBytes = maximumHeadBytes
            self.maximumBodyBytes = maximumBodyBytes
        }
    }

    package enum Refusal: Error, Equatable {
        /// No free stream; see `freeStreams`.
        case noStream
        /// A path or a value with control characters, or not as many values as the template has
        /// places.
        case invalid
    }

    private let settings: Settings
    private var session: OpaquePointer?
    private let client: ClientRecord.Pointer
    /// The fields of the request that is being submitted.
    private var pairs: UnsafeMutablePointer<nghttp2_nv>
    private var pairsCapacity = 32

    /// For all answers together; each has 64 KiB, and more as it is read.
    private static let connectionWindow: Int32 = 4 << 20

    /// The preface and the settings are the first that `drain` gives.
    package init(_ settings: Settings = Settings()) throws(HTTP2SessionError) {
        self.settings = settings
        unsafe pairs = .allocate(capacity: 32)
        unsafe client = .allocate(capacity: 1)
        unsafe client.initialize(
            to: ClientRecord(
                maximumHeadBytes: settings.maximumHeadBytes,
                maximumBodyBytes: settings.maximumBodyBytes
            )
        )
        var callbacks: OpaquePointer?
        try check(unsafe nghttp2_session_callbacks_new(&callbacks))
        defer { unsafe nghttp2_session_callbacks_del(callbacks) }
        unsafe setClientCallbacks(callbacks)
        var options: OpaquePointer?
        try check(unsafe nghttp2_option_new(&options))
        defer { unsafe nghttp2_option_del(options) }
        unsafe nghttp2_option_set_no_closed_streams(options, 1)
        try check(unsafe nghttp2_session_client_new2(&session, callbacks, client, options))
        let entries = [
            entry(NGHTTP2_SETTINGS_ENABLE_PUSH, 0),
            entry(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, settings.maximumHeadBytes),
        ]
        try check(unsafe nghttp2_submit_settings(session, 0, entries, entries.count))
        let window = Self.connectionWindow
        try check(unsafe nghttp2_session_set_local_window_size(session, 0, 0, window))
    }

    deinit {
        // Streams that are still there do not call back.
        unsafe nghttp2_session_del(session)
        var record = unsafe client.pointee.open
        while let this = unsafe record {
            unsafe record = unsafe this.pointee.next
            unsafe client.pointee.free(this)
        }
        unsafe record = unsafe client.pointee.firstFinished
        while let this = unsafe record {
            unsafe record = unsafe this.pointee.next
            unsafe client.pointee.free(this)
        }
        unsafe client.pointee.freeSpare()
        unsafe client.deinitialize(count: 1)
        unsafe pairs.deallocate()
        unsafe client.deallocate()
    }

    // MARK: What is known of the peer

    /// Its first SETTINGS have come.
    package var hasSettings: Bool { unsafe client.pointee.hasSettings }

    /// Streams that the peer admits at once, now.
    package var peerStreamLimit: Int {
        guard unsafe session != nil else { return 0 }
        let limit = unsafe nghttp2_session_get_remote_settings(
            session,
            NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS
        )
        return Int(limit)
    }

    /// It has sent GOAWAY, or no stream id is left: streams that are open go on to their end.
    package var isGoingAway: Bool {
        unsafe client.pointee.isGoingAway || session == nil
            || nghttp2_session_check_request_allowed(session) == 0
    }

    /// What GOAWAY said: a code of RFC 9113, and at most 200 bytes of text.
    package var goaway: (code: UInt32, text: String)? {
        guard unsafe client.pointee.isGoingAway else { return nil }
        return unsafe (client.pointee.goawayCode, client.pointee.goawayText.text)
    }

    /// Nothing more is to be read or written: the connection may be closed.
    package var isOver: Bool {
        unsafe session == nil
            || nghttp2_session_want_read(session) == 0
                && nghttp2_session_want_write(session) == 0
    }

    package var openStreams: Int { unsafe client.pointee.openCount }

    /// How many requests `submit` would take now: none before the peer's SETTINGS.
    package var freeStreams: Int {
        guard hasSettings, !isGoingAway else { return 0 }
        return max(0, min(settings.maximumStreams, peerStreamLimit) - openStreams)
    }

    package var pingsAnswered: Int { unsafe client.pointee.pingsAnswered }

    /// Bytes that `drain` has given so far.
    package var drainedBytes: Int { unsafe client.pointee.drainedBytes }

    // MARK: In and out

    /// Takes in one request; nothing is sent before `drain`.
    ///
    /// - Parameters:
    ///   - template: What it shares with others.
    ///   - path: With its query.
    ///   - values: One for each of the template's varying fields.
    ///   - body: Copied.
    ///   - tag: Names it in its completion.
    /// - Returns: The stream, for `cancel`.
    /// - Throws: `Refusal`; it will not complete then.
    package func submit(
        _ template: HTTP2.RequestTemplate,
        path: String,
        values: [String],
        body: [UInt8],
        tag: Int
    ) throws(Refusal) -> Int32 {
        guard freeStreams > 0 else { throw .noStream }
        guard values.count == template.varyingCount else { throw .invalid }
        let record = unsafe makeRecord(template, path, values, body, tag)
        guard let record = unsafe record else { throw .invalid }
        var provider = unsafe nghttp2_data_provider()
        unsafe provider.source.ptr = UnsafeMutableRawPointer(record)
        unsafe provider.read_callback = readRequest
        let stream = unsafe nghttp2_submit_request(
            session,
            nil,
            pairs,
            template.count,
            &provider,
            record
        )
        guard stream > 0 else {
            unsafe client.pointee.free(record)
            throw .noStream
        }
        unsafe record.pointee.stream = stream
        unsafe client.pointee.link(record)
        return stream
    }

    /// Fills `pairs` too, which point into the record. Nil where a text cannot be sent.
    private func makeRecord(
        _ template: HTTP2.RequestTemplate,
        _ path: String,
        _ values: [String],
        _ body: [UInt8],
        _ tag: Int
    ) -> StreamRecord.Pointer? {
        let header = MemoryLayout<StreamRecord>.stride
        let texts = values.reduce(path.utf8.count) { $0 + $1.utf8.count }
        let size = header + texts + body.count + StreamRecord.roomForAnswer
        let block = unsafe client.pointee.makeBlock(size)
        if template.count > pairsCapacity {
            unsafe pairs.deallocate()
            pairsCapacity = template.count
            unsafe pairs = .allocate(capacity: pairsCapacity)
        }
        unsafe pairs.update(from: template.pairs, count: template.count)
        var next = unsafe (block + header).assumingMemoryBound(to: UInt8.self)
        var isValid = unsafe place(path, at: &next, HTTP2.RequestTemplate.pathIndex)
        let first = template.count - template.varyingCount
        for (index, value) in values.enumerated() {
            let isUsable = unsafe place(value, at: &next, first + index)
            isValid = isValid && isUsable
        }
        guard isValid else {
            unsafe block.deallocate()
            return nil
        }
        unsafe body.withUnsafeBufferPointer { bytes in
            if let start = bytes.baseAddress {
                unsafe next.update(from: start, count: bytes.count)
            }
        }
        let record = unsafe block.assumingMemoryBound(to: StreamRecord.self)
        unsafe record.initialize(
            to: StreamRecord(
                template: Unmanaged.passRetained(template),
                tag: tag,
                body: next,
                bodyCount: body.count,
                isKept: size <= ClientRecord.keptBlockBytes,
                answer: next + body.count,
                answerCapacity: StreamRecord.roomForAnswer
            )
        )
        return unsafe record
    }

    /// Copies a value to its place and points its pair there.
    private func place(
        _ text: String,
        at next: inout UnsafeMutablePointer<UInt8>,
        _ index: Int
    ) -> Bool {
        var text = text
        let start = unsafe next
        let (count, isValid) = text.withUTF8 { bytes in
            // Without a branch, so that many bytes are looked at together.
            var bad: UInt8 = 0
            for offset in 0..<bytes.count {
                let byte = unsafe bytes[offset]
                bad |= byte < 0x20 ? 1 : 0
                bad |= byte == 0x7F ? 1 : 0
            }
            if let first = bytes.baseAddress {
                unsafe start.update(from: first, count: bytes.count)
            }
            return (bytes.count, bad == 0)
        }
        unsafe pairs[index].value = unsafe start
        unsafe pairs[index].valuelen = count
        unsafe next = unsafe start + count
        return isValid
    }

    /// Requests are in here of which nothing has been drained.
    package var hasUndrainedRequests: Bool { unsafe client.pointee.unsent != nil }

    /// Resets a stream that is still open; its request completes at a later `drain`.
    ///
    /// - Returns: Whether nothing of it has been drained, so that nothing ever will be.
    @discardableResult
    package func cancel(stream: Int32) -> Bool {
        if recall(stream: stream) { return true }
        reset(stream)
        return false
    }

    /// Cancels a stream that is still open, unless something of it has been drained.
    ///
    /// - Returns: Whether nothing of it ever will be.
    package func recall(stream: Int32) -> Bool {
        guard let oldest = unsafe client.pointee.unsent?.pointee.stream, stream >= oldest else {
            return false
        }
        reset(stream)
        return true
    }

    private func reset(_ stream: Int32) {
        guard unsafe session != nil else { return }
        let flags = UInt8(NGHTTP2_FLAG_NONE.rawValue)
        unsafe nghttp2_submit_rst_stream(session, flags, stream, HTTP2.ErrorCode.cancel)
    }

    /// After `abandon` nothing is taken in any more.
    ///
    /// - Throws: When the connection is unusable: drain once more, close it, `abandon`.
    package func receive(_ bytes: UnsafeRawBufferPointer) throws(HTTP2SessionError) {
        guard unsafe session != nil, let start = bytes.baseAddress else { return }
        let pointer = unsafe start.assumingMemoryBound(to: UInt8.self)
        let read = unsafe nghttp2_session_mem_recv(session, pointer, bytes.count)
        try check(Int32(clamping: read))
    }

    /// Appends what there is to send.
    ///
    /// - Parameters:
    ///   - buffer: Where to.
    ///   - limit: Bytes after which the rest stays where it is; whole frames are given, so it may
    ///     be up to one frame more.
    /// - Returns: Whether there may be more.
    /// - Throws: When the connection is unusable.
    @discardableResult
    package func drain(
        into buffer: inout [UInt8],
        upTo limit: Int = .max
    ) throws(HTTP2SessionError) -> Bool {
        var drained = 0
        while unsafe session != nil, drained < limit {
            var start: UnsafePointer<UInt8>?
            let count = unsafe nghttp2_session_mem_send(session, &start)
            try check(Int32(clamping: count))
            guard count > 0 else { return false }
            unsafe buffer.append(contentsOf: UnsafeBufferPointer(start: start, count: count))
            unsafe client.pointee.drainedBytes += count
            drained += count
        }
        return unsafe session != nil
    }

    /// `pingsAnswered` counts the answers.
    package func ping() throws(HTTP2SessionError) {
        guard unsafe session != nil else { return }
        try check(unsafe nghttp2_submit_ping(session, 0, nil))
    }

    /// GOAWAY, for a connection that is to be closed.
    package func terminate() {
        guard unsafe session != nil else { return }
        unsafe nghttp2_session_terminate_session(session, HTTP2.ErrorCode.noError)
    }

    // MARK: Completions

    /// Takes what has ended since the last time, in that order. `body` may submit.
    package func takeCompletions(_ body: (HTTP2.Completion) -> Void) {
        var record = unsafe client.pointee.firstFinished
        unsafe client.pointee.firstFinished = nil
        unsafe client.pointee.lastFinished = nil
        while let this = unsafe record {
            unsafe record = unsafe this.pointee.next
            let completion = HTTP2.Completion(
                tag: unsafe this.pointee.tag,
                outcome: unsafe Self.outcome(this)
            )
            unsafe client.pointee.free(this)
            body(completion)
        }
    }

    /// The connection is over: every request that is open completes. Nothing happens to it any more.
    ///
    /// - Parameters:
    ///   - writtenBytes: How much of what was drained the socket has taken.
    ///   - body: Takes these completions, and those not yet taken.
    package func abandon(writtenBytes: Int, _ body: (HTTP2.Completion) -> Void) {
        takeCompletions(body)
        unsafe nghttp2_session_del(session)
        unsafe session = nil
        var record = unsafe client.pointee.open
        unsafe client.pointee.open = nil
        unsafe client.pointee.openCount = 0
        unsafe client.pointee.unsent = nil
        while let this = unsafe record {
            unsafe record = unsafe this.pointee.next
            let isSent = unsafe writtenBytes > this.pointee.sentFrom
            let completion = HTTP2.Completion(
                tag: unsafe this.pointee.tag,
                outcome: isSent ? .lost : .notSent
            )
            unsafe client.pointee.free(this)
            body(completion)
        }
    }

    private static func outcome(_ record: StreamRecord.Pointer) -> HTTP2.Outcome {
        if unsafe record.pointee.isTooLarge { return .tooLarge }
        let code = unsafe record.pointee.errorCode
        let status = unsafe Int(record.pointee.status)
        if unsafe record.pointee.isWhole, (200...999).contains(status) {
            let bytes = unsafe UnsafeBufferPointer(
                start: record.pointee.answer,
                count: record.pointee.answerCount
            )
            return .answered(
                HTTP2.Response(
                    status: status,
                    storage: unsafe Array(bytes),
                    headBytes: unsafe record.pointee.headCount
                )
            )
        }
        if unsafe record.pointee.isUnsendable { return .unsendable }
        switch code {
        case HTTP2.ErrorCode.refusedStream: return .notProcessed
        case _ where unsafe record.pointee.sentFrom == StreamRecord.unsent: return .notSent
        case HTTP2.ErrorCode.noError, HTTP2.ErrorCode.protocolError: return .malformed
        default: return .reset(code: code)
        }
    }
}
