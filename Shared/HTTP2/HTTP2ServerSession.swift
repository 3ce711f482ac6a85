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
        /// Names, values and 32 bytes a field, as RFC 9113 counts.
        package var maximumHeadBytes: Int

        package init(maxConcurrentStreams: Int, initialWindowBytes: Int, maximumHeadBytes: Int) {
            self.maxConcurrentStreams = maxConcurrentStreams
            self.initialWindowBytes = initialWindowBytes
            self.maximumHeadBytes = maximumHeadBytes
        }
    }

    private struct OutgoingBody {
        let bytes: [UInt8]
        var sent = 0
    }

    private var session: OpaquePointer?
    private let settings: Settings
    private var events: [HTTP2.ServerEvent] = []
    /// Header blocks that are coming in.
    private var heads: [Int32: HTTP2.RequestHead] = [:]
    private var bodies: [Int32: OutgoingBody] = [:]

    /// The settings, and the connection's window, are the first that `drain` gives.
    package init(_ settings: Settings) throws(HTTP2SessionError) {
        self.settings = settings
        var callbacks: OpaquePointer?
        try check(unsafe nghttp2_session_callbacks_new(&callbacks))
        defer { unsafe nghttp2_session_callbacks_del(callbacks) }
        unsafe setCallbacks(callbacks)
        let me = unsafe Unmanaged.passUnretained(self).toOpaque()
        try check(unsafe nghttp2_session_server_new(&session, callbacks, me))

        let entries = [
            entry(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, settings.maxConcurrentStreams),
            entry(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, settings.initialWindowBytes),
            entry(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, settings.maximumHeadBytes),
        ]
        try check(unsafe nghttp2_submit_settings(session, 0, entries, entries.count))
        // As much for all streams together as for four of them.
        let window = Int32(clamping: settings.initialWindowBytes * 4)
        try check(unsafe nghttp2_session_set_local_window_size(session, 0, 0, window))
    }

    deinit { unsafe nghttp2_session_del(session) }

    // MARK: Bytes

    /// Takes what the peer sent. A mistake of the peer that ends the connection is no error here:
    /// `drain` then gives the GOAWAY, and `isFinished` turns true.
    package func receive(_ bytes: UnsafeRawBufferPointer) throws(HTTP2SessionError) {
        guard let base = bytes.baseAddress else { return }
        let start = unsafe base.assumingMemoryBound(to: UInt8.self)
        let taken = unsafe nghttp2_session_mem_recv(session, start, bytes.count)
        if taken < 0 { try check(Int32(clamping: taken)) }
    }

    package func takeEvents() -> [HTTP2.ServerEvent] {
        defer { events = [] }
        return events
    }

    /// What is to be sent, at least one frame and about `limit` bytes at most; empty when there is
    /// nothing.
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

    /// Nothing will be read or sent any more.
    package var isFinished: Bool {
        unsafe nghttp2_session_want_read(session) == 0
            && nghttp2_session_want_write(session) == 0
    }

    // MARK: Answers

    /// Answers one stream. A stream that is gone is not an error. Where the request is not read to
    /// its end yet, the stream stays until it is, or is reset.
    ///
    /// Field names must be lower case.
    package func submitResponse(
        stream: Int32,
        status: Int,
        fields: [HTTP2.Field],
        body: [UInt8]
    ) throws(HTTP2SessionError) {
        guard unsafe nghttp2_session_find_stream(session, stream) != nil else { return }
        let all = [HTTP2.Field(name: ":status", value: String(status))] + fields
        var status: Int32 = 0
        unsafe withNameValues(all) { pairs, count in
            guard !body.isEmpty else {
                unsafe status = nghttp2_submit_response(session, stream, pairs, count, nil)
                return
            }
            bodies[stream] = OutgoingBody(bytes: body)
            var provider = unsafe nghttp2_data_provider()
            unsafe provider.read_callback = readAnswer
            unsafe status = nghttp2_submit_response(session, stream, pairs, count, &provider)
        }
        try check(status)
    }

    package func reset(stream: Int32, code: UInt32) throws(HTTP2SessionError) {
        let flags = UInt8(NGHTTP2_FLAG_NONE.rawValue)
        try check(unsafe nghttp2_submit_rst_stream(session, flags, stream, code))
    }

    package func setMaxConcurrentStreams(_ count: Int) throws(HTTP2SessionError) {
        let entries = [entry(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, count)]
        try check(unsafe nghttp2_submit_settings(session, 0, entries, entries.count))
    }

    // MARK: Ending

    /// The newest stream that was taken in.
    package var lastStreamID: Int32 { unsafe nghttp2_session_get_last_proc_stream_id(session) }

    /// GOAWAY: streams beyond `lastStreamID` are dropped, the others go on to their end, then the
    /// session is finished.
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

    /// GOAWAY that only announces the end: streams that are on their way are still taken.
    package func announceEnd() throws(HTTP2SessionError) {
        try check(unsafe nghttp2_submit_shutdown_notice(session))
    }

    // MARK: From libnghttp2

    fileprivate func beganHead(_ stream: Int32) {
        heads[stream] = HTTP2.RequestHead()
        events.append(.opened(stream: stream))
    }

    fileprivate func field(_ stream: Int32, _ name: String, _ value: String) {
        guard var head = heads.removeValue(forKey: stream) else { return }
        head.sizeBytes += name.utf8.count + value.utf8.count + 32
        if head.sizeBytes > settings.maximumHeadBytes {
            head.isTooLarge = true
        } else {
            switch name {
            case ":method": head.method = value
            case ":scheme": head.scheme = value
            case ":authority": head.authority = value
            case ":path": head.path = value
            default: head.fields.append(HTTP2.Field(name: name, value: value))
            }
        }
        heads[stream] = head
    }

    fileprivate func endedHead(_ stream: Int32) {
        guard let head = heads.removeValue(forKey: stream) else { return }
        events.append(.head(stream: stream, head))
    }

    fileprivate func body(_ stream: Int32, _ bytes: UnsafeBufferPointer<UInt8>) {
        unsafe events.append(.body(stream: stream, Array(bytes)))
    }

    fileprivate func ended(_ stream: Int32) { events.append(.end(stream: stream)) }

    fileprivate func closed(_ stream: Int32, _ code: UInt32) {
        heads[stream] = nil
        bodies[stream] = nil
        events.append(.closed(stream: stream, errorCode: code))
    }

    /// Copies the next part of an answer's body; true when it was the last.
    fileprivate func readBody(
        _ stream: Int32,
        into buffer: UnsafeMutableBufferPointer<UInt8>
    ) -> (count: Int, isLast: Bool) {
        guard let body = bodies[stream] else { return (0, true) }
        let count = min(buffer.count, body.bytes.count - body.sent)
        unsafe body.bytes.withUnsafeBytes { bytes in
            unsafe UnsafeMutableRawBufferPointer(buffer).copyMemory(
                from: UnsafeRawBufferPointer(rebasing: bytes[body.sent..<body.sent + count])
            )
        }
        bodies[stream]?.sent += count
        return (count, body.sent + count == body.bytes.count)
    }
}

