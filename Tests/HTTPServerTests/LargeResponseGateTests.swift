import EventLoop
import Glibc
import Observability
import Support
import Synchronization
import Testing

@testable import HTTPServer

/// Connections that a server closes, refuses or delays because of unread responses.
@Suite(.timeLimit(.minutes(1)))
struct LargeResponseGateTests {
    private static let noWindow = Frame(.settings, [0, 4] + bigEndianBytes(0))
    private static let budget = 2_000_000

    /// Runs `body` with a server: `/held/:bytes` is read as slowly as its peer likes; the reading
    /// rate of `/events/:bytes` is unknown, and `POST /held/:bytes` changes something.
    private func withBudget(
        _ body: (StillServer) async throws -> Void
    ) async throws {
        try await withStillServer(answerBytes: 0) {
            $0.maximumHeldAnswerBytes = Self.budget
            $0.maximumHeldAnswerBytesPerConnection = Self.budget
        } routes: { router in
            @Sendable func bytes(_ request: HTTPServerRequest) -> [UInt8] {
                let count = request.pathParameters["bytes"].flatMap { Int($0) } ?? 0
                return [UInt8](repeating: UInt8(ascii: "x"), count: count)
            }
            for method in [HTTPMethod.get, .post] {
                router.on(method, "/held/:bytes") {
                    HTTPServerResponse(status: method == .get ? 200 : 201, body: bytes($0))
                }
            }
            router.on(.get, "/events/:bytes") { request in
                let bytes = bytes(request)
                return .events { try await $0.write(bytes) }
            }
        } _: { server in
            try await body(server)
        }
    }

    /// Sends a request and reads only the head of its response.
    private func hold(_ path: String, at server: StillServer) async throws -> FrameWire {
        let before = server.heldAnswerBytes
        let wire = try await FrameWire(port: server.port)
        try await wire.send(Self.noWindow)
        try await wire.send(requestHead(1, "GET", path))
        _ = try await wire.next(.headers, stream: 1)
        _ = try await eventually("its answer is held") {
            server.heldAnswerBytes > before ? true : nil
        }
        return wire
    }

    private func makeRoom(_ bytes: Int, at server: StillServer) async -> Bool {
        await withCheckedContinuation { continuation in
            server.loop.execute {
                // By then every reading rate is known, except for events.
                let later = ContinuousClock.now + .seconds(1)
                continuation.resume(returning: server.server.makeRoom(for: bytes, at: later))
            }
        }
    }

    private func slowReaders(_ server: StillServer) -> Int {
        server.metrics.counter(.httpRefused, ["reason": "slow_reader"]).value
    }

    @Test func nobodyIsClosedInVain() async throws {
        try await withBudget { server in
            let events = try await hold("/events/1500000", at: server)
            let slow = try await hold("/held/300000", at: server)
            defer { for wire in [events, slow] { wire.close() } }
            // 600 kB are missing.
            #expect(await makeRoom(800_000, at: server) == false)
            #expect(slowReaders(server) == 0)
            // 200 kB are missing.
            #expect(await makeRoom(400_000, at: server))
            #expect(slowReaders(server) == 1)
            #expect(server.openConnections == 1)
        }
    }

    /// A client with a small response is closed only if the large ones are not enough, and no more
    /// of them than needed.
    @Test func smallHoldersAreSparedAsLongAsThereAreOthers() async throws {
        try await withBudget { server in
            let events = try await hold("/events/1500000", at: server)
            // This one reads the fastest of all.
            let large = try await hold("/held/300000", at: server)
            let more = bigEndianBytes(100_000)
            try await large.send(
                Frame(.windowUpdate, more),
                Frame(.windowUpdate, stream: 1, more)
            )
            var taken = 0
            while taken < 100_000 { taken += try await large.next(.data).payload.count }
            var small: [FrameWire] = []
            defer { for wire in [events, large] + small { wire.close() } }
            for _ in 0..<10 { small.append(try await hold("/held/15000", at: server)) }
            // 150 kB are missing: those of one.
            #expect(await makeRoom(300_000, at: server))
            #expect(slowReaders(server) == 1)
            #expect(server.openConnections == 1 + small.count)
            // 50 kB are missing, those of four.
            #expect(await makeRoom(400_000, at: server))
            #expect(slowReaders(server) == 1 + 4)
            #expect(server.openConnections == 1 + small.count - 4)
        }
    }

