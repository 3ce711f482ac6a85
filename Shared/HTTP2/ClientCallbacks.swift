internal import CNGHTTP2

// MARK: Callbacks of a client session, all on records in raw memory

func setClientCallbacks(_ callbacks: OpaquePointer?) {
    unsafe nghttp2_session_callbacks_set_on_header_callback(callbacks, onField)
    unsafe nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, onBodyPart)
    unsafe nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, onFrame)
    unsafe nghttp2_session_callbacks_set_before_frame_send_callback(callbacks, beforeFrameSend)
    unsafe nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, onFrameNotSend)
    unsafe nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, onStreamClose)
}

private func clientRecord(_ data: UnsafeMutableRawPointer?) -> ClientRecord.Pointer? {
    unsafe data?.assumingMemoryBound(to: ClientRecord.self)
}

private func streamRecord(
    _ session: OpaquePointer?,
    _ client: ClientRecord.Pointer,
    _ stream: Int32
) -> StreamRecord.Pointer? {
    if unsafe client.pointee.cachedStream == stream { return unsafe client.pointee.cached }
    let record = unsafe nghttp2_session_get_stream_user_data(session, stream)?
        .assumingMemoryBound(to: StreamRecord.self)
    unsafe client.pointee.cachedStream = stream
    unsafe client.pointee.cached = unsafe record
    return unsafe record
}

private func onField(
    _ session: OpaquePointer?,
    _ frame: UnsafePointer<nghttp2_frame>?,
    _ name: UnsafePointer<UInt8>?,
    _ nameCount: Int,
    _ value: UnsafePointer<UInt8>?,
    _ valueCount: Int,
    _: UInt8,
    _ data: UnsafeMutableRawPointer?
) -> Int32 {
    guard let client = unsafe clientRecord(data), let frame = unsafe frame,
        let name = unsafe name, let value = unsafe value
    else { return 0 }
    let stream = unsafe frame.pointee.hd.stream_id
    guard let record = unsafe streamRecord(session, client, stream) else { return 0 }
    if unsafe nameCount > 0 && name[0] == UInt8(ascii: ":") {
        // Only `:status` passes libnghttp2's own check. A second `:status` follows an interim
        // answer, which is dropped.
        var status: Int32 = 0
        for index in 0..<min(valueCount, 3) {
            status = unsafe status * 10 + Int32(value[index]) - 48
        }
        unsafe record.pointee.status = status
        unsafe record.pointee.headCount = 0
        unsafe record.pointee.answerCount = 0
        return 0
    }
    // Trailers after a body are ignored.
    guard unsafe record.pointee.headCount == record.pointee.answerCount else { return 0 }
    let size = nameCount + valueCount + 4
    guard unsafe record.pointee.headCount + size <= client.pointee.maximumHeadBytes,
        nameCount <= 0xFFFF, valueCount <= 0xFFFF
    else {
        unsafe refuse(session, record)
        return 0
    }
    unsafe record.pointee.reserve(size)
    unsafe record.pointee.appendLength(nameCount)
    unsafe record.pointee.appendLength(valueCount)
    unsafe record.pointee.append(name, nameCount)
    unsafe record.pointee.append(value, valueCount)
    unsafe record.pointee.headCount = unsafe record.pointee.answerCount
    return 0
}

private func onBodyPart(
    _ session: OpaquePointer?,
    _: UInt8,
    _ stream: Int32,
    _ bytes: UnsafePointer<UInt8>?,
    _ count: Int,
    _ data: UnsafeMutableRawPointer?
) -> Int32 {
    guard let client = unsafe clientRecord(data), let bytes = unsafe bytes,
        let record = unsafe streamRecord(session, client, stream)
    else { return 0 }
    let body = unsafe record.pointee.answerCount - record.pointee.headCount
    guard unsafe body + count <= client.pointee.maximumBodyBytes else {
        unsafe refuse(session, record)
        return 0
    }
    unsafe record.pointee.reserve(count)
    unsafe record.pointee.append(bytes, count)
    return 0
}

private func refuse(_ session: OpaquePointer?, _ record: StreamRecord.Pointer) {
    guard unsafe !record.pointee.isTooLarge else { return }
    unsafe record.pointee.isTooLarge = true
    let flags = UInt8(NGHTTP2_FLAG_NONE.rawValue)
    unsafe nghttp2_submit_rst_stream(
        session,
        flags,
        record.pointee.stream,
        HTTP2.ErrorCode.cancel
    )
}