// MARK: Callbacks

private func setCallbacks(_ callbacks: OpaquePointer?) {
    unsafe nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks) { _, frame, data in
        guard let session = unsafe session(data), let frame = unsafe frame else { return 0 }
        if unsafe frame.pointee.headers.cat == NGHTTP2_HCAT_REQUEST {
            session.beganHead(unsafe frame.pointee.hd.stream_id)
        }
        return 0
    }
    unsafe nghttp2_session_callbacks_set_on_header_callback(callbacks) {
        _,
        frame,
        name,
        nameLength,
        value,
        valueLength,
        _,
        data in
        guard let session = unsafe session(data), let frame = unsafe frame,
            unsafe frame.pointee.hd.type == NGHTTP2_HEADERS.rawValue,
            unsafe frame.pointee.headers.cat == NGHTTP2_HCAT_REQUEST
        else { return 0 }
        session.field(
            unsafe frame.pointee.hd.stream_id,
            unsafe text(name, nameLength),
            unsafe text(value, valueLength)
        )
        return 0
    }
    unsafe nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks) { _, frame, data in
        guard let session = unsafe session(data), let frame = unsafe frame else { return 0 }
        let header = unsafe frame.pointee.hd
        let isHeaders = header.type == NGHTTP2_HEADERS.rawValue
        guard isHeaders || header.type == NGHTTP2_DATA.rawValue else { return 0 }
        if isHeaders { session.endedHead(header.stream_id) }
        if UInt32(header.flags) & NGHTTP2_FLAG_END_STREAM.rawValue != 0 {
            session.ended(header.stream_id)
        }
        return 0
    }
    unsafe nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks) {
        _,
        _,
        stream,
        bytes,
        count,
        data in
        unsafe session(data)?.body(stream, UnsafeBufferPointer(start: bytes, count: count))
        return 0
    }
    unsafe nghttp2_session_callbacks_set_on_stream_close_callback(callbacks) {
        _,
        stream,
        code,
        data in
        unsafe session(data)?.closed(stream, code)
        return 0
    }
}

