import Support
import Testing

@testable import HTTPServer

/// The reader of a client's frames, beside the cases of the Autobahn test suite, whose numbers are
/// given. Each input is read whole, byte by byte, and in pieces of seven: the result is the same.
@Suite(.timeLimit(.minutes(1)))
struct WebSocketReaderTests {
    private typealias Output = WebSocketCodec.Output

    private func read(_ bytes: [UInt8], inPiecesOf size: Int, limit: Int) throws -> Output {
        var reader = WebSocketReader(maximumMessageBytes: limit)
        var all = Output()
        var rest = bytes[...]
        while !rest.isEmpty {
            let piece = rest.prefix(size)
            rest = rest.dropFirst(size)
            let output = unsafe piece.withUnsafeBytes { unsafe reader.receive($0) }
            if all.closeCode != nil { #expect(output == Output(), "something after the end") }
            all.messages += output.messages
            all.pings += output.pings
            all.bytes += output.bytes
            all.closeCode = all.closeCode ?? output.closeCode
        }
        return all
    }

    private func read(_ bytes: [UInt8], limit: Int = 1 << 20) throws -> Output {
        let whole = try read(bytes, inPiecesOf: max(1, bytes.count), limit: limit)
        for size in [1, 7, 4096] {
            let cut = try read(bytes, inPiecesOf: size, limit: limit)
            #expect(cut == whole, "in pieces of \(size)")
        }
        return whole
    }

    private func read(_ frames: SocketFrame..., limit: Int = 1 << 20) throws -> Output {
        try read(frames.flatMap { $0.bytes() }, limit: limit)
    }

    private func expectMessages(
        _ messages: WebSocketMessage...,
        from frames: SocketFrame...,
        pongs: [[UInt8]] = [],
        at location: SourceLocation = #_sourceLocation
    ) throws {
        let output = try read(frames.flatMap { $0.bytes() })
        #expect(output.messages == messages, sourceLocation: location)
        #expect(output.closeCode == nil, sourceLocation: location)
        #expect(output.pings == pongs.count, sourceLocation: location)
        #expect(
            try SocketFrame.all(in: output.bytes)
                == pongs.map { SocketFrame(SocketFrame.pong, $0) },
            sourceLocation: location
        )
    }

    /// Expects that the frames end the connection with a close frame of that code.
    private func expectFailure(
        _ code: Int,
        after messages: [WebSocketMessage] = [],
        from bytes: [UInt8],
        limit: Int = 1 << 20,
        at location: SourceLocation = #_sourceLocation
    ) throws {
        // Nothing is read after the failure.
        let late = SocketFrame.text("late").bytes()
        let output = try read(bytes + late, limit: limit)
        #expect(output.messages == messages, sourceLocation: location)
        #expect(output.closeCode == code, sourceLocation: location)
        let last = try SocketFrame.all(in: output.bytes).last
        #expect(last?.closeCode == code, sourceLocation: location)
    }

    private func expectFailure(
        _ code: Int,
        after messages: [WebSocketMessage] = [],
        from frames: SocketFrame...,
        limit: Int = 1 << 20,
        at location: SourceLocation = #_sourceLocation
    ) throws {
        try expectFailure(
            code,
            after: messages,
            from: frames.flatMap { $0.bytes() },
            limit: limit,
            at: location
        )
    }

    private func text(_ text: String) -> WebSocketMessage { .text(Array(text.utf8)) }

    // MARK: Messages

    /// Cases 1.1.1 to 1.2.8.
    @Test(arguments: [0, 1, 125, 126, 127, 128, 65_535, 65_536, 100_000])
    func messagesOfEveryLengthFormAreRead(_ size: Int) throws {
        let bytes = [UInt8](repeating: UInt8(ascii: "*"), count: size)
        for (opcode, message) in [
            (SocketFrame.text, WebSocketMessage.text(bytes)),
            (SocketFrame.binary, .binary(bytes)),
        ] {
            let output = try read(SocketFrame(opcode, bytes))
            #expect(output == Output(messages: [message]))
        }
    }