private func onFrame(
    _ session: OpaquePointer?,
    _ frame: UnsafePointer<nghttp2_frame>?,
    _ data: UnsafeMutableRawPointer?
) -> Int32 {
    guard let client = unsafe clientRecord(data), let frame = unsafe frame else { return 0 }
    let header = unsafe frame.pointee.hd
    let isAcknowledgement = UInt32(header.flags) & NGHTTP2_FLAG_ACK.rawValue != 0
    switch UInt32(header.type) {
    case NGHTTP2_HEADERS.rawValue, NGHTTP2_DATA.rawValue:
        if UInt32(header.flags) & NGHTTP2_FLAG_END_STREAM.rawValue != 0 {
            unsafe streamRecord(session, client, header.stream_id)?.pointee.isWhole = true
        }
    case NGHTTP2_SETTINGS.rawValue:
        if !isAcknowledgement { unsafe client.pointee.hasSettings = true }
    case NGHTTP2_PING.rawValue:
        if isAcknowledgement { unsafe client.pointee.pingsAnswered += 1 }
    case NGHTTP2_GOAWAY.rawValue:
        let goaway = unsafe frame.pointee.goaway
        unsafe client.pointee.isGoingAway = true
        unsafe client.pointee.goawayCode = unsafe goaway.error_code
        unsafe client.pointee.goawayText.set(
            UnsafeBufferPointer(start: goaway.opaque_data, count: goaway.opaque_data_len)
        )
    default: break
    }
    return 0
}

/// Notes that a request is sent: a client's HEADERS are requests.
private func beforeFrameSend(
    _: OpaquePointer?,
    _ frame: UnsafePointer<nghttp2_frame>?,
    _ data: UnsafeMutableRawPointer?
) -> Int32 {
    guard let client = unsafe clientRecord(data), let header = unsafe frame?.pointee.hd,
        UInt32(header.type) == NGHTTP2_HEADERS.rawValue
    else { return 0 }
    unsafe client.pointee.sends(header.stream_id)
    return 0
}

/// Marks a request as unsendable; its stream closes after this. A request that was not sent because
/// of a GOAWAY or a cancellation is not marked: the stream's error code is enough.
private func onFrameNotSend(
    _ session: OpaquePointer?,
    _ frame: UnsafePointer<nghttp2_frame>?,
    _ reason: Int32,
    _ data: UnsafeMutableRawPointer?
) -> Int32 {
    guard let client = unsafe clientRecord(data), let header = unsafe frame?.pointee.hd,
        UInt32(header.type) == NGHTTP2_HEADERS.rawValue,
        reason != NGHTTP2_ERR_START_STREAM_NOT_ALLOWED.rawValue,
        reason != NGHTTP2_ERR_STREAM_CLOSING.rawValue,
        let record = unsafe streamRecord(session, client, header.stream_id)
    else { return 0 }
    unsafe record.pointee.isUnsendable = true
    return 0
}

private func onStreamClose(
    _ session: OpaquePointer?,
    _ stream: Int32,
    _ code: UInt32,
    _ data: UnsafeMutableRawPointer?
) -> Int32 {
    guard let client = unsafe clientRecord(data),
        let record = unsafe streamRecord(session, client, stream)
    else { return 0 }
    unsafe record.pointee.errorCode = code
    unsafe client.pointee.finish(record)
    return 0
}

/// Copies the next part of a request's body.
func readRequest(
    _: OpaquePointer?,
    _: Int32,
    _ buffer: UnsafeMutablePointer<UInt8>?,
    _ capacity: Int,
    _ flags: UnsafeMutablePointer<UInt32>?,
    _ source: UnsafeMutablePointer<nghttp2_data_source>?,
    _ data: UnsafeMutableRawPointer?
) -> Int {
    guard let buffer = unsafe buffer, let client = unsafe clientRecord(data),
        let record = unsafe source?.pointee.ptr?.assumingMemoryBound(to: StreamRecord.self)
    else { return Int(NGHTTP2_ERR_CALLBACK_FAILURE.rawValue) }
    let read = unsafe record.pointee.bodyRead
    let left = unsafe record.pointee.bodyCount - read
    let count = min(left, capacity)
    unsafe buffer.update(from: record.pointee.body + read, count: count)
    unsafe record.pointee.bodyRead = read + count
    unsafe client.pointee.bodyBytes += count
    if count == left {
        unsafe flags?.pointee |= NGHTTP2_DATA_FLAG_EOF.rawValue
        unsafe client.pointee.ends(record)
    }
    return count
}
