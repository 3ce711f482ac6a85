internal import CNGHTTP2

/// The client's side of one HTTP/2 connection. Sole owner of one `nghttp2_session *`.
///
/// Requests go in by `submit`, bytes by `receive`; after either, `drain` and take the completions.
/// Every submitted request completes exactly once, in `abandon` at the latest. No request waits in
/// here: requests beyond the peer's present limit are refused.
@safe
package final class HTTP2ClientSession {
    package struct Settings: Sendable {
        /// Our own limit on streams, if the peer's is higher.
        package var maximumStreams: Int
        /// The limit of one answer's head: names, values and 4 bytes a field.
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
        /// A path or a value with control characters, or a number of values that differs from the
        /// template's.
        case invalid
    }

    private let settings: Settings
    private var session: OpaquePointer?
    private let client: ClientRecord.Pointer
    private let memory: SessionMemory.Pointer
    /// The fields of the request that is being submitted.
    private var pairs: UnsafeMutablePointer<nghttp2_nv>
    private var pairsCapacity = 32
    private var budget = FrameBudget()

    private static let sharedBytes = 65_536

    /// The window of all answers together; each has 64 KiB, and more as it is read.
    private static let connectionWindow: Int32 = 4 << 20

    /// Makes a session. The preface and the settings are the first output of `drain`.
    package init(_ settings: Settings = Settings()) throws(HTTP2SessionError) {
        self.settings = settings
        unsafe pairs = .allocate(capacity: 32)
        unsafe memory = SessionMemory.make()
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
        var functions = unsafe SessionMemory.functions(memory)
        try check(
            unsafe nghttp2_session_client_new3(&session, callbacks, client, options, &functions)
        )
        let entries = [
            entry(NGHTTP2_SETTINGS_ENABLE_PUSH, 0),
            entry(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, settings.maximumHeadBytes),
        ]
        try check(unsafe nghttp2_submit_settings(session, 0, entries, entries.count))
        let window = Self.connectionWindow
        try check(unsafe nghttp2_session_set_local_window_size(session, 0, 0, window))
    }

    deinit {
        // Open streams do not call back when the session is deleted.
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
        unsafe SessionMemory.destroy(memory)
    }

    // MARK: State of the peer

    /// Whether the peer's first SETTINGS have arrived.
    package var hasSettings: Bool { unsafe client.pointee.hasSettings }

    /// The streams that the peer allows at once, at present.
    package var peerStreamLimit: Int {
        guard unsafe session != nil else { return 0 }
        let limit = unsafe nghttp2_session_get_remote_settings(
            session,
            NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS
        )
        return Int(limit)
    }

    /// Whether the peer has sent GOAWAY, or no stream id is left. Open streams continue to their
    /// end.
    package var isGoingAway: Bool {
        unsafe client.pointee.isGoingAway || session == nil
            || nghttp2_session_check_request_allowed(session) == 0
    }

    /// The content of GOAWAY: a code of RFC 9113, and at most 200 bytes of debug data.
    package var goaway: (code: UInt32, text: String)? {
        guard unsafe client.pointee.isGoingAway else { return nil }
        return unsafe (client.pointee.goawayCode, client.pointee.goawayText.text)
    }

    /// Whether nothing more is to be read or written: the connection may be closed.
    package var isOver: Bool {
        unsafe session == nil
            || nghttp2_session_want_read(session) == 0
                && nghttp2_session_want_write(session) == 0
    }

    package var openStreams: Int { unsafe client.pointee.openCount }

    /// How many requests `submit` would accept now; 0 before the peer's SETTINGS.
    package var freeStreams: Int {
        guard hasSettings, !isGoingAway else { return 0 }
        return max(0, min(settings.maximumStreams, peerStreamLimit) - openStreams)
    }

    package var pingsAnswered: Int { unsafe client.pointee.pingsAnswered }

    /// The bytes that `drain` has returned so far.
    package var drainedBytes: Int { unsafe client.pointee.drainedBytes }

    // MARK: In and out

    /// Submits one request; nothing is sent before `drain`.
    ///
    /// - Parameters:
    ///   - batch: Retained until the request has ended.
    ///   - index: The request's index in the batch.
    ///   - tag: Identifies it in its completion.
    /// - Returns: The stream, for `cancel`.
    /// - Throws: `Refusal`; the request will not complete then.
    package func submit(
        _ batch: HTTP2.RequestBatch,
        _ index: Int,
        tag: Int
    ) throws(Refusal) -> Int32 {
        guard freeStreams > 0 else { throw .noStream }
        let item = batch.fixed(index)
        guard item.isValid else { throw .invalid }
        unsafe item.template._withUnsafeGuaranteedRef { template in
            let (first, end) = (template.count - template.varyingCount, template.count)
            makeRoom(for: end)
            unsafe pairs.update(from: template.pairs, count: end)
            unsafe batch.point(pairs, of: item, first: first, end: end)
        }
        let block = unsafe client.pointee.makeBlock()
        let record = unsafe block.assumingMemoryBound(to: StreamRecord.self)
        let room = unsafe block + MemoryLayout<StreamRecord>.stride
        unsafe record.initialize(
            to: StreamRecord(
                batch: Unmanaged.passRetained(batch),
                tag: tag,
                body: batch.body(of: item),
                bodyCount: item.bodyCount,
                answer: room.assumingMemoryBound(to: UInt8.self),
                answerCapacity: StreamRecord.roomForAnswer
            )
        )
        var provider = unsafe nghttp2_data_provider()
        unsafe provider.source.ptr = block
        unsafe provider.read_callback = readRequest
        let count = unsafe item.template._withUnsafeGuaranteedRef { $0.count }
        let stream = unsafe nghttp2_submit_request(session, nil, pairs, count, &provider, record)
        guard stream > 0 else {
            unsafe client.pointee.free(record)
            throw .noStream
        }
        unsafe record.pointee.stream = stream
        unsafe client.pointee.link(record)
        budget.requested()
        return stream
    }

    private func makeRoom(for count: Int) {
        guard count > pairsCapacity else { return }
        unsafe pairs.deallocate()
        pairsCapacity = count
        unsafe pairs = .allocate(capacity: count)
    }

    /// Whether there are requests of which nothing has been drained.
    package var hasUndrainedRequests: Bool { unsafe client.pointee.unsent != nil }

    /// Whether there are requests whose head has been drained and whose body waits for the peer's
    /// windows, or for the caller.
    package var hasUnfinishedRequests: Bool { unsafe client.pointee.unfinishedCount > 0 }

    /// The bytes of bodies that `drain` has returned so far.
    package var drainedBodyBytes: Int { unsafe client.pointee.bodyBytes }

    /// Resets an open stream; its request completes at a later `drain`.
    ///
    /// - Returns: Whether the request's end was not drained, and now never will be: the peer cannot
    ///   have processed the request.
    @discardableResult
    package func cancel(stream: Int32) -> Bool {
        if recallUnfinished(stream: stream) { return true }
        reset(stream)
        return false
    }

    /// Cancels an open stream, unless the end of its request has been drained.
    ///
    /// - Returns: Whether the stream was cancelled, so that the request's end will never be
    ///   drained.
    package func recallUnfinished(stream: Int32) -> Bool {
        if recall(stream: stream) { return true }
        guard unsafe session != nil,
            let data = unsafe nghttp2_session_get_stream_user_data(session, stream),
            unsafe data.assumingMemoryBound(to: StreamRecord.self).pointee.isUnfinished
        else { return false }
        reset(stream)
        return true
    }

    /// Cancels an open stream, unless a part of it has been drained.
    ///
    /// - Returns: Whether the stream was cancelled, so that nothing of it will ever be drained.
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

    /// Takes received bytes. After `abandon` nothing is accepted any more. A server that sends much
    /// more than was requested (`FrameBudget`) makes the connection unusable.
    ///
    /// - Throws: If the connection is unusable: drain once more, close it, `abandon`.
    package func receive(_ bytes: UnsafeRawBufferPointer) throws(HTTP2SessionError) {
        guard unsafe session != nil, let start = bytes.baseAddress else { return }
        let pointer = unsafe start.assumingMemoryBound(to: UInt8.self)
        let read = unsafe nghttp2_session_mem_recv(session, pointer, bytes.count)
        try check(Int32(clamping: read))
        guard unsafe budget.admit(bytes, at: .now) else {
            throw HTTP2SessionError(errorCode: HTTP2.ErrorCode.enhanceYourCalm, "a flood of frames")
        }
    }

    /// Appends the bytes to send.
    ///
    /// - Parameters:
    ///   - buffer: Gets the bytes.
    ///   - limit: The bytes after which the rest stays in the session; frames are whole, so up to
    ///     one frame more may be appended.
    /// - Returns: Whether there may be more.
    /// - Throws: If the connection is unusable.
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

    /// Sends a PING; `pingsAnswered` counts the answers.
    package func ping() throws(HTTP2SessionError) {
        guard unsafe session != nil else { return }
        try check(unsafe nghttp2_submit_ping(session, 0, nil))
    }

    /// Submits GOAWAY, for a connection that will be closed.
    package func terminate() {
        guard unsafe session != nil else { return }
        unsafe nghttp2_session_terminate_session(session, HTTP2.ErrorCode.noError)
    }

    // MARK: Completions

    /// Takes the completions since the last call, in order. `body` may submit.
    package func takeCompletions(_ body: (HTTP2.Completion) -> Void) {
        var record = unsafe client.pointee.firstFinished
        unsafe client.pointee.firstFinished = nil
        unsafe client.pointee.lastFinished = nil
        while let first = unsafe record {
            let (storage, end) = unsafe Self.answers(from: first)
            var offset = 0
            while let this = unsafe record, unsafe this != end {
                unsafe record = unsafe this.pointee.next
                let completion = HTTP2.Completion(
                    tag: unsafe this.pointee.tag,
                    outcome: unsafe Self.outcome(this, in: storage, at: offset)
                )
                offset += unsafe this.pointee.answerCount
                unsafe client.pointee.free(this)
                body(completion)
            }
        }
    }

    /// Collects the answers of this request and the next ones in one array: the array ends with the
    /// answer that brings it to `sharedBytes`.
    private static func answers(
        from first: StreamRecord.Pointer
    ) -> (storage: [UInt8], end: StreamRecord.Pointer?) {
        var count = 0
        var end: StreamRecord.Pointer? = unsafe first
        while let this = unsafe end, count < sharedBytes {
            count += unsafe this.pointee.answerCount
            unsafe end = unsafe this.pointee.next
        }
        let storage = unsafe [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
            var next: StreamRecord.Pointer? = unsafe first
            while let this = unsafe next, unsafe this != end, let start = buffer.baseAddress {
                let length = unsafe this.pointee.answerCount
                unsafe (start + initialized).initialize(from: this.pointee.answer, count: length)
                initialized += length
                unsafe next = unsafe this.pointee.next
            }
        }
        return unsafe (storage, end)
    }

    /// Ends the session with its connection: every open request completes. The session cannot be
    /// used afterwards.
    ///
    /// - Parameters:
    ///   - writtenBytes: How many drained bytes the socket has taken. A request that begins beyond
    ///     them was not sent; nor was a request that has not been drained to its end.
    ///   - body: Takes these completions, and earlier ones that were not taken.
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
            let isSent = unsafe writtenBytes > this.pointee.sentFrom && !this.pointee.isUnfinished
            let completion = HTTP2.Completion(
                tag: unsafe this.pointee.tag,
                outcome: isSent ? .lost : .notSent
            )
            unsafe client.pointee.free(this)
            body(completion)
        }
    }

    private static func outcome(
        _ record: StreamRecord.Pointer,
        in storage: [UInt8],
        at offset: Int
    ) -> HTTP2.Outcome {
        if unsafe record.pointee.isTooLarge { return .tooLarge }
        let code = unsafe record.pointee.errorCode
        let status = unsafe Int(record.pointee.status)
        if unsafe record.pointee.isWhole, (200...999).contains(status) {
            return .answered(
                HTTP2.Response(
                    status: status,
                    storage: storage,
                    start: offset,
                    headBytes: unsafe record.pointee.headCount,
                    count: unsafe record.pointee.answerCount
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
