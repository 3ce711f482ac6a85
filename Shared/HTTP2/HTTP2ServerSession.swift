internal import CNGHTTP2

/// The server's side of one HTTP/2 connection. Sole owner of one `nghttp2_session *`.
///
/// After each `receive`, take the events; after each `receive` and each call that submits, drain.
@safe
package final class HTTP2ServerSession {
    package struct Settings: Sendable {
        package var maxConcurrentStreams: Int
        /// How much of each body the peer may send before it is read.
        package var initialWindowBytes: Int
        /// The limit of a head: names, values and 32 bytes a field, as RFC 9113 counts.
        package var maximumHeadBytes: Int

        package init(maxConcurrentStreams: Int, initialWindowBytes: Int, maximumHeadBytes: Int) {
            self.maxConcurrentStreams = maxConcurrentStreams
            self.initialWindowBytes = initialWindowBytes
            self.maximumHeadBytes = maximumHeadBytes
        }
    }

    private struct OutgoingBody {
        var bytes: OutgoingBytes
        /// Whether more will follow.
        var isOpen = false
        /// Whether libnghttp2 found nothing to send, and must be notified when there is more.
        var isDeferred = false
    }

    private var session: OpaquePointer?
    private let settings: Settings
    private var events: [HTTP2.ServerEvent] = []
    /// Incomplete header blocks.
    private var heads: [Int32: HTTP2.RequestHead] = [:]
    private var bodies: [Int32: OutgoingBody] = [:]
    /// The memory of all answers' bodies, and (`unsentBytes`) their bytes that were not sent.
    package private(set) var heldBytes = 0
    package private(set) var unsentBytes = 0
    /// The total of body bytes that the peer's windows have let through.
    package private(set) var sentBodyBytes = 0
    private var floods = FloodGuard()
    /// The reason why no more input is accepted.
    private var flood: StaticString?
    /// Streams that we reset; these resets are not counted as the peer's.
    private var ownResets: Set<Int32> = []
    /// The CONTINUATION frames of the present header block, and the bytes of the block.
    private var continuations = 0
    private var blockBytes = 0

    /// The most CONTINUATION frames: frames hold 16 KiB, so a block within its limit needs no more.
    private static let maximumContinuations = 16

    /// The frame types that RFC 9113 does not define; the defined types have lower numbers.
    private static let unknownTypes = UInt8(NGHTTP2_CONTINUATION.rawValue + 1)...UInt8.max

    /// Makes a session. The settings, and the connection's window, are the first output of `drain`.
    package init(_ settings: Settings) throws(HTTP2SessionError) {
        self.settings = settings
        var callbacks: OpaquePointer?
        try check(unsafe nghttp2_session_callbacks_new(&callbacks))
        defer { unsafe nghttp2_session_callbacks_del(callbacks) }
        unsafe setCallbacks(callbacks)
        let me = unsafe Unmanaged.passUnretained(self).toOpaque()
        var options: OpaquePointer?
        try check(unsafe nghttp2_option_new(&options))
        defer { unsafe nghttp2_option_del(options) }
        // Closed streams are not retained for a priority tree, which is not used.
        unsafe nghttp2_option_set_no_closed_streams(options, 1)
        // The library's own limit is off, as it counts each fragment of a CONTINUATION;
        // `beganFrame` counts the frames.
        unsafe nghttp2_option_set_max_continuations(options, 1 << 20)
        // Without this the library would skip frames of unknown types silently.
        for type in Self.unknownTypes {
            unsafe nghttp2_option_set_user_recv_extension_type(options, type)
        }
        try check(unsafe nghttp2_session_server_new2(&session, callbacks, me, options))

        let entries = [
            entry(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, settings.maxConcurrentStreams),
            entry(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, settings.initialWindowBytes),
            entry(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, settings.maximumHeadBytes),
        ]
        try check(unsafe nghttp2_submit_settings(session, 0, entries, entries.count))
        // The connection's window is that of four streams.
        let window = Int32(clamping: settings.initialWindowBytes * 4)
        try check(unsafe nghttp2_session_set_local_window_size(session, 0, 0, window))
    }

    deinit { unsafe nghttp2_session_del(session) }

    // MARK: Bytes

    /// Takes received bytes. A peer's mistake that ends the connection does not throw: `drain` then
    /// returns the GOAWAY, and `isFinished` turns true.
    package func receive(_ bytes: UnsafeRawBufferPointer) throws(HTTP2SessionError) {
        guard let base = bytes.baseAddress else { return }
        let start = unsafe base.assumingMemoryBound(to: UInt8.self)
        let taken = unsafe nghttp2_session_mem_recv(session, start, bytes.count)
        if let flood {
            throw HTTP2SessionError(
                code: Int32(clamping: min(taken, 0)),
                errorCode: HTTP2.ErrorCode.enhanceYourCalm,
                description: flood.description
            )
        }
        if taken < 0 { try check(Int32(clamping: taken)) }
    }

    /// Returns the GOAWAY of a failed session. The session's queued output is not sent.
    package func finalBytes(_ error: HTTP2SessionError) -> [UInt8] {
        var bytes: [UInt8] = [0, 0, 8, UInt8(NGHTTP2_GOAWAY.rawValue), 0, 0, 0, 0, 0]
        for number in [UInt32(lastStreamID), error.errorCode] {
            bytes += [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: number >> $0) }
        }
        return bytes
    }

    package func takeEvents() -> [HTTP2.ServerEvent] {
        defer { events = [] }
        return events
    }

    /// Returns the bytes to send, at least one frame and about `limit` bytes at most; empty if
    /// there are none.
    package func drain(limit: Int = 256 * 1024) -> [UInt8] {
        var output: [UInt8] = []
        while output.count < limit {
            var data: UnsafePointer<UInt8>?
            let count = unsafe nghttp2_session_mem_send(session, &data)
            guard count > 0, let data = unsafe data else { break }
            unsafe output.append(contentsOf: UnsafeBufferPointer(start: data, count: count))
        }
        return output
    }

    /// Whether nothing more will be read or sent.
    package var isFinished: Bool {
        unsafe nghttp2_session_want_read(session) == 0
            && nghttp2_session_want_write(session) == 0
    }

    // MARK: Answers

    /// Answers one stream. Does nothing if the stream is gone. If the request has not been read to
    /// its end, the stream stays until then, or until it is reset.
    ///
    /// Field names must be lower case. With `isOpen`, more of the body follows by `append`.
    package func submitResponse(
        stream: Int32,
        status: Int,
        fields: [HTTP2.Field],
        body: [UInt8],
        isOpen: Bool = false
    ) throws(HTTP2SessionError) {
        guard unsafe nghttp2_session_find_stream(session, stream) != nil else { return }
        let all = [HTTP2.Field(name: ":status", value: String(status))] + fields
        var status: Int32 = 0
        unsafe withNameValues(all) { pairs, count in
            guard !body.isEmpty || isOpen else {
                unsafe status = nghttp2_submit_response(session, stream, pairs, count, nil)
                return
            }
            _ = takeOut(stream)
            keep(OutgoingBody(bytes: OutgoingBytes(body), isOpen: isOpen), of: stream)
            var provider = unsafe nghttp2_data_provider()
            unsafe provider.read_callback = readAnswer
            unsafe status = nghttp2_submit_response(session, stream, pairs, count, &provider)
        }
        try check(status)
    }

    /// Appends to an open body; ignored if its stream is gone.
    package func append(stream: Int32, _ bytes: [UInt8]) throws(HTTP2SessionError) {
        guard bodies[stream]?.isOpen == true, var body = takeOut(stream) else { return }
        body.bytes.append(bytes)
        keep(body, of: stream)
        try resume(stream)
    }

    /// Stores a body, counted by `heldBytes` and `unsentBytes` until it is taken out.
    private func keep(_ body: OutgoingBody, of stream: Int32) {
        heldBytes += body.bytes.heldBytes
        unsentBytes += body.bytes.count
        bodies[stream] = body
    }

    private func takeOut(_ stream: Int32) -> OutgoingBody? {
        guard let body = bodies.removeValue(forKey: stream) else { return nil }
        heldBytes -= body.bytes.heldBytes
        unsentBytes -= body.bytes.count
        return body
    }

    package func endBody(stream: Int32) throws(HTTP2SessionError) {
        guard bodies[stream]?.isOpen == true else { return }
        bodies[stream]?.isOpen = false
        try resume(stream)
    }

    /// Returns the bytes of an answer's body that the peer's windows have not let through.
    package func unsentBytes(stream: Int32) -> Int {
        bodies[stream]?.bytes.count ?? 0
    }

    private func resume(_ stream: Int32) throws(HTTP2SessionError) {
        guard bodies[stream]?.isDeferred == true else { return }
        bodies[stream]?.isDeferred = false
        try check(unsafe nghttp2_session_resume_data(session, stream))
    }

    package func reset(stream: Int32, code: UInt32) throws(HTTP2SessionError) {
        if unsafe nghttp2_session_find_stream(session, stream) != nil { ownResets.insert(stream) }
        let flags = UInt8(NGHTTP2_FLAG_NONE.rawValue)
        try check(unsafe nghttp2_submit_rst_stream(session, flags, stream, code))
    }

    package func setMaxConcurrentStreams(_ count: Int) throws(HTTP2SessionError) {
        let entries = [entry(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, count)]
        try check(unsafe nghttp2_submit_settings(session, 0, entries, entries.count))
    }

    // MARK: Ending

    /// The newest accepted stream.
    package var lastStreamID: Int32 { unsafe nghttp2_session_get_last_proc_stream_id(session) }

    /// Submits GOAWAY: streams beyond `lastStreamID` are dropped, the others continue to their end,
    /// then the session is finished.
    package func goaway(
        lastStreamID: Int32? = nil,
        code: UInt32 = HTTP2.ErrorCode.noError,
        data: [UInt8] = []
    ) throws(HTTP2SessionError) {
        let last = min(max(lastStreamID ?? self.lastStreamID, 0), self.lastStreamID)
        // Only a client's streams, which are odd, can be named.
        let odd = last > 0 && last % 2 == 0 ? last - 1 : last
        try check(unsafe nghttp2_submit_goaway(session, 0, odd, code, data, data.count))
    }

    /// Submits a GOAWAY that only announces the end: streams in flight are still accepted.
    package func announceEnd() throws(HTTP2SessionError) {
        try check(unsafe nghttp2_submit_shutdown_notice(session))
    }

    // MARK: Calls from libnghttp2

    /// Notes a frame's header. Returns false if the peer exceeds a flood limit.
    func beganFrame(_ type: UInt8, flags: UInt8, length: Int) -> Bool {
        switch UInt32(type) {
        case NGHTTP2_HEADERS.rawValue:
            continuations = 0
            blockBytes = length
        case NGHTTP2_CONTINUATION.rawValue:
            continuations += 1
            blockBytes += length
            if continuations > Self.maximumContinuations
                || blockBytes > 2 * settings.maximumHeadBytes
            {
                return found("a header block without an end")
            }
        case NGHTTP2_DATA.rawValue:
            let isLast = UInt32(flags) & NGHTTP2_FLAG_END_STREAM.rawValue != 0
            if length == 0, !isLast { return spend(.control, "empty DATA frames") }
        case NGHTTP2_WINDOW_UPDATE.rawValue:
            return spend(.windowUpdate, "WINDOW_UPDATE frames")
        case NGHTTP2_RST_STREAM.rawValue:
            // Counted when its stream ends.
            break
        default:
            return spend(.control, "control frames")
        }
        return true
    }

    private func spend(_ kind: FloodGuard.Kind, _ what: StaticString) -> Bool {
        floods.admit(kind, at: .now) || found(what)
    }

    private func found(_ what: StaticString) -> Bool {
        flood = flood ?? what
        return false
    }

    func beganHead(_ stream: Int32) {
        heads[stream] = HTTP2.RequestHead()
        events.append(.opened(stream: stream))
    }

    /// Counts a field, and returns whether it is wanted; nil if the block exceeds its limit so far
    /// that it must be an attack, as when few bytes name a long entry of the table repeatedly.
    func wantsField(_ stream: Int32, bytes: Int) -> Bool? {
        guard let size = heads[stream]?.sizeBytes else { return false }
        heads[stream]?.sizeBytes = size + bytes + 32
        if size > 4 * settings.maximumHeadBytes {
            _ = found("a header block that grows and grows")
            return nil
        }
        if size + bytes + 32 > settings.maximumHeadBytes {
            heads[stream]?.isTooLarge = true
            return false
        }
        return true
    }

    func field(_ stream: Int32, _ name: String, _ value: String) {
        guard var head = heads.removeValue(forKey: stream) else { return }
        switch name {
        case ":method": head.method = value
        case ":scheme": head.scheme = value
        case ":authority": head.authority = value
        case ":path": head.path = value
        default: head.fields.append(HTTP2.Field(name: name, value: value))
        }
        heads[stream] = head
    }

    func endedHead(_ stream: Int32) {
        guard let head = heads.removeValue(forKey: stream) else { return }
        events.append(.head(stream: stream, head))
    }

    func body(_ stream: Int32, _ bytes: UnsafeBufferPointer<UInt8>) {
        unsafe events.append(.body(stream: stream, Array(bytes)))
    }

    func ended(_ stream: Int32) { events.append(.end(stream: stream)) }

    /// Notes a closed stream. Returns false if too many streams ended with an error.
    func closed(_ stream: Int32, _ code: UInt32) -> Bool {
        heads[stream] = nil
        _ = takeOut(stream)
        events.append(.closed(stream: stream, errorCode: code))
        let isOurs = ownResets.remove(stream) != nil
        return isOurs || code == HTTP2.ErrorCode.noError || spend(.reset, "reset streams")
    }

    /// Copies the next part of an answer's body.
    func readBody(
        _ stream: Int32,
        into buffer: UnsafeMutableBufferPointer<UInt8>
    ) -> BodyPart {
        guard var body = takeOut(stream) else { return .last(0) }
        let count = unsafe body.bytes.take(into: buffer)
        sentBodyBytes += count
        body.isDeferred = count == 0 && body.isOpen
        let (isLater, isLast) = (body.isDeferred, body.bytes.isEmpty && !body.isOpen)
        keep(body, of: stream)
        return isLater ? .later : isLast ? .last(count) : .some(count)
    }

    enum BodyPart {
        case some(Int)
        case last(Int)
        /// Nothing is available now.
        case later
    }
}
