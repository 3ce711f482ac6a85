import Compression
import HTTPServer
import Observability
import Support
import Synchronization
import Testing

/// Compressed request bodies.
@Suite(.timeLimit(.minutes(1)))
struct BodyCodingTests {
    private let text = Array(String(repeating: "carillon ", count: 1000).utf8)

    private func post(_ body: [UInt8], _ lines: String...) -> [UInt8] {
        let head =
            (["POST /echo HTTP/1.1", "Host: a", "Content-Length: \(body.count)"] + lines)
            .joined(separator: "\r\n")
        return Array("\(head)\r\n\r\n".utf8) + body
    }

    @Test(arguments: Compression.allCases)
    func aHandlerSeesWhatWasMeant(_ coding: Compression) async throws {
        try await withServer { server in
            let packed = try coding.compress(text)
            let request = post(packed, "Content-Encoding: \(coding.rawValue.uppercased())")
            let found = try replies(try await server.exchange(request + post(text)))
            #expect(found.map(\.status) == [200, 200])
            #expect(found.allSatisfy { Array($0.body.utf8) == text })

            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(
                requestHead(
                    1,
                    "POST",
                    "/echo",
                    ends: false,
                    [("content-encoding", coding.rawValue)]
                ),
                Frame(.data, flags: Frame.endStream, stream: 1, packed)
            )
            #expect(try await wire.body(of: 1) == String(decoding: text, as: UTF8.self))
        }
    }

    /// The bound is that of the route, before and after decompression.
    @Test(arguments: Compression.allCases)
    func aBombIsRefusedAndTheConnectionServesOn(_ coding: Compression) async throws {
        try await withServer(configure: { $0.maximumBodyBytes = 8000 }) { server in
            let bomb = try coding.compress([UInt8](repeating: 0, count: 1 << 20))
            #expect(bomb.count < 8000)
            let request = post(bomb, "Content-Encoding: \(coding.rawValue)")
            let found = try replies(try await server.exchange(request + post([1, 2])))
            #expect(found.map(\.status) == [413, 200])
        }
    }

    /// A large body is inflated off the loop.
    @Test func elsewhere() async throws {
        try await withServer(
            configure: { $0.maximumBodyBytes = 20_000 },
            routes: { router, _ in
                router.givesBodiesAsSent = true
                router.on(.post, "/elsewhere") { request in
                    var request = request
                    let times = Mutex(0)
                    try await request.decodeBody { inflate in
                        times.withLock { $0 += 1 }
                        return try inflate()
                    }
                    var response = HTTPServerResponse(status: 200, body: request.body)
                    response.headers["X-Times"] = String(times.withLock { $0 })
                    response.headers["X-Coding"] = request.header("content-encoding") ?? "none"
                    response.headers["X-Length"] = request.header("content-length") ?? "none"
                    return response
                }
            },
            { server in
                func send(_ body: [UInt8], _ coding: String) -> [UInt8] {
                    let head =
                        "POST /elsewhere HTTP/1.1\r\nHost: a\r\nContent-Length: \(body.count)\r\n"
                    return Array("\(head)\(coding)\r\n".utf8) + body
                }
                let packed = try Compression.gzip.compress(text)
                let bomb = try Compression.gzip.compress([UInt8](repeating: 0, count: 1 << 20))
                let gzip = "Content-Encoding: gzip\r\n"
                let found = try replies(
                    try await server.exchange(
                        send(packed, gzip) + send(text, "") + send(bomb, gzip) + send([1], gzip)
                    )
                )
                #expect(found.map(\.status) == [200, 200, 413, 400])
                for (reply, times) in zip(found, ["1", "0"]) {
                    #expect(Array(reply.body.utf8) == text)
                    let head = reply.head.lowercased()
                    #expect(head.contains("x-times: \(times)"))
                    #expect(head.contains("x-coding: none"))
                    #expect(head.contains("x-length: \(text.count)"))
                }
            }
        )
    }

    /// SDKs declare gzip and send plain text, or send gzip without declaring it.
    @Test func theBytesMaySayMoreThanTheHeader() async throws {
        try await withServer(
            configure: { $0.maximumBodyBytes = 20_000 },
            routes: { router, _ in
                router.givesBodiesAsSent = true
                router.on(.post, "/echo") { request in
                    HTTPServerResponse(status: 200, body: try request.bodyByItsBytes())
                }
            }
        ) { server in
            let packed = try Compression.gzip.compress(text)
            let bomb = try Compression.gzip.compress([UInt8](repeating: 0, count: 1 << 20))
            let found = try replies(
                try await server.exchange(
                    post(packed) + post(text, "Content-Encoding: gzip")
                        + post(packed, "Content-Encoding: gzip") + post(bomb)
                )
            )
            #expect(found.map(\.status) == [200, 200, 200, 413])
            #expect(found[..<3].allSatisfy { Array($0.body.utf8) == text })
        }
    }

