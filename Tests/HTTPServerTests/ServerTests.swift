import EventLoop
import HTTPServer
import Observability
import Support
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(1)))
struct ServerTests {
    private func get(_ target: String, _ lines: String = "") -> String {
        "GET \(target) HTTP/1.1\r\nHost: a\r\n\(lines)\r\n"
    }

    @Test func aConnectionServesOneRequestAfterAnother() async throws {
        try await withServer { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            for name in ["a", "b", "c"] {
                try await wire.send(get("/hello/\(name)"))
                _ = try await wire.receive(until: "hello \(name)")
            }
        }
    }

    @Test func anAnswerIsFramedByTheServerAlone() async throws {
        try await withServer(routes: { router, _ in
            router.on(.get, "/") { _ in
                HTTPServerResponse(
                    status: 200,
                    headers: [
                        "Content-Length": "99", "Transfer-Encoding": "chunked", "Date": "never",
                        "X-Data": "a\r\nInjected: b",
                    ],
                    body: Array("ok".utf8)
                )
            }
            router.on(.get, "/none") { _ in HTTPServerResponse(status: 204, body: [1, 2, 3]) }
        }) { server in
            let found = try await server.exchange(get("/none") + get("/"))
            #expect(found.map(\.status) == [204, 200])
            #expect(!found[0].head.lowercased().contains("content-length"))
            let lines = found[1].head.split(separator: "\r\n").map { $0.lowercased() }
            #expect(lines.contains("content-length: 2"))
            #expect(lines.filter { $0.hasPrefix("date: ") }.count == 1)
            #expect(!lines.contains("date: never"))
            #expect(!lines.contains { $0.hasPrefix("transfer-encoding") })
            #expect(!lines.contains { $0.hasPrefix("injected") })
        }
    }

    /// Immediate and later responses keep their order.
    @Test func whatNeedNotBeWaitedForIsAnsweredAtOnce() async throws {
        try await withServer(routes: { router, loop in
            router.onPrompt(.get, "/at-once/:what") { request in
                switch request.pathParameters["what"] {
                case "now": .now(.text("now"))
                case "later":
                    .later {
                        try await loop.sleep(for: .milliseconds(20))
                        return .text("later")
                    }
                case "stream":
                    .now(.events { try await $0.send(ServerSentEvent("news")) })
                case "failing-later": .later { throw HTTPProblem(status: 409) }
                default: throw HTTPProblem(status: 410)
                }
            }
        }) { server in
            let asked = ["now", "later", "now", "failing", "failing-later", "now"]
            let requests = asked.map { get("/at-once/\($0)") }.joined()
            let found = try await server.exchange(
                requests + get("/at-once/now", "x: \(String(repeating: "\u{301}", count: 70))\r\n")
            )
            #expect(found.map(\.status) == [200, 200, 200, 410, 409, 200, 400])
            #expect(found[..<3].map(\.body) == ["now", "later", "now"])
            let streamed = try await server.exchange(Array(get("/at-once/stream").utf8))
            #expect(String(decoding: streamed, as: UTF8.self).contains("data: news"))
        }
    }

    @Test func headHasTheLengthOfGetAndNoBody() async throws {
        try await withServer { server in
            let answer = try await server.exchange(
                Array("HEAD /hello/x HTTP/1.1\r\nHost: a\r\n\r\n".utf8)
            )
            let text = String(decoding: answer, as: UTF8.self)
            #expect(text.contains("Content-Length: 7\r\n"))
            #expect(text.hasSuffix("\r\n\r\n"))
        }
    }

    @Test func aClientThatAsksIsToldToContinue() async throws {
        try await withServer { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send(
                "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                    + "Content-Length: 5\r\n\r\n"
            )
            #expect(try await wire.receive(until: "\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n")
            try await wire.send("hello")
            #expect(try await wire.receive(until: "hello").hasPrefix("HTTP/1.1 200 OK"))
        }
    }

