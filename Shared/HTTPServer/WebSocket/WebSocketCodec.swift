internal import CWslay

/// Reads a client's frames with wslay, which does no I/O of its own: bytes in, messages and the
/// control frames to be sent out. A codec takes 8 KiB, so a socket has one only while a message
/// arrives.
///
/// A violation of the protocol yields a close frame with its code; nothing is read after it.
@safe
final class WebSocketCodec {
    /// The result of some input.
    struct Output: Equatable {
        var messages: [WebSocketMessage] = []
        var pings = 0
        /// Pongs and a close frame, encoded.
        var bytes: [UInt8] = []
        /// The close code; nothing is read after it. It is the client's, 1005 if the client's close
        /// frame has no code, or ours after a violation.
        var closeCode: Int?
    }

    private var context: wslay_event_context_ptr?
    private var input: UnsafeRawBufferPointer = unsafe UnsafeRawBufferPointer(start: nil, count: 0)
    private var output = Output()
    private var hasHalfCode = false

    /// - Returns: `nil` if there is no memory for it.
    init?(maximumMessageBytes: Int) {
        var callbacks = unsafe wslay_event_callbacks(
            recv_callback: { context, buffer, length, _, data in
                guard let codec = unsafe WebSocketCodec.of(data), let buffer = unsafe buffer else {
                    return -1
                }
                let count = unsafe codec.read(into: buffer, length)
                guard count > 0 else {
                    unsafe wslay_event_set_error(context, WSLAY_ERR_WOULDBLOCK.rawValue)
                    return -1
                }
                return count
            },
            send_callback: { _, bytes, length, _, data in
                guard let codec = unsafe WebSocketCodec.of(data) else { return -1 }
                unsafe codec.output.bytes.append(
                    contentsOf: UnsafeBufferPointer(start: bytes, count: length)
                )
                return length
            },
            genmask_callback: nil,
            on_frame_recv_start_callback: nil,
            on_frame_recv_chunk_callback: nil,
            on_frame_recv_end_callback: nil,
            on_msg_recv_callback: { _, message, data in
                guard let codec = unsafe WebSocketCodec.of(data), let message = unsafe message
                else {
                    return
                }
                unsafe codec.received(message.pointee)
            }
        )
        let me = unsafe Unmanaged.passUnretained(self).toOpaque()
        guard unsafe wslay_event_context_server_init(&context, &callbacks, me) == 0 else {
            return nil
        }
        unsafe wslay_event_config_set_max_recv_msg_length(context, UInt64(maximumMessageBytes))
    }

    deinit { unsafe wslay_event_context_free(context) }

    private static func of(_ data: UnsafeMutableRawPointer?) -> WebSocketCodec? {
        unsafe data.map { unsafe Unmanaged<WebSocketCodec>.fromOpaque($0).takeUnretainedValue() }
    }

    private func read(into buffer: UnsafeMutablePointer<UInt8>, _ length: Int) -> Int {
        let count = unsafe min(length, input.count)
        guard count > 0 else { return 0 }
        let part = unsafe UnsafeRawBufferPointer(rebasing: input[..<count])
        unsafe UnsafeMutableRawBufferPointer(start: buffer, count: count).copyMemory(from: part)
        unsafe input = UnsafeRawBufferPointer(rebasing: input[count...])
        return count
    }

    private func received(_ message: wslay_event_on_msg_recv_arg) {
        let bytes = unsafe Array(UnsafeBufferPointer(start: message.msg, count: message.msg_length))
        switch UInt32(unsafe message.opcode) {
        case WSLAY_TEXT_FRAME.rawValue: output.messages.append(.text(bytes))
        case WSLAY_BINARY_FRAME.rawValue: output.messages.append(.binary(bytes))
        case WSLAY_PING.rawValue: output.pings += 1
        case WSLAY_CONNECTION_CLOSE.rawValue where bytes.count == 1: hasHalfCode = true
        case WSLAY_CONNECTION_CLOSE.rawValue:
            output.closeCode = unsafe message.status_code == 0 ? 1005 : Int(message.status_code)
        default: break
        }
    }

    /// Reads some input.
    ///
    /// - Parameter bytes: Any bytes of data frames, or one whole control frame.
    /// - Returns: The messages that end in these bytes, and the answers to them.
    func receive(_ bytes: UnsafeRawBufferPointer) -> Output {
        output = Output()
        unsafe input = bytes
        let isRead = unsafe wslay_event_recv(context) == 0
        unsafe input = UnsafeRawBufferPointer(start: nil, count: 0)
        let isWritten = unsafe wslay_event_send(context) == 0
        if !isRead || !isWritten || hasHalfCode {
            // wslay answers a malformed header with a close frame without a code.
            fail(1002)
        } else if unsafe wslay_event_get_read_enabled(context) == 0, output.closeCode == nil {
            output.closeCode = unsafe Int(wslay_event_get_status_code_sent(context))
        }
        return output
    }

    private func fail(_ code: UInt16) {
        let empty = WebSocketFrame.close().bytes
        if output.bytes.suffix(empty.count) == empty[...] { output.bytes.removeLast(empty.count) }
        output.bytes += WebSocketFrame.close(code).bytes
        output.closeCode = Int(code)
    }
}
