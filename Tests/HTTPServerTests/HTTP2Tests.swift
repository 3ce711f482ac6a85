import EventLoop
import HTTP2
import HTTPServer
import Support
import Testing

/// HTTP/2 by prior knowledge on the plain port, frame by frame over a socket.
@Suite(.timeLimit(.minutes(1)))
struct HTTP2Tests {
    @Test func streamsAreServedSideBySide() async throws {
        try await withServer { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(
                requestHead(1, "GET", "/slow"),
                requestHead(3, "GET", "/hello/x")
            )
            #expect(try await wire.body(of: 3) == "hello x")
            #expect(try await wire.body(of: 1) == "slow")
        }
    }

    @Test("An unreadable request is refused in the form of the surface that its path names")
    func unreadableTargetsAreRefusedByTheirSurface() async throws {
        try await withServer(routes: { router, _ in
            router.errorResponse = { error, request in
                .text("mine \(request.path)", status: (error as? HTTPProblem)?.status ?? 500)
            }
        }) { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(requestHead(1, "GET", "/mine/%zz"))
            #expect(try await wire.body(of: 1) == "mine /mine/-")
        }
    }

    @Test func aScriptedGoawayNamesItsLastStreamAndItsReason() async throws {
        try await withServer(routes: { router, _ in
            router.on(.get, "/goaway") { request in
                HTTPServerResponse(
                    status: 200,
                    body: Array("last".utf8),
                    ending: {
                        $0.answer()
                        $0.goaway(
                            lastStreamID: request.streamID,
                            code: 0,
                            data: Array(#"{"reason":"Shutdown"}"#.utf8)
                        )
                    }
                )
            }
            router.on(.get, "/hang") { _ in HTTPServerResponse(status: 200, ending: { _ in }) }
        }) { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(requestHead(1, "GET", "/goaway"), requestHead(3, "GET", "/hang"))
            let goaway = try await wire.next(.goaway)
            #expect(goaway.number(at: 0) == 1)
            #expect(goaway.number(at: 4) == 0)
            #expect(
                String(decoding: goaway.payload[8...], as: UTF8.self)
                    == #"{"reason":"Shutdown"}"#
            )
            #expect(try await wire.body(of: 1) == "last")
            // Stream 3 is beyond it, so there is nothing left to wait for.
            #expect(try await wire.rest().allSatisfy { $0.stream != 3 || $0.isA(.reset) })
        }
    }

    @Test func aGoawayFromOutsideLetsNamedStreamsFinish() async throws {
        try await withServer { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(requestHead(1, "GET", "/hello/x"))
            _ = try await wire.body(of: 1)
            try await wire.send(requestHead(3, "GET", "/slow"))
            try await wire.send(Frame(.ping, [0, 0, 0, 0, 0, 0, 0, 1]))
            _ = try await wire.next(.ping)
            server.server.goaway(connection: nil, code: 11, data: Array("{}".utf8))
            let goaway = try await wire.next(.goaway)
            #expect(goaway.number(at: 0) == 3)
            #expect(goaway.number(at: 4) == 11)
            #expect(try await wire.body(of: 3) == "slow")
            #expect(try await wire.rest().allSatisfy { !$0.isA(.goaway) && !$0.isA(.reset) })
        }
    }

    @Test func aResetHasItsCode() async throws {
        try await withServer(routes: { router, _ in
            router.on(.get, "/") { _ in
                HTTPServerResponse(status: 200, ending: { $0.reset(code: 7) })
            }
            router.on(.get, "/fine") { _ in .text("fine") }
        }) { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(requestHead(1, "GET", "/"))
            #expect(try await wire.next(.reset, stream: 1).number(at: 0) == 7)
            try await wire.send(requestHead(3, "GET", "/fine"))
            #expect(try await wire.body(of: 3) == "fine")

            let plain = try Wire(port: server.port)
            defer { plain.close() }
            try await plain.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await #expect(throws: TestFailure.self) { _ = try await plain.receiveAll() }
        }
    }

    @Test func anAnswerThatNeverComesHoldsUpNeitherOthersNorAStop() async throws {
        try await withServer(routes: { router, _ in
            router.on(.get, "/hang") { _ in HTTPServerResponse(status: 200, ending: { _ in }) }
            router.on(.get, "/fine") { _ in .text("fine") }
        }) { server in
            let wire = try await FrameWire(port: server.port)
            try await wire.send(requestHead(1, "GET", "/hang"), requestHead(3, "GET", "/fine"))
            #expect(try await wire.body(of: 3) == "fine")
            let plain = try Wire(port: server.port)
            defer { plain.close() }
            try await plain.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
            let start = ContinuousClock.now
            async let stopped: Void = server.server.stop(within: .seconds(30))
            #expect(try await wire.rest().allSatisfy { $0.stream != 1 })
            wire.close()
            await stopped
            #expect(ContinuousClock.now - start < .seconds(10))
        }
    }