    @Test func aClientThatAsksWithTooMuchIsRefusedAtOnce() async throws {
        try await withServer(configure: { $0.maximumBodyBytes = 4 }) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send(
                "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                    + "Content-Length: 5\r\n\r\n"
            )
            let found = try replies(try await wire.receiveAll())
            #expect(found.map(\.status) == [413])
        }
    }

    @Test func aRouteMayTakeLargerBodiesThanTheServer() async throws {
        try await withServer(
            configure: { $0.maximumBodyBytes = 4 },
            routes: { router, _ in
                router.on(.post, "/large", maximumBodyBytes: 10) { .text("\($0.body.count)") }
                router.on(.post, "/small") { .text("\($0.body.count)") }
            }
        ) { server in
            func post(_ path: String, _ count: Int) -> String {
                "POST \(path) HTTP/1.1\r\nHost: a\r\nContent-Length: \(count)\r\n\r\n"
                    + String(repeating: "x", count: count)
            }
            var found: [Reply] = []
            for (path, count) in [("/large", 10), ("/large", 11), ("/small", 4), ("/small", 5)] {
                found += try await server.exchange(post(path, count))
            }
            #expect(found.map(\.status) == [200, 413, 200, 413])
            #expect(found[0].body == "10")
        }
    }

    @Test func theSurfaceSaysThatABodyIsTooLarge() async throws {
        try await withServer(
            configure: { $0.maximumBodyBytes = 4 },
            routes: { router, _ in
                router.on(.post, "/echo") { _ in .empty(200) }
                router.errorResponse = { error, request in
                    let status = (error as? HTTPProblem)?.status ?? 500
                    return .text("mine \(request.path)", status: status)
                }
            }
        ) { server in
            let found = try await server.exchange(
                "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
            )
            #expect(found.map(\.status) == [413])
            #expect(found.first?.body == "mine /echo")
        }
    }

    @Test("An unreadable request is refused in the form of the surface that its path names")
    func unreadableHeadsAreRefusedByTheirSurface() async throws {
        let long = String(repeating: "a", count: 20_000)
        let rows = [
            ("GET /mine/x?where=\(long) HTTP/1.1\r\nHost: a\r\n\r\n", 414, "mine /mine/x"),
            ("GET /mine/x?where=\(long)", 414, "mine /mine/x"),
            (get("/mine/x", "X-Long: \(long)\(long)\(long)\(long)\r\n"), 431, "mine /mine/x"),
            (get("/mine/%zz"), 400, "mine /mine/-"), (get("/mine/x?a=%zz"), 400, "mine /mine/x"),
            ("BREW /mine HTTP/1.1\r\nHost: a\r\n\r\n", 501, "mine /mine"),
            ("nonsense\r\n\r\n", 400, "{"), ("GET mine HTTP/1.1\r\n\r\n", 400, "{"),
        ]
        try await withServer(routes: { router, _ in
            router.errorResponse = { error, request in
                let status = (error as? HTTPProblem)?.status ?? 500
                return .text("mine \(request.path)", status: status)
            }
        }) { server in
            for (text, status, body) in rows {
                let found = try await server.exchange(text)
                #expect(found.map(\.status) == [status], "\(text.prefix(40))")
                #expect(found.first?.body.hasPrefix(body) == true, "\(text.prefix(40))")
            }
        }
    }

    @Test func anAnswerLargerThanTheSocketsArrivesWhole() async throws {
        try await withServer { server in
            let wire = try Wire(port: server.port, receiveBufferBytes: 4096)
            defer { wire.close() }
            try await wire.send(get("/big", "Connection: close\r\n"))
            let found = try replies(try await wire.receiveAll())
            #expect(found.first?.body.utf8.count == 8 << 20)
        }
    }

    // MARK: Deadlines

    @Test(arguments: ["GET / HTTP/1.1\r\nHost:", "POST /echo HTTP/1.1\r\nHost: a\r\nX: y\r\n"])
    func aHeadThatDribblesIsCutOff(_ start: String) async throws {
        try await withServer(configure: { $0.headTimeout = .seconds(2) }) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            // The response is read while bytes are still sent: a byte that arrives after the server
            // has closed resets the connection, and a response unread by then may be lost with it.
            let answer = Task { try await wire.receive() }
            let clock = ContinuousClock.now
            // A byte now and then must not extend the deadline, or these would take far longer.
            for byte in Array(start.utf8) + Array(repeating: UInt8(ascii: "x"), count: 5000) {
                guard ContinuousClock.now - clock < .seconds(8),
                    (try? await wire.send([byte])) != nil
                else { break }
                try await Task.sleep(for: .milliseconds(10))
            }
            #expect(ContinuousClock.now - clock < .seconds(8), "nobody cut it off")
            #expect(try replies(try await answer.value).map(\.status) == [408])
        }
    }

    @Test func aBodyThatStopsIsCutOff() async throws {
        try await withServer(configure: { $0.bodyTimeout = .milliseconds(200) }) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe")
            let found = try replies(try await wire.receiveAll())
            #expect(found.map(\.status) == [408])
        }
    }

    @Test func anIdleConnectionIsClosedInSilence() async throws {
        try await withServer(configure: { $0.idleTimeout = .milliseconds(200) }) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send(get("/"))
            let found = try replies(try await wire.receiveAll())
            #expect(found.map(\.status) == [200])
        }
    }

    @Test func aConnectionThatSaysNothingIsClosed() async throws {
        try await withServer(configure: { $0.headTimeout = .milliseconds(200) }) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            #expect(try await wire.receiveAll().isEmpty)
        }
    }

    @Test func aPeerThatTakesNothingIsDropped() async throws {
        try await withServer(configure: { $0.idleTimeout = .milliseconds(200) }) { server in
            let wire = try Wire(port: server.port, receiveBufferBytes: 4096)
            defer { wire.close() }
            try await wire.send(get("/big"))
            let open = server.metrics.gauge(.httpConnections)
            _ = try await eventually("the connection is gone", within: .seconds(10)) {
                open.value == 0 ? true : nil
            }
        }
    }

    @Test func aPeerThatIsGoneEndsItsConnectionAndNoMore() async throws {
        try await withServer { server in
            let wire = try Wire(port: server.port)
            try await wire.send(get("/slow") + get("/slow") + get("/slow"))
            // The first response is met by a reset, the second is written into a broken pipe.
            wire.close()
            let open = server.metrics.gauge(.httpConnections)
            let answered = server.metrics.counter(
                .httpRequests,
                ["method": "GET", "status": "2xx"]
            )
            _ = try await eventually("the connection is gone") {
                answered.value > 0 && open.value == 0 ? true : nil
            }
            #expect(try await server.exchange(get("/")).map(\.status) == [200])
        }
    }

    // MARK: Limits

    @Test func connectionsOverTheLimitAreRefusedAndThoseBelowStillServed() async throws {
        try await withServer(configure: { $0.maximumConnections = 2 }) { server in
            let first = try Wire(port: server.port)
            let second = try Wire(port: server.port)
            for wire in [first, second] {
                try await wire.send(get("/hello/x"))
                _ = try await wire.receive(until: "hello x")
            }
            let third = try Wire(port: server.port)
            defer { third.close() }
            let refused = server.metrics.counter(.httpRefused, ["reason": "connections"])
            _ = try await eventually("refusal") { refused.value == 1 ? true : nil }
            first.close()
            let open = server.metrics.gauge(.httpConnections)
            _ = try await eventually("a free place") { open.value == 1 ? true : nil }
            #expect(try await server.exchange(get("/")).map(\.status) == [200])
            second.close()
        }
    }

    @Test func oneAddressHasALimitOfItsOwn() async throws {
        try await withServer(configure: { $0.maximumConnectionsPerAddress = 1 }) { server in
            let first = try Wire(port: server.port)
            defer { first.close() }
            try await first.send(get("/hello/x"))
            _ = try await first.receive(until: "hello x")
            let second = try Wire(port: server.port)
            defer { second.close() }
            let refused = server.metrics.counter(.httpRefused, ["reason": "connections"])
            _ = try await eventually("refusal") { refused.value == 1 ? true : nil }
        }
    }

    // MARK: Loops, stopping, records

    @Test func severalLoopsShareOnePort() async throws {
        try await withServer(
            loops: 2,
            routes: { router, loop in
                router.on(.get, "/") { _ in .text(EventLoop.current?.name ?? "none") }
            }
        ) { server in
            var names: Set<String> = []
            for _ in 0..<200 where names.count < 2 {
                names.insert(try await server.exchange(get("/")).first?.body ?? "")
            }
            #expect(names == ["test-0", "test-1"])
        }
    }

    @Test(arguments: [1, 2])
    func aPortThatIsTakenIsAnError(_ loops: Int) async throws {
        try await withServer(loops: loops) { server in
            var configuration = HTTPServerConfiguration(host: "127.0.0.1", port: server.port)
            configuration.stopGrace = .seconds(1)
            let other = try HTTPServer(configuration, loops: server.loops) { _ in Router() }
            await #expect(throws: EventLoopError.self) { try await other.start() }
        }
    }

    @Test func aStopAnswersWhatIsInFlightAndNothingAfter() async throws {
        let arrived = AsyncStream.makeStream(of: Void.self)
        let gate = AsyncStream.makeStream(of: Void.self)
        try await withServer(routes: { router, loop in
            addTestRoutes(&router, loop)
            router.on(.get, "/slow") { _ in
                arrived.continuation.yield()
                for await _ in gate.stream { break }
                return .text("late")
            }
        }) { server in
            let wire = try Wire(port: server.port)
            let idle = try Wire(port: server.port)
            defer {
                wire.close()
                idle.close()
            }
            try await idle.send(get("/hello/x"))
            _ = try await idle.receive(until: "hello x")
            try await wire.send(get("/slow") + get("/hello/never"))
            for await _ in arrived.stream { break }
            async let stopped: Void = server.server.stop(within: .seconds(10))
            // The end of this one shows that the stop has begun.
            #expect(try await idle.receiveAll().isEmpty)
            gate.continuation.yield()
            let found = try replies(try await wire.receiveAll())
            #expect(found.map(\.body) == ["late"])
            #expect(found.first?.head.contains("Connection: close") == true)
            await stopped
            #expect(throws: TestFailure.self) { _ = try Wire(port: server.port) }
        }
    }

    @Test func aStopEndsAtItsBound() async throws {
        let arrived = AsyncStream.makeStream(of: Void.self)
        try await withServer(routes: { router, loop in
            router.on(.get, "/") { _ in
                arrived.continuation.yield()
                try await loop.sleep(for: .seconds(600))
                return .empty(200)
            }
        }) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send(get("/"))
            for await _ in arrived.stream { break }
            let start = ContinuousClock.now
            await server.server.stop(within: .milliseconds(100))
            #expect(ContinuousClock.now - start < .seconds(5))
        }
    }

    @Test func runServesUntilItIsCancelled() async throws {
        let loop = try EventLoop(name: "run")
        let lines = Lines()
        let server = try HTTPServer(
            HTTPServerConfiguration(host: "127.0.0.1", port: 0),
            loops: [loop],
            log: lines.log(.info)
        ) { loop in
            var router = Router()
            addTestRoutes(&router, loop)
            return router
        }
        #expect(server.notReadyReason() != nil)
        let running = Task { try await server.run() }
        let port = try await eventually("the line that names the port") {
            lines.all.first { $0.contains("\"message\":\"listening\"") }
                .flatMap { $0.split(separator: "\"port\":").last }
                .flatMap { Int($0.prefix { $0.isNumber }) }
        }
        #expect(lines.all.contains { $0.contains("\"scheme\":\"http\"") })
        #expect(server.notReadyReason() == nil)
        let wire = try Wire(port: port)
        defer { wire.close() }
        try await wire.send(get("/hello/x"))
        _ = try await wire.receive(until: "hello x")
        running.cancel()
        try await running.value
        #expect(server.notReadyReason() == "stopping")
        await loop.stop()
    }

    @Test func requestsAreCountedAndLoggedByRouteNeverByPath() async throws {
        let lines = Lines()
        try await withServer(log: lines.log(.debug)) { server in
            _ = try await server.exchange(get("/hello/secret-token") + get("/failing"))
            let text = lines.all.joined()
            #expect(text.contains("/hello/:name"))
            #expect(!text.contains("secret-token"))
            #expect(text.contains("request handler failed"))
            let counted = server.metrics.counter(
                .httpRequests,
                ["method": "GET", "status": "2xx"]
            )
            #expect(counted.value == 1)
            let failed = server.metrics.counter(
                .httpRequests,
                ["method": "GET", "status": "5xx"]
            )
            #expect(failed.value == 1)
        }
    }
}

/// Collects log lines.
final class Lines: Sendable {
    private let lines = Mutex<[String]>([])

    var all: [String] { lines.withLock { $0 } }

    func log(_ level: LogLevel) -> Log {
        Log(service: "test", level: level, format: .json) { [self] bytes in
            lines.withLock { $0.append(String(decoding: bytes, as: UTF8.self)) }
        }
    }
}
