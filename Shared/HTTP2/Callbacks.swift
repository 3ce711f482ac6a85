internal import CNGHTTP2

// MARK: Callbacks

func setCallbacks(_ callbacks: OpaquePointer?) {
    unsafe nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks) { _, header, data in
        guard let session = unsafe session(data), let header = unsafe header else { return 0 }
        let goesOn = session.beganFrame(
            unsafe header.pointee.type,
            flags: unsafe header.pointee.flags,
            length: unsafe header.pointee.length
        )
        return goesOn ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE.rawValue
    }
    // The payload of an unknown frame type is ignored; `beganFrame` counts it.
    unsafe nghttp2_session_callbacks_set_unpack_extension_callback(callbacks) { _, _, _, _ in
        NGHTTP2_ERR_CANCEL.rawValue
    }
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
        let stream = unsafe frame.pointee.hd.stream_id
        guard let isWanted = session.wantsField(stream, bytes: nameLength + valueLength) else {
            return NGHTTP2_ERR_CALLBACK_FAILURE.rawValue
        }
        if isWanted {
            session.field(
                stream,
                unsafe text(name, nameLength),
                unsafe text(value, valueLength)
            )
        }
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
        let goesOn = unsafe session(data)?.closed(stream, code) ?? true
        return goesOn ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE.rawValue
    }
}

func readAnswer(
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
    switch unsafe session.readBody(stream, into: target) {
    case .some(let count):
        return count
    case .last(let count):
        unsafe flags?.pointee |= NGHTTP2_DATA_FLAG_EOF.rawValue
        return count
    case .later:
        return Int(NGHTTP2_ERR_DEFERRED.rawValue)
    }
}

private func session(_ data: UnsafeMutableRawPointer?) -> HTTP2ServerSession? {
    guard let data = unsafe data else { return nil }
    return unsafe Unmanaged<HTTP2ServerSession>.fromOpaque(data).takeUnretainedValue()
}

/// Decodes a field as UTF-8 if it is valid, else as Latin-1: RFC 9110 calls such bytes opaque.
private func text(_ bytes: UnsafePointer<UInt8>?, _ count: Int) -> String {
    let buffer = unsafe UnsafeBufferPointer(start: bytes, count: count)
    if let text = unsafe String(validating: buffer, as: UTF8.self) { return text }
    return unsafe String(String.UnicodeScalarView(buffer.map { Unicode.Scalar($0) }))
}

func entry(
    _ identifier: nghttp2_settings_id,
    _ value: Int
) -> nghttp2_settings_entry {
    nghttp2_settings_entry(
        settings_id: Int32(identifier.rawValue),
        value: UInt32(clamping: max(0, value))
    )
}

/// Passes the fields to libnghttp2, which copies them.
func withNameValues(
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

func check(_ code: Int32) throws(HTTP2SessionError) {
    guard code < 0 else { return }
    let text = unsafe nghttp2_strerror(code).map { unsafe String(cString: $0) } ?? "unknown"
    let errorCode =
        switch nghttp2_error(code) {
        case NGHTTP2_ERR_FLOODED, NGHTTP2_ERR_TOO_MANY_CONTINUATIONS,
            NGHTTP2_ERR_TOO_MANY_SETTINGS:
            HTTP2.ErrorCode.enhanceYourCalm
        case NGHTTP2_ERR_BAD_CLIENT_MAGIC, NGHTTP2_ERR_SETTINGS_EXPECTED:
            HTTP2.ErrorCode.protocolError
        default:
            HTTP2.ErrorCode.internalError
        }
    throw HTTP2SessionError(code: code, errorCode: errorCode, description: text)
}
