@testable internal import WebSocket

/// However a client's bytes are cut, the reader gives the same messages, answers and end; it gives
/// nothing after the end, no message beyond the limit, and no text that is not UTF-8.
///
/// The first byte chooses between bytes as they come and a script of frames, which get past the first
/// checks more often than chance would.
func fuzzWebSocket(_ bytes: [UInt8]) {
    guard let kind = bytes.first else { return }
    let rest = bytes.dropFirst()
    let input = kind & 1 == 0 ? Array(rest) : clientFrames(rest)
    let whole = read([input[...]])
    judge(whole, of: input.count)
    for cut in Pieces.allCases {
        let output = read(cut.cut(input))
        require(output == whole, "cut (\(cut)) and whole give other things:\n\(output)\n\(whole)")
    }
}

private let maximumMessageBytes = 512

private func read(_ pieces: [ArraySlice<UInt8>]) -> WebSocketCodec.Output {
    var reader = WebSocketReader(maximumMessageBytes: maximumMessageBytes)
    var all = WebSocketCodec.Output()
    for piece in pieces {
        let output = unsafe piece.withUnsafeBytes { unsafe reader.receive($0) }
        if all.closeCode != nil {
            require(output == WebSocketCodec.Output(), "there is something after the end")
        }
        all.messages += output.messages
        all.pings += output.pings
        all.bytes += output.bytes
        all.closeCode = all.closeCode ?? output.closeCode
    }
    return all
}

private func judge(_ output: WebSocketCodec.Output, of count: Int) {
    for message in output.messages {
        switch message {
        case .binary(let bytes):
            require(bytes.count <= maximumMessageBytes, "a message of \(bytes.count) bytes")
        case .text(let bytes):
            require(bytes.count <= maximumMessageBytes, "a text of \(bytes.count) bytes")
            require(
                String(validating: bytes, as: UTF8.self) != nil,
                "a text that is not UTF-8"
            )
        }
    }
    // A header has six bytes, and so has the shortest frame.
    require(output.messages.count + output.pings <= count / 6, "messages out of nothing")
    require(output.bytes.count <= count + 4, "more is answered than was sent")
    var rest = output.bytes[...]
    var pongs = 0
    while let first = rest.first {
        let length = Int(rest.dropFirst().first ?? 255)
        require(length <= 125 && rest.count >= 2 + length, "an answer is not a whole frame")
        let payload = rest.dropFirst(2).prefix(length)
        rest = rest.dropFirst(2 + length)
        switch first {
        case 0x8a: pongs += 1
        case 0x88:
            require(rest.isEmpty, "a close frame is not the last")
            require(length != 1, "half a code")
            let code = payload.prefix(2).reduce(0) { $0 << 8 | Int($1) }
            require(length == 0 || code == output.closeCode, "another code is sent")
            require(length > 0 || output.closeCode == 1005, "a code is missing")
        default: require(false, "an answer of the kind \(first)")
        }
    }
    require(pongs == output.pings, "\(output.pings) pings have \(pongs) pongs")
    if let code = output.closeCode {
        require((1000...1011).contains(code) || (3000...4999).contains(code), "the code \(code)")
        require(output.bytes.contains(0x88), "an end without a close frame")
    }
}

/// Each frame takes a byte for FIN and opcode, one for its form, one for the length, and that.
private func clientFrames(_ script: ArraySlice<UInt8>) -> [UInt8] {
    var frames: [UInt8] = []
    var rest = script
    while rest.count >= 3, frames.count < 8192 {
        let head = Array(rest.prefix(3))
        rest = rest.dropFirst(3)
        let payload = Array(rest.prefix(Int(head[2])))
        rest = rest.dropFirst(payload.count)
        let repeats = head[1] & 0x70 == 0x70 ? 300 : 1
        let isControl = head[0] & 0x08 != 0
        for _ in 0..<repeats {
            // Reserved bits rarely.
            frames.append(head[1] & 0x0f == 0x0f ? head[0] : head[0] & 0x8f)
            let mask: UInt8 = head[1] & 0x0f == 0x0e ? 0 : 0x80
            if payload.count > 125, !isControl || head[1] & 0x0f == 0x0d {
                frames += [mask | 126, 0, UInt8(payload.count)]
            } else {
                frames.append(mask | UInt8(min(payload.count, 125)))
            }
            let sent = isControl ? payload.prefix(125) : payload[...]
            if mask == 0 {
                frames += sent
            } else {
                let key: [UInt8] = [head[1], 0x55, head[2], 0xaa]
                frames += key
                frames += sent.enumerated().map { $1 ^ key[$0 % 4] }
            }
        }
    }
    return frames
}