    @Test func everyMaskIsUndone() throws {
        for mask: [UInt8] in [[0, 0, 0, 0], [255, 255, 255, 255], [1, 2, 3, 4]] {
            let output = try read(SocketFrame.text("Grüße, 世界").bytes(mask: mask))
            #expect(output.messages == [text("Grüße, 世界")])
        }
    }

    @Test func aMessageAsLargeAsTheLimitIsRead() throws {
        let bytes = [UInt8](repeating: 120, count: 1000)
        #expect(
            try read(SocketFrame(SocketFrame.binary, bytes), limit: 1000).messages
                == [.binary(bytes)]
        )
        try expectFailure(1009, from: SocketFrame(SocketFrame.binary, bytes + [1]), limit: 1000)
        // The sum of the frames counts.
        try expectFailure(
            1009,
            from: SocketFrame(SocketFrame.binary, bytes, isFinal: false),
            SocketFrame(SocketFrame.continuation, [1]),
            limit: 1000
        )
    }

    /// A header alone can claim any length: memory is allocated for the limit at most.
    @Test func anEnormousLengthIsRefused() throws {
        for length: [UInt8] in [
            [0, 0, 0, 1, 0, 0, 0, 0], [0x7f, 255, 255, 255, 255, 255, 255, 255],
        ] {
            let bytes = [0x82, 0xff] + length + [0, 0, 0, 0, 1]
            let output = try read(bytes, limit: 8192)
            #expect(output.closeCode == 1009)
        }
        // The highest bit of a length must be 0.
        let negative: [UInt8] = [0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
        #expect(try read(negative).closeCode == 1002)
    }

    /// RFC 6455 section 5.2: the minimal number of bytes must be used.
    @Test func aLengthInMoreBytesThanNeededIsRefused() throws {
        for (size, lengthBytes) in [(5, 2), (125, 2), (5, 8), (65_535, 8)] {
            let frame = SocketFrame(SocketFrame.binary, [UInt8](repeating: 1, count: size))
            try expectFailure(1002, from: frame.bytes(lengthBytes: lengthBytes))
        }
    }

    // MARK: Control frames

    /// Cases 2.1 to 2.9.
    @Test func pingsAreAnsweredWithTheirPayload() throws {
        try expectMessages(from: SocketFrame(SocketFrame.ping), pongs: [[]])
        let binary: [UInt8] = [0, 255, 254, 253, 252, 251, 0, 255]
        try expectMessages(from: SocketFrame(SocketFrame.ping, binary), pongs: [binary])
        let largest = [UInt8](repeating: 254, count: 125)
        try expectMessages(from: SocketFrame(SocketFrame.ping, largest), pongs: [largest])
        try expectFailure(1002, from: SocketFrame(SocketFrame.ping, largest + [1]))
        // Pongs that nobody asked for.
        try expectMessages(
            from: SocketFrame(SocketFrame.pong),
            SocketFrame(SocketFrame.pong, binary),
            SocketFrame(SocketFrame.ping, [1]),
            pongs: [[1]]
        )
    }

    /// Cases 2.10 and 2.11.
    @Test func manyPingsAreAnsweredInOrder() throws {
        let payloads = (0..<10).map { [UInt8(ascii: "0") + UInt8($0)] }
        let output = try read(
            payloads.flatMap { SocketFrame(SocketFrame.ping, $0).bytes() }
        )
        #expect(output.pings == 10)
        #expect(
            try SocketFrame.all(in: output.bytes)
                == payloads.map { SocketFrame(SocketFrame.pong, $0) }
        )
    }

    // MARK: Reserved bits and opcodes

    /// Cases 3.1 to 3.7.
    @Test(arguments: 1...7 as ClosedRange<UInt8>)
    func reservedBitsAreRefused(_ bits: UInt8) throws {
        let hello = text("hello")
        for frame in [
            SocketFrame(SocketFrame.text, [33], reservedBits: bits),
            SocketFrame(SocketFrame.binary, [33], reservedBits: bits),
            SocketFrame(SocketFrame.text, reservedBits: bits),
            SocketFrame(SocketFrame.ping, [33], reservedBits: bits),
            SocketFrame(SocketFrame.ping, reservedBits: bits),
            SocketFrame(SocketFrame.close, reservedBits: bits),
        ] {
            try expectFailure(1002, after: [hello], from: .text("hello"), frame)
        }
    }

    /// Cases 4.1.1 to 4.2.5.
    @Test(arguments: [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] as [UInt8])
    func reservedOpcodesAreRefused(_ opcode: UInt8) throws {
        for payload in [[], Array("reserved".utf8)] {
            try expectFailure(
                1002,
                after: [text("hello")],
                from: .text("hello"),
                SocketFrame(opcode, payload)
            )
        }
    }

    // MARK: Fragments

    /// Cases 5.1 and 5.2.
    @Test(arguments: [SocketFrame.ping, SocketFrame.pong, SocketFrame.close])
    func controlFramesAreNotFragmented(_ opcode: UInt8) throws {
        try expectFailure(
            1002,
            from: SocketFrame(opcode, isFinal: false),
            SocketFrame(SocketFrame.continuation)
        )
    }

    /// Cases 5.3 to 5.5, 5.19 and 5.20.
    @Test func fragmentsAreJoinedAroundControlFrames() throws {
        try expectMessages(
            text("fragment1fragment2"),
            from: .text("fragment1", isFinal: false),
            .rest("fragment2")
        )
        try expectMessages(
            text("fragment1fragment2"),
            from: .text("fragment1", isFinal: false),
            SocketFrame(SocketFrame.ping, Array("in between".utf8)),
            .rest("fragment2"),
            pongs: [Array("in between".utf8)]
        )
        try expectMessages(
            text("12345"),
            from: .text("1", isFinal: false),
            .rest("2", isFinal: false),
            SocketFrame(SocketFrame.ping, [1]),
            SocketFrame(SocketFrame.pong, [9]),
            .rest("3", isFinal: false),
            .rest("4", isFinal: false),
            SocketFrame(SocketFrame.ping, [2]),
            .rest("5"),
            pongs: [[1], [2]]
        )
    }

    /// Cases 5.9 to 5.18.
    @Test func fragmentsOutOfOrderAreRefused() throws {
        for isFinal in [true, false] {
            // Nothing to continue.
            try expectFailure(1002, from: .rest("x", isFinal: isFinal), .text("hello"))
            try expectFailure(
                1002,
                after: [text("ab")],
                from: .text("a", isFinal: false),
                .rest("b"),
                .rest("x", isFinal: isFinal)
            )
            // A message within another.
            try expectFailure(
                1002,
                from: .text("a", isFinal: false),
                .text("b", isFinal: isFinal)
            )
            try expectFailure(
                1002,
                from: .text("a", isFinal: false),
                SocketFrame(SocketFrame.binary, [1], isFinal: isFinal)
            )
        }
    }

    /// Cases 6.1.1 to 6.1.3.
    @Test func emptyFragmentsAreAllowed() throws {
        try expectMessages(text(""), from: .text(""))
        try expectMessages(
            text(""),
            from: .text("", isFinal: false),
            .rest("", isFinal: false),
            .rest("")
        )
        try expectMessages(
            text("middle"),
            from: .text("", isFinal: false),
            .rest("middle", isFinal: false),
            .rest("")
        )
    }

    @Test func theFramesOfAMessageAreLimited() throws {
        let most = WebSocketReader.maximumFramesPerMessage
        func frames(_ count: Int) -> [UInt8] {
            SocketFrame.text("x", isFinal: false).bytes()
                + (2..<count).flatMap { _ in SocketFrame.rest("x", isFinal: false).bytes() }
                + SocketFrame.rest("x").bytes()
        }
        let whole = try read(frames(most) + frames(most))
        let message = text(String(repeating: "x", count: most))
        #expect(whole == Output(messages: [message, message]))
        try expectFailure(1008, from: frames(most + 1))
    }

    // MARK: UTF-8

    /// Cases 6.2.1 to 6.2.4 and 6.5.1 to 6.11.5: valid texts, also cut within characters.
    @Test(arguments: [
        "Hello-µ@ßöäüàá-UTF-8!!", "κόσμε", "\u{0}", "\u{80}", "\u{800}", "\u{10000}", "\u{7f}",
        "\u{7ff}", "\u{ffff}", "\u{10ffff}", "\u{d7ff}", "\u{e000}", "\u{fffd}", "\u{fffe}",
        "\u{1fffe}",
    ])
    func validTextsAreRead(_ valid: String) throws {
        try expectMessages(text(valid), from: .text(valid))
        let bytes = Array(valid.utf8)
        var frames: [UInt8] = SocketFrame(SocketFrame.text, isFinal: false).bytes()
        for byte in bytes {
            frames += SocketFrame(SocketFrame.continuation, [byte], isFinal: false).bytes()
        }
        frames += SocketFrame(SocketFrame.continuation).bytes()
        #expect(try read(frames) == Output(messages: [text(valid)]))
    }

    /// Cases 6.3.1 to 6.4.4 and 6.12.1 to 6.23.7: surrogates, overlong forms, code points beyond the
    /// last, lone and missing continuation bytes.
    @Test(
        arguments: [
            [0xce, 0xba, 0xe1, 0xbd, 0xb9, 0xcf, 0x83, 0xed, 0xa0, 0x80, 0x65, 0x64], [0x80],
            [0xbf],
            [0x80, 0xbf], [0xc0, 0x20], [0xe0, 0x80, 0x20], [0xf0, 0x80, 0x80, 0x20], [0xc0],
            [0xe0, 0x80],
            [0xef, 0xbf], [0xf7, 0xbf, 0xbf], [0xfe], [0xff], [0xc0, 0xaf], [0xe0, 0x80, 0xaf],
            [0xf0, 0x80, 0x80, 0xaf], [0xf8, 0x88, 0x80, 0x80, 0x80], [0xc1, 0xbf],
            [0xe0, 0x9f, 0xbf],
            [0xf0, 0x8f, 0xbf, 0xbf], [0xed, 0xa0, 0x80], [0xed, 0xad, 0xbf], [0xed, 0xbf, 0xbf],
            [0xf4, 0x90, 0x80, 0x80], [0xfc, 0x84, 0x80, 0x80, 0x80, 0x80],
        ] as [[UInt8]]
    )
    func invalidTextsAreRefused(_ bytes: [UInt8]) throws {
        try expectFailure(1007, from: SocketFrame(SocketFrame.text, bytes))
        try expectFailure(
            1007,
            from: SocketFrame(SocketFrame.text, Array("κ".utf8), isFinal: false),
            SocketFrame(SocketFrame.continuation, bytes, isFinal: true)
        )
        // As a binary message they are not text.
        #expect(try read(SocketFrame(SocketFrame.binary, bytes)).messages == [.binary(bytes)])
    }

    /// Case 6.4.1: an invalid text fails before its message is whole.
    @Test func anInvalidTextIsRefusedAtOnce() throws {
        try expectFailure(1007, from: SocketFrame(SocketFrame.text, [0xf4, 0x90], isFinal: false))
    }

    // MARK: Close

    /// Cases 7.1.1 to 7.1.6: nothing is read after a close frame.
    @Test func nothingIsReadAfterAClose() throws {
        let output = try read(
            .text("hello"),
            .close(1000),
            .text("more"),
            SocketFrame(SocketFrame.ping),
            .close(1000)
        )
        #expect(output.messages == [text("hello")])
        #expect(output.pings == 0)
        #expect(try SocketFrame.all(in: output.bytes) == [.close(1000)])
        #expect(output.closeCode == 1000)
        // Also not the rest of a message that has begun.
        let within = try read(.text("a", isFinal: false), .close(1001), .rest("b"))
        #expect(within.messages == [])
        #expect(within.closeCode == 1001)
    }

    /// Cases 7.3.1 and 7.3.3 to 7.3.5.
    @Test func aCloseIsEchoed() throws {
        let empty = try read(SocketFrame(SocketFrame.close))
        #expect(empty.closeCode == 1005)
        #expect(try SocketFrame.all(in: empty.bytes) == [SocketFrame(SocketFrame.close)])
        for reason in ["", "Hello World!", "κόσμε", String(repeating: "*", count: 123)] {
            let output = try read(.close(1000, Array(reason.utf8)))
            #expect(output.closeCode == 1000)
            #expect(try SocketFrame.all(in: output.bytes) == [.close(1000, Array(reason.utf8))])
        }
    }

    /// Cases 7.3.2, 7.3.6 and 7.5.1.
    @Test func malformedCloseFramesAreRefused() throws {
        try expectFailure(1002, from: SocketFrame(SocketFrame.close, [3]))
        try expectFailure(1002, from: .close(1000, [UInt8](repeating: 42, count: 124)))
        try expectFailure(1007, from: .close(1000, [0xce, 0xba, 0xed, 0xa0, 0x80]))
        try expectFailure(1007, from: .close(1000, [0xc3]))
    }

    /// Cases 7.7.1 to 7.7.13.
    @Test(arguments: [
        1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999,
    ])
    func validCloseCodesAreEchoed(_ code: Int) throws {
        let output = try read(.close(code))
        #expect(output.closeCode == code)
        #expect(try SocketFrame.all(in: output.bytes) == [.close(code)])
    }

    /// Cases 7.9.1 to 7.9.9 and 7.13.1.
    @Test(arguments: [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535])
    func invalidCloseCodesAreRefused(_ code: Int) throws {
        try expectFailure(1002, from: .close(code))
        try expectFailure(1002, from: .close(code, Array("reason".utf8)))
    }

    // MARK: Masks

    @Test(arguments: [SocketFrame.text, SocketFrame.binary, SocketFrame.ping, SocketFrame.close])
    func framesWithoutAMaskAreRefused(_ opcode: UInt8) throws {
        for payload in [[], [65], [UInt8](repeating: 65, count: 125)] as [[UInt8]] {
            let plain = SocketFrame(opcode, payload).bytes(mask: nil)
            try expectFailure(1002, from: plain)
            // Messages before it are read.
            try expectFailure(
                1002,
                after: [text("hello")],
                from: SocketFrame.text("hello").bytes() + plain
            )
        }
        let rest = SocketFrame.rest("b").bytes(mask: nil)
        try expectFailure(1002, from: SocketFrame.text("a", isFinal: false).bytes() + rest)
    }

    // MARK: Our own frames

    @Test(arguments: [0, 1, 125, 126, 65_535, 65_536, 70_000])
    func ourFramesHaveTheShortestLength(_ size: Int) throws {
        let bytes = [UInt8](repeating: 7, count: size)
        #expect(
            try SocketFrame.all(in: WebSocketFrame.binary(bytes).bytes)
                == [SocketFrame(SocketFrame.binary, bytes)]
        )
        #expect(
            try SocketFrame.all(in: WebSocketFrame.text(bytes).bytes)
                == [SocketFrame(SocketFrame.text, bytes)]
        )
    }

    @Test func aReasonIsCutBetweenCharacters() throws {
        let frame = WebSocketFrame.close(1001, String(repeating: "é", count: 100))
        let reason = String(repeating: "é", count: 61)
        #expect(try SocketFrame.all(in: frame.bytes) == [.close(1001, Array(reason.utf8))])
    }
}