    /// A change is reported to its client; a query can be repeated.
    @Test func theAnswerToAWriteIsKept() async throws {
        try await withBudget { server in
            let events = try await hold("/events/1900000", at: server)
            defer { events.close() }
            func status(_ method: String) async throws -> [Int] {
                let wire = try Wire(port: server.port)
                defer { wire.close() }
                try await wire.send(
                    "\(method) /held/500000 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n"
                        + "Connection: close\r\n\r\n"
                )
                return try replies(try await wire.receiveAll()).map(\.status)
            }
            #expect(try await status("GET") == [503])
            #expect(try await status("POST") == [201])
            #expect(slowReaders(server) == 0)
        }
    }

    /// A response that a handler still collects does not wait for a reader.
    @Test func nobodyIsClosedForWhatIsGathered() async throws {
        try await withStillServer(answerBytes: 0) {
            $0.maximumHeldAnswerBytes = Self.budget
        } routes: { router in
            router.on(.get, "/held") { _ in
                HTTPServerResponse(status: 200, body: [UInt8](repeating: 120, count: 900_000))
            }
            router.on(.get, "/gather") { request in
                var parts = 0
                while request.caller.hold(100_000), parts < 100 { parts += 1 }
                return .text("\(parts)")
            }
        } _: { server in
            let reader = try await hold("/held", at: server)
            defer { reader.close() }
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send("GET /gather HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            // This is as many as without the reader.
            #expect(try replies(try await wire.receiveAll()).map(\.body) == ["20"])
            #expect(slowReaders(server) == 0)
        }
    }

    /// All are sent in one turn, before any of them has a response.
    @Test func requestsOfOneConnectionMakeTheirAnswersInTurns() async throws {
        let (streams, bytes) = (50, 250_000)
        let (begun, begins) = AsyncStream.makeStream(of: Void.self)
        let making = Atomic<Int>(0)
        let gate = Gate()
        let answer = [UInt8](repeating: UInt8(ascii: "x"), count: bytes)
        try await withStillServer(answerBytes: 0) { _ in
        } routes: { router in
            router.on(.get, "/find") { request in
                begins.yield()
                try await request.caller.waitForRoom()
                try await request.caller.waitForRoom()
                making.add(1, ordering: .relaxed)
                await gate.wait()
                return HTTPServerResponse(status: 200, body: answer)
            }
        } _: { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(Self.noWindow)
            try await wire.send((0..<streams).map { requestHead(2 * $0 + 1, "GET", "/find") })
            var seen = 0
            for await _ in begun {
                seen += 1
                if seen == streams { break }
            }
            #expect(making.load(ordering: .relaxed) == 4)
            // A cancelled one makes no response and delays no other.
            try await wire.send(Frame(.reset, stream: 2 * streams - 1, bigEndianBytes(8)))
            await gate.open()
            for stream in 0..<4 { _ = try await wire.next(.headers, stream: 2 * stream + 1) }
            try await wire.send(Frame(.ping, [UInt8](repeating: 7, count: 8)))
            _ = try await wire.next(.ping)
            #expect(making.load(ordering: .relaxed) <= 5)
            #expect(server.heldAnswerBytes <= 5 * bytes + 1000)

            // Once the peer reads, it gets each response.
            let largest = Int(Int32.max)
            try await wire.send(
                Frame(.settings, [0, 4] + bigEndianBytes(largest)),
                Frame(.windowUpdate, bigEndianBytes(largest - 65_535))
            )
            for stream in 0..<(streams - 1) {
                #expect(try await wire.body(of: 2 * stream + 1).utf8.count == bytes)
            }
            #expect(making.load(ordering: .relaxed) == streams - 1)
        }
    }

    /// Its requests could not be counted by address.
    @Test func aPeerWithoutAnAddressIsRefused() async throws {
        try await withStillServer(answerBytes: 0) { server in
            // While the loop is busy, it connects, sends a request and resets.
            let (entered, enter) = AsyncStream.makeStream(of: Void.self)
            var ends: [Int32] = [0, 0]
            try #require(unsafe pipe(&ends) == 0)
            let (busy, free) = (ends[0], ends[1])
            server.loop.execute {
                enter.yield()
                var byte: UInt8 = 0
                _ = unsafe read(busy, &byte, 1)
                close(busy)
            }
            for await _ in entered { break }
            let socket = try LoopbackSocket(port: UInt16(server.port))
            try socket.send(Array("GET / HTTP/1.1\r\nHost: a\r\n\r\n".utf8))
            socket.reset()
            close(free)
            let refused = server.metrics.counter(.httpRefused, ["reason": "connections"])
            _ = try await eventually("it is refused") { refused.value == 1 ? true : nil }
            #expect(server.openConnections == 0)
            let requests = server.metrics.counter(
                .httpRequests,
                ["method": "GET", "status": "2xx"]
            )
            #expect(requests.value == 0)
        }
    }
}