    @Test func whatIsNoneOrNotOursIsRefused() async throws {
        try await withServer { server in
            let packed = try Compression.gzip.compress(text)
            let cases: [([UInt8], Int)] = [
                (post(text, "Content-Encoding: gzip"), 400),
                (post(text, "Content-Encoding: zstd"), 400),
                (post(packed.dropLast(4) + [], "Content-Encoding: gzip"), 400),
                (post(packed, "Content-Encoding: br"), 415),
                (post(packed, "Content-Encoding: gzip, gzip"), 415),
                (post(packed, "Content-Encoding: gzip", "Content-Encoding: gzip"), 415),
                (post(text, "Content-Encoding: identity"), 200),
                (post(text, "Content-Encoding: utf-8"), 200),
                (post(text, "Content-Encoding: UTF-8"), 200),
                (post(packed, "Content-Encoding: utf-8, gzip"), 415),
                (post([], "Content-Encoding: gzip"), 200),
            ]
            for (request, status) in cases {
                let found = try replies(try await server.exchange(request))
                #expect(found.map(\.status) == [status])
                let accepts = found.first?.head.contains("Accept-Encoding: gzip, zstd")
                #expect(accepts == (status == 415))
            }
        }
    }
    /// A handler that authenticates first inflates nothing for an unknown client.
    @Test func aBodyIsLeftAsItWasSentUntilItsHandlerAsks() async throws {
        let budget = 100_000
        try await withServer {
            $0.maximumBodyBytes = 60_000
            $0.maximumHeldBodyBytes = budget
        } routes: { router, _ in
            router.givesBodiesAsSent = true
            router.on(.post, "/echo") { request in
                guard request.header("x-key") == "right" else {
                    return .text("\(request.body.count)", status: 401)
                }
                var request = request
                try request.decodeBody()
                #expect(!request.isBodyCoded)
                #expect(request.header("content-length") == "\(request.body.count)")
                return HTTPServerResponse(status: 200, body: request.body)
            }
        } _: { server in
            let coded = "Content-Encoding: gzip"
            let packed = try Compression.gzip.compress(text)
            let bomb = try Compression.gzip.compress([UInt8](repeating: 0, count: 1 << 20))
            let broken = [UInt8](repeating: 7, count: 100)
            for body in [packed, bomb, broken] {
                let stranger = try replies(try await server.exchange(post(body, coded)))
                #expect(stranger.map(\.status) == [401])
                #expect(stranger.map(\.body) == ["\(body.count)"])
            }
            let cases: [([UInt8], String, Int)] = [
                (packed, coded, 200), (bomb, coded, 413), (broken, coded, 400),
                (packed, "Content-Encoding: br", 415), (text, "Content-Encoding: identity", 200),
                ([], coded, 200),
            ]
            for (body, line, status) in cases {
                let request = post(body, line, "X-Key: right")
                let found = try replies(try await server.exchange(request))
                #expect(found.map(\.status) == [status])
                if status == 200, !body.isEmpty { #expect(found[0].body.utf8.elementsEqual(text)) }
            }
            for status in [413, 400, 415] {
                let refused = server.metrics.counter(.httpRefused, ["reason": "\(status)"])
                #expect(refused.value == 1)
            }
        }
    }

    /// Inflated bytes count against the budget like sent ones.
    @Test func whatAHandlerInflatesIsHeldUntilItEnds() async throws {
        let (decoded, ends) = AsyncStream.makeStream(of: Void.self)
        let gate = Gate()
        try await withServer {
            $0.maximumHeldBodyBytes = 100_000
        } routes: { router, _ in
            router.givesBodiesAsSent = true
            router.on(.post, "/echo") { request in
                var request = request
                try request.decodeBody()
                ends.yield()
                await gate.wait()
                return .text("\(request.body.count)")
            }
        } _: { server in
            let packed = try Compression.gzip.compress([UInt8](repeating: 0, count: 60_000))
            let request = post(packed, "Content-Encoding: gzip")
            async let first = server.exchange(request)
            for await _ in decoded { break }
            #expect(try replies(try await server.exchange(request)).map(\.status) == [503])
            await gate.open()
            #expect(try replies(try await first).map(\.body) == ["60000"])
            #expect(try replies(try await server.exchange(request)).map(\.status) == [200])
        }
    }
}
