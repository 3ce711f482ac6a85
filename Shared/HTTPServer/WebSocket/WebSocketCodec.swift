internal import CWslay

/// Reads a client's frames with wslay, which does no I/O of its own: bytes in, messages and the
/// control frames to be sent out. A codec takes 8 KiB, so a socket has one only while a message
/// arrives.
///
/// wslay would keep each message in two copies, so the bytes are collected here, as they arrive.
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

    private let maximumMessageBytes: Int
    /// Asks for the memory of the message; false: there is none.
    private let hold: ((Int) -> Bool)?
    /// The message that is arriving.
    private var message: [UInt8] = []
    private var isWithinControlFrame = false
    /// The code with which the message is refused.
    private var refusalCode: UInt16?

    /// The bytes of a message that are not counted, and the steps in which others are.
    static let holdStep = 4 << 10

    /// Makes a codec; `nil` if there is no memory for it.
    ///
    /// - Parameters:
    ///   - maximumMessageBytes: The limit of a message.
    ///   - hold: Asks for the memory of a message with so many bytes, in steps; false: there is none.
    init?(maximumMessageBytes: Int, hold: ((Int) -> Bool)? = nil) {
        self.maximumMessageBytes = maximumMessageBytes
        self.hold = hold
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
            on_frame_recv_start_callback: { _, frame, data in
                guard let codec = unsafe WebSocketCodec.of(data), let frame = unsafe frame else {
                    return
                }
                unsafe codec.began(frame.pointee)
            },
            on_frame_recv_chunk_callback: { _, chunk, data in
                guard let codec = unsafe WebSocketCodec.of(data), let chunk = unsafe chunk else {
                    return
                }
                unsafe codec.collect(chunk.pointee)
            },
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
        unsafe wslay_event_config_set_no_buffering(context, 1)
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

    /// Begins a frame. wslay knows the limit of one frame only; this one is of the whole message.
    private func began(_ frame: wslay_event_on_frame_recv_start_arg) {
        isWithinControlFrame = frame.opcode & 0x08 != 0
        guard !isWithinControlFrame, refusalCode == nil else { return }
        if frame.payload_length > UInt64(maximumMessageBytes - message.count) {
            refusalCode = 1009
        }
    }

    private func collect(_ chunk: wslay_event_on_frame_recv_chunk_arg) {
        guard !isWithinControlFrame, refusalCode == nil else { return }
        let before = message.count / Self.holdStep
        unsafe message.append(
            contentsOf: UnsafeBufferPointer(start: chunk.data, count: chunk.data_length)
        )
        guard let hold, message.count / Self.holdStep > before, !hold(message.count) else { return }
        refusalCode = 1013
    }

    private func received(_ event: wslay_event_on_msg_recv_arg) {
        guard refusalCode == nil else { return }
        switch UInt32(unsafe event.opcode) {
        case WSLAY_TEXT_FRAME.rawValue: output.messages.append(.text(takeMessage()))
        case WSLAY_BINARY_FRAME.rawValue: output.messages.append(.binary(takeMessage()))
        case WSLAY_PING.rawValue: output.pings += 1
        case WSLAY_CONNECTION_CLOSE.rawValue where unsafe event.msg_length == 1: hasHalfCode = true
        case WSLAY_CONNECTION_CLOSE.rawValue:
            output.closeCode = unsafe event.status_code == 0 ? 1005 : Int(event.status_code)
        default: break
        }
    }

    private func takeMessage() -> [UInt8] {
        defer { message = [] }
        return message
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
        if let refusalCode {
            fail(refusalCode)
            return output
        }
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
