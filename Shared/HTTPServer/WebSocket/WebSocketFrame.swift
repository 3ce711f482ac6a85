/// One message as a server sends it: a single frame without a mask, so that the same bytes serve many
/// sockets (RFC 6455 section 5.2).
package struct WebSocketFrame: Sendable {
    enum Opcode: UInt8 {
        case text = 1
        case binary = 2
        case close = 8
        case ping = 9
    }

    package let bytes: [UInt8]

    package static func text(_ text: [UInt8]) -> WebSocketFrame { WebSocketFrame(.text, text) }

    package static func binary(_ bytes: [UInt8]) -> WebSocketFrame {
        WebSocketFrame(.binary, bytes)
    }

    static func ping() -> WebSocketFrame { WebSocketFrame(.ping, []) }

    /// Makes a close frame without a code.
    static func close() -> WebSocketFrame { WebSocketFrame(.close, []) }

    /// Makes a close frame; a reason beyond 123 bytes is cut at the start of a character.
    static func close(_ code: UInt16, _ reason: String = "") -> WebSocketFrame {
        var text = reason[...]
        while text.utf8.count > 123 { text.removeLast() }
        return WebSocketFrame(.close, [UInt8(code >> 8), UInt8(code & 0xff)] + Array(text.utf8))
    }

    private init(_ opcode: Opcode, _ payload: [UInt8]) {
        var frame: [UInt8] = []
        frame.reserveCapacity(payload.count + 10)
        frame.append(0x80 | opcode.rawValue)
        switch payload.count {
        case 0..<126: frame.append(UInt8(payload.count))
        case 126..<65_536:
            frame += [126, UInt8(payload.count >> 8), UInt8(payload.count & 0xff)]
        default:
            frame.append(127)
            for shift in stride(from: 56, through: 0, by: -8) {
                frame.append(UInt8(truncatingIfNeeded: payload.count >> shift))
            }
        }
        frame += payload
        bytes = frame
    }
}