    @Test func theNumberOfStreamsChangesAtRunTime() async throws {
        try await withServer(configure: { $0.http2.maxConcurrentStreams = 7 }) { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            let first = try await wire.next(.settings)
            #expect(first.payload.starts(with: [0, 3, 0, 0, 0, 7]))
            try await wire.send(requestHead(1, "GET", "/hello/x"))
            _ = try await wire.body(of: 1)
            server.server.setMaxConcurrentStreams(1)
            var changed = try await wire.next(.settings)
            // The acknowledgement of ours comes in between.
            if changed.payload.isEmpty { changed = try await wire.next(.settings) }
            #expect(changed.payload == [0, 3, 0, 0, 0, 1])
            let later = try await FrameWire(port: server.port)
            defer { later.close() }
            #expect(
                try await later.next(.settings).payload.starts(with: [0, 3, 0, 0, 0, 1])
            )
        }
    }

    /// A connection that may use more streams than others does not count as a flood.
    @Test func aConnectionMayUseTheStreamsThatItWasAllowed() async throws {
        let count = 300
        try await withServer(routes: { router, loop in
            let together = Gathering(of: count)
            router.on(.get, "/who") { .text(String($0.connectionID)) }
            router.on(.get, "/together") { _ in
                together.add()
                while !together.isComplete { try await loop.sleep(for: .milliseconds(5)) }
                return .text("together")
            }
        }) { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(requestHead(1, "GET", "/who"))
            let connection = try #require(Int(try await wire.body(of: 1)))
            server.server.setMaxConcurrentStreams(1000, connection: connection)
            while try await wire.next(.settings).payload != [0, 3, 0, 0, 3, 232] {}
            for index in 1...count {
                try await wire.send(requestHead(2 * index + 1, "GET", "/together"))
            }
            #expect(try await wire.body(of: 2 * count + 1) == "together")
        }
    }

    @Test func aBodyBeyondTheLimitIsAnsweredOnItsStreamAlone() async throws {
        try await withServer(configure: { $0.maximumBodyBytes = 10 }) { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(
                requestHead(1, "POST", "/echo", ends: false),
                Frame(.data, stream: 1, Array(repeating: 0, count: 11))
            )
            #expect(try await wire.body(of: 1).contains("413"))
            try await wire.send(requestHead(3, "GET", "/hello/x"))
            #expect(try await wire.body(of: 3) == "hello x")
        }
    }

    @Test func bodiesOfOneConnectionShareABound() async throws {
        try await withServer(configure: { $0.http2.maximumBufferedBytes = 20 }) { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(
                requestHead(1, "POST", "/echo", ends: false),
                Frame(.data, stream: 1, Array(repeating: 1, count: 15)),
                requestHead(3, "POST", "/echo", ends: false),
                Frame(.data, stream: 3, Array(repeating: 1, count: 15))
            )
            let reset = try await wire.next(.reset)
            #expect(reset.stream == 3)
            #expect(reset.number(at: 0) == Int(HTTP2.ErrorCode.enhanceYourCalm))
            try await wire.send(Frame(.data, flags: Frame.endStream, stream: 1))
            #expect(try await wire.body(of: 1).utf8.count == 15)
        }
    }

    @Test func aBodyThatStopsIsCutOff() async throws {
        try await withServer(configure: { $0.bodyTimeout = .milliseconds(200) }) { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(requestHead(1, "POST", "/echo", ends: false))
            #expect(try await wire.body(of: 1).contains("408"))
        }
    }

    @Test func aHeadThatStopsIsCutOff() async throws {
        try await withServer(configure: { $0.headTimeout = .milliseconds(200) }) { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            let head = requestHead(1, "GET", "/")
            try await wire.send(Frame(.headers, flags: Frame.endStream, stream: 1, head.payload))
            let start = ContinuousClock.now
            await #expect(throws: TestFailure.self) { _ = try await wire.body(of: 1) }
            #expect(ContinuousClock.now - start < .seconds(5))
        }
    }

    @Test func anIdleConnectionIsToldToGo() async throws {
        try await withServer(configure: { $0.idleTimeout = .milliseconds(200) }) { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            #expect(try await wire.next(.goaway).number(at: 4) == 0)
            #expect(try await wire.rest().allSatisfy { $0.stream == 0 })
        }
    }

    @Test func aStopAnnouncesItselfAndAnswersWhatIsInFlight() async throws {
        let arrived = AsyncStream.makeStream(of: Void.self)
        let gate = AsyncStream.makeStream(of: Void.self)
        try await withServer(routes: { router, _ in
            router.on(.get, "/slow") { _ in
                arrived.continuation.yield()
                for await _ in gate.stream { break }
                return .text("late")
            }
        }) { server in
            let wire = try await FrameWire(port: server.port)
            try await wire.send(requestHead(1, "GET", "/slow"))
            for await _ in arrived.stream { break }
            async let stopped: Void = server.server.stop(within: .seconds(10))
            #expect(try await wire.next(.goaway).number(at: 0) == 0x7FFF_FFFF)
            #expect(try await wire.next(.goaway).number(at: 0) == 1)
            gate.continuation.yield()
            #expect(try await wire.body(of: 1) == "late")
            #expect(try await wire.rest().allSatisfy { !$0.isA(.goaway) && !$0.isA(.reset) })
            wire.close()
            await stopped
        }
    }

    @Test(arguments: [
        ("BREW", "/", "501"), ("GET", "/hello/%00", "400"), ("GET", "/nothing", "404"),
        ("DELETE", "/hello/x", "405"), ("GET", "/failing", "500"),
    ])
    func errorsAreThoseOfHTTP1(_ method: String, _ path: String, _ status: String) async throws {
        try await withServer { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(requestHead(1, method, path))
            #expect(try await wire.body(of: 1).contains("\"status\":\(status)"))
        }
    }
}

/// This number of requests, which wait for each other on one loop.
private final class Gathering: @unchecked Sendable {
    private var missing: Int

    init(of count: Int) { missing = count }

    var isComplete: Bool { missing <= 0 }

    func add() { missing -= 1 }
}
