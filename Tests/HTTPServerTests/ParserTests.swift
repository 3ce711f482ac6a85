import Testing

@testable import HTTPServer

/// The parser as a value: bytes in, events out.
@Suite(.timeLimit(.minutes(1)))
struct ParserTests {
    private let limits = HTTP1Limits(targetBytes: 100, headBytes: 1000, headerCount: 10)

    private func describe(_ event: HTTP1Parser.Event) -> String {
        switch event {
        case .head(let head): "head \(head.method.rawValue) \(head.target)"
        case .end(let body): "end \(String(decoding: body, as: UTF8.self))"
        case .failure(let problem): "failure \(problem.status)"
        }
    }

    private func events(_ parser: inout HTTP1Parser, _ text: String) -> [String] {
        parser.append(text.utf8)
        var found: [String] = []
        while let event = parser.next() { found.append(describe(event)) }
        return found
    }

    @Test func requestsComeOneByOneWhenTheyAreAskedFor() {
        var parser = HTTP1Parser(limits: limits)
        parser.append("GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n".utf8)
        let first = parser.next().map(describe)
        let end = parser.next().map(describe)
        #expect([first, end] == ["head GET /a", "end "])
        #expect(parser.bufferedBytes == 28)
        #expect(parser.next().map(describe) == "head GET /b")
    }

    @Test func itKnowsWhetherARequestHasBegun() {
        var parser = HTTP1Parser(limits: limits)
        #expect(!parser.isInsideRequest)
        #expect(events(&parser, "G").isEmpty)
        #expect(parser.isInsideRequest && parser.isInsideHead)
        let head = events(&parser, "ET / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n")
        #expect(head == ["head GET /"])
        #expect(parser.isInsideRequest && !parser.isInsideHead)
        #expect(events(&parser, "ok") == ["end ok"])
        #expect(!parser.isInsideRequest)
    }

    /// There are thousands of connections, and most of them wait.
    @Test func itKeepsLittleMemoryWhileItWaits() {
        var parser = HTTP1Parser(limits: limits)
        let body = String(repeating: "x", count: 50_000)
        let start = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
        _ = events(&parser, start + body)
        #expect(parser.bodyBytes == 50_000)
        #expect(parser.spareBytes <= HTTP1Parser.keptBytes)
        #expect(events(&parser, body) == ["end " + body + body])
        #expect(parser.spareBytes <= HTTP1Parser.keptBytes)
    }

    @Test func aFailureIsFinal() {
        var parser = HTTP1Parser(limits: limits)
        #expect(events(&parser, "GET /\r\n") == ["failure 400"])
        #expect(events(&parser, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").isEmpty)
        #expect(parser.bufferedBytes == 0)
    }

    @Test func aBodyOfManyChunksIsNotAHeadThatIsTooLarge() {
        var parser = HTTP1Parser(limits: limits)
        let start = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        var found = events(&parser, start)
        for _ in 0..<1000 { found += events(&parser, "1\r\nx\r\n") }
        found += events(&parser, "0\r\n\r\n")
        #expect(found == ["head POST /", "end " + String(repeating: "x", count: 1000)])
    }

    @Test func trailersAreBoundedLikeHeads() {
        var parser = HTTP1Parser(limits: limits)
        let start = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
        var found = events(&parser, start)
        for _ in 0..<300 { found += events(&parser, "X: y\r\n") }
        #expect(found == ["head POST /", "failure 431"])
    }

    @Test func whatLiesBeyondABoundIsNotLookedAt() {
        for (text, failure) in [
            ("GET /" + String(repeating: "a", count: 200) + "\0", "failure 414"),
            ("GET / HTTP/1.1\r\nX: " + String(repeating: "a", count: 1000) + "\n", "failure 431"),
        ] {
            let bytes = Array(text.utf8)
            #expect(run([bytes[...]]) == [failure])
            #expect(run(bytes.indices.map { bytes[$0...$0] }) == [failure])
        }
    }

    @Test func aHeadAsLargeAsItsBoundMayBeFollowedByChunks() {
        var parser = HTTP1Parser(limits: limits)
        let start = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nX: "
        let fill = String(repeating: "a", count: limits.headBytes - start.utf8.count - 4)
        let found = events(&parser, start + fill + "\r\n\r\n2\r\nok\r\n0\r\n\r\n")
        #expect(found == ["head POST /", "end ok"])
    }

    @Test func theBoundOnABodyHoldsForEachRequestAnew() {
        var parser = HTTP1Parser(limits: limits)
        let request = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
        parser.append(request.utf8)
        _ = parser.next()
        parser.maximumBodyBytes = 5
        #expect(parser.next().map(describe) == "end hello")
        parser.append(request.utf8)
        _ = parser.next()
        parser.maximumBodyBytes = 4
        #expect(parser.next().map(describe) == "failure 413")
    }

    /// Mutants of good requests, cut at random: no trap, no body beyond its bound, no event after a
    /// failure, and the same events however the bytes are split.
    @Test func whateverComesIsReadOrRefused() {
        var random = SeededGenerator(seed: 0x5EED)
        let seeds = [
            "GET /a?b=%20c HTTP/1.1\r\nHost: x\r\nX-Y: z\r\nConnection: close\r\n\r\n",
            "POST /e HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n",
            "POST /e HTTP/1.1\r\nHost: [::1]:1\r\nTransfer-Encoding: chunked\r\n\r\n"
                + "5;a=b\r\nhello\r\n3\r\nabc\r\n0\r\nT: u\r\n\r\n",
            "OPTIONS * HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n\r\n",
            "PUT http://a:80/b HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        ].map { Array($0.utf8) }
        let spice = Array("\r\n\t\0 :;,%/0a9-\u{7f}".utf8) + [0xFF]
        var failures = 0
        var wholes = 0
        for _ in 0..<4000 {
            var bytes = seeds[Int(random.below(seeds.count))]
            for _ in 0...random.below(3) {
                let index = random.below(bytes.count)
                switch random.below(4) {
                case 0: bytes[index] = spice[random.below(spice.count)]
                case 1: bytes.insert(spice[random.below(spice.count)], at: index)
                case 2: bytes.remove(at: index)
                default: bytes.insert(contentsOf: bytes[index...].prefix(8), at: index)
                }
            }
            let whole = run([bytes[...]])
            var pieces: [ArraySlice<UInt8>] = []
            var rest = bytes[...]
            while !rest.isEmpty {
                let piece = rest.prefix(1 + random.below(9))
                pieces.append(piece)
                rest = rest.dropFirst(piece.count)
            }
            #expect(run(pieces) == whole)
            let failed = whole.firstIndex { $0.hasPrefix("failure") }
            #expect(failed == nil || failed == whole.count - 1)
            failures += failed == nil ? 0 : 1
            wholes += whole.contains { $0.hasPrefix("end") } ? 1 : 0
        }
        // Otherwise the mutants differ too little, or too much, to show anything.
        #expect(failures > 500 && wholes > 500)
    }

    private func run(_ pieces: [ArraySlice<UInt8>]) -> [String] {
        var parser = HTTP1Parser(limits: limits)
        var found: [String] = []
        for piece in pieces {
            parser.append(piece)
            while let event = parser.next() {
                if case .head = event { parser.maximumBodyBytes = 20 }
                if case .end(let body) = event { #expect(body.count <= 20) }
                found.append(describe(event))
            }
        }
        return found
    }
}