private func readAnswer(
    _: OpaquePointer?,
    stream: Int32,
    buffer: UnsafeMutablePointer<UInt8>?,
    length: Int,
    flags: UnsafeMutablePointer<UInt32>?,
    _: UnsafeMutablePointer<nghttp2_data_source>?,
    data: UnsafeMutableRawPointer?
) -> Int {
    guard let session = unsafe session(data) else { return 0 }
    let target = unsafe UnsafeMutableBufferPointer(start: buffer, count: length)
    let (count, isLast) = unsafe session.readBody(stream, into: target)
    if isLast { unsafe flags?.pointee |= NGHTTP2_DATA_FLAG_EOF.rawValue }
    return count
}

private func session(_ data: UnsafeMutableRawPointer?) -> HTTP2ServerSession? {
    guard let data = unsafe data else { return nil }
    return unsafe Unmanaged<HTTP2ServerSession>.fromOpaque(data).takeUnretainedValue()
}

/// UTF-8 where it is that, else Latin-1, which is what RFC 9110 calls opaque.
private func text(_ bytes: UnsafePointer<UInt8>?, _ count: Int) -> String {
    let buffer = unsafe UnsafeBufferPointer(start: bytes, count: count)
    if let text = unsafe String(validating: buffer, as: UTF8.self) { return text }
    return unsafe String(String.UnicodeScalarView(buffer.map { Unicode.Scalar($0) }))
}

private func entry(
    _ identifier: nghttp2_settings_id,
    _ value: Int
) -> nghttp2_settings_entry {
    nghttp2_settings_entry(
        settings_id: Int32(identifier.rawValue),
        value: UInt32(clamping: max(0, value))
    )
}

/// Lends the fields to libnghttp2, which copies them.
private func withNameValues(
    _ fields: [HTTP2.Field],
    _ body: (UnsafePointer<nghttp2_nv>?, Int) -> Void
) {
    var bytes: [UInt8] = []
    for field in fields {
        bytes.append(contentsOf: field.name.utf8)
        bytes.append(contentsOf: field.value.utf8)
    }
    unsafe bytes.withUnsafeMutableBufferPointer { buffer in
        var pairs: [nghttp2_nv] = unsafe []
        var offset = 0
        for field in fields {
            let (nameLength, valueLength) = (field.name.utf8.count, field.value.utf8.count)
            let start = unsafe buffer.baseAddress.map { unsafe $0 + offset }
            unsafe pairs.append(
                nghttp2_nv(
                    name: start,
                    value: start.map { unsafe $0 + nameLength },
                    namelen: nameLength,
                    valuelen: valueLength,
                    flags: 0
                )
            )
            offset += nameLength + valueLength
        }
        unsafe pairs.withUnsafeBufferPointer { unsafe body($0.baseAddress, $0.count) }
    }
}

private func check(_ code: Int32) throws(HTTP2SessionError) {
    guard code < 0 else { return }
    let text = unsafe nghttp2_strerror(code).map { unsafe String(cString: $0) } ?? "unknown"
    throw HTTP2SessionError(code: code, description: text)
}
