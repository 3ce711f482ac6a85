/// Turns bytes into HTTP/2 frames that pass libnghttp2's first checks more often than random ones:
/// lengths are right, streams are near, header blocks are mostly complete.
///
/// Each frame takes a byte for its kind, one for its flags, one for its stream, one for the length
/// of its payload, and the payload.
enum FrameScript {
    /// The approximate maximum size of a script in bytes.
    private static let longest = 8 * 1024

    static func frames(_ script: ArraySlice<UInt8>) -> [UInt8] {
        // The SETTINGS frame must come first.
        var frames = frame(kind: 4, flags: 0, stream: 0, [])
        var rest = script
        while rest.count >= 4, frames.count < longest {
            let head = Array(rest.prefix(4))
            rest = rest.dropFirst(4)
            let payload = Array(rest.prefix(Int(head[3])))
            rest = rest.dropFirst(payload.count)
            let stream = Int(head[2])
            switch head[0] {
            case 0x40..<0x80:
                // A request with flags from the input.
                frames += frame(kind: 1, flags: head[1] & 0x05, stream: stream, block(payload))
            case 0x80..<0xA0:
                // A request whose head continues in a CONTINUATION.
                let block = block(payload)
                let half = block.count / 2
                frames += frame(kind: 1, flags: head[1] & 1, stream: stream, Array(block[..<half]))
                frames += frame(kind: 9, flags: 4, stream: stream, Array(block[half...]))
            case 0xA0..<0xC0:
                // The same frame is repeated many times.
                for _ in 0..<head[0] {
                    frames += frame(kind: head[0] & 0x0F, flags: head[1], stream: stream, payload)
                }
            default:
                frames += frame(kind: head[0] & 0x0F, flags: head[1], stream: stream, payload)
            }
        }
        return frames
    }

    private static func frame(kind: UInt8, flags: UInt8, stream: Int, _ payload: [UInt8]) -> [UInt8]
    {
        [0, UInt8(payload.count >> 8), UInt8(payload.count & 0xFF), kind, flags]
            + [0, 0, UInt8(stream >> 8), UInt8(stream & 0xFF)] + payload
    }

    /// Makes a header block of `:method GET`, `:scheme http` and `:path /` from HPACK's table, an
    /// authority, and the rest of the input.
    private static func block(_ rest: [UInt8]) -> [UInt8] {
        [0x82, 0x86, 0x84, 0x41, 0x01, UInt8(ascii: "a")] + rest
    }
}
