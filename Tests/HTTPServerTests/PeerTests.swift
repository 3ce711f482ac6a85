import EventLoop
import Glibc
import HTTPServer
import Observability
import Support
import Synchronization
import Testing

/// Limits to the harm that slow, silent or greedy peers can do to others. How long an honest client
/// waits beside a thousand of them is measured by `deploy/bench peers`; these tests hold on any
/// machine.
@Suite("Service beside bad peers", .timeLimit(.minutes(2)))
struct PeerTests {
    init() {
        // Both ends of each connection are in this process.
        var limit = rlimit()
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else {
            return
        }
        limit.rlim_cur = min(limit.rlim_max, 16_384)
        unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }

    private func get(_ target: String) -> String { "GET \(target) HTTP/1.1\r\nHost: a\r\n\r\n" }

    private func peers(_ count: Int, _ server: TestServer, sending text: String) async throws
        -> [Wire]
    {
        var wires: [Wire] = []
        for _ in 0..<count {
            let wire = try Wire(port: server.port)
            wires.append(wire)
            if !text.isEmpty { try await wire.send(text) }
        }
        return wires
    }

    /// Sends requests over one connection that stays, and over one each.
    private func honestRequestsAreAnswered(_ server: TestServer) async throws {
        let wire = try Wire(port: server.port)
        defer { wire.close() }
        for turn in 0..<20 {
            try await wire.send(get("/hello/\(turn)"))
            _ = try await wire.receive(until: "hello \(turn)")
            let found = try await server.exchange(get("/hello/other"))
            #expect(found.map(\.body) == ["hello other"])
        }
    }

    private func everyConnectionIsReleased(_ server: TestServer) async throws {
        let open = server.metrics.gauge(.httpConnections)
        _ = try await eventually("every connection is released", within: .seconds(30)) {
            open.value == 0 ? true : nil
        }
    }

    @Test(
        "A slow head, slow headers and a slow body delay no other request, and end with 408",
        arguments: [
            "GET /hel", "GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ",
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n",
            "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n",
        ]
    )
    func slowPeers(_ start: String) async throws {
        try await withServer(configure: {
            $0.headTimeout = .seconds(5)
            $0.bodyTimeout = .seconds(5)
        }) { server in
            let slow = try await peers(150, server, sending: start)
            let answers = Task {
                var statuses: [Int] = []
                for wire in slow {
                    statuses += try replies(try await wire.receiveAll()).map(\.status)
                    wire.close()
                }
                return statuses
            }
            try await honestRequestsAreAnswered(server)
            #expect(try await answers.value == Array(repeating: 408, count: 150))
            try await everyConnectionIsReleased(server)
        }
    }

    @Test("Idle connections delay no request, and are closed")
    func idlePeers() async throws {
        try await withServer(configure: {
            $0.headTimeout = .seconds(5)
            $0.idleTimeout = .seconds(5)
        }) { server in
            let silent = try await peers(150, server, sending: "")
            let idle = try await peers(150, server, sending: get("/"))
            try await honestRequestsAreAnswered(server)
            try await everyConnectionIsReleased(server)
            for wire in silent + idle { wire.close() }
        }
    }

    @Test(
        "Clients that request much and read nothing delay no other, use bounded memory, and are closed"
    )
    func greedyPeersThatDoNotRead() async throws {
        let answers = Tally()
        let body = [UInt8](repeating: UInt8(ascii: "x"), count: 100_000)
        try await withServer(
            configure: { $0.idleTimeout = .seconds(5) },
            routes: { router, loop in
                addTestRoutes(&router, loop)
                router.on(.get, "/much") { _ in
                    answers.increment()
                    return HTTPServerResponse(status: 200, body: body)
                }
            }
        ) { server in
            let before = try residentBytes()
            let requests = String(repeating: get("/much"), count: 1000)
            let greedy = try await peers(100, server, sending: requests)
            try await honestRequestsAreAnswered(server)
            // The responses to all would be 10 GB; each may have 256 KiB waiting, and one response
            // more: 36 MB. The rest is for the other tests that run meanwhile.
            #expect(try residentBytes() - before < 1 << 30)
            try await everyConnectionIsReleased(server)
            #expect(answers.value < 100 * 1000)
            for wire in greedy { wire.close() }
        }
    }

    @Test("A greedy client's backlog is answered in turns, with another's request in between")
    func turnsAreTaken() async throws {
        let order = Order()
        try await withServer(routes: { router, _ in
            router.on(.get, "/:who") { request in
                order.append(request.pathParameters["who"] ?? "")
                return .text("done\n")
            }
        }) { server in
            let (clients, backlog) = (20, 500)
            let greedy = try await peers(clients, server, sending: get("/first"))
            let honest = try Wire(port: server.port)
            defer { for wire in greedy + [honest] { wire.close() } }
            try await honest.send(get("/first"))
            for wire in greedy + [honest] { _ = try await wire.receive(until: "done\n") }

            // All requests of the greedy ones are there before the honest one's.
            let gate = Gate()
            server.loops[0].execute { gate.wait() }
            for wire in greedy {
                try await wire.send(String(repeating: get("/greedy"), count: backlog))
            }
            try await honest.send(get("/honest"))
            gate.open()
            _ = try await honest.receive(until: "done\n")
            for wire in greedy { try await receive(backlog, from: wire) }
            let served = order.names.dropFirst(clients + 1)
            #expect(served.count == clients * backlog + 1)
            let place = try #require(served.firstIndex(of: "honest")) - served.startIndex
            #expect(place < 10 * clients, "it waited for \(place) answers to others")
        }
    }

    private func receive(_ count: Int, from wire: Wire) async throws {
        var (newlines, bytes) = (0, 0)
        var last = UInt8(ascii: "\r")
        while newlines < count {
            let part = try await wire.receive()
            if part.isEmpty { throw TestFailure("ended after \(bytes) bytes") }
            bytes += part.count
            // Among the line ends of a response, only the body's comes without a carriage return.
            for byte in part {
                if byte == UInt8(ascii: "\n"), last == UInt8(ascii: "e") { newlines += 1 }
                last = byte
            }
        }
    }

    private func residentBytes() throws -> Int {
        let file = unsafe fopen("/proc/self/statm", "r")
        guard let file = unsafe file else { throw TestFailure("no /proc/self/statm") }
        defer { unsafe fclose(file) }
        var line = [CChar](repeating: 0, count: 128)
        guard unsafe fgets(&line, Int32(line.count), file) != nil else {
            throw TestFailure("/proc/self/statm is empty")
        }
        let text = String(decoding: line.map(UInt8.init(bitPattern:)), as: UTF8.self)
        let words = text.split(separator: " ")
        guard words.count > 1, let pages = Int(words[1]) else { throw TestFailure(text) }
        return pages * sysconf(Int32(_SC_PAGESIZE))
    }
}

/// The queue trips of a request on its loop; the loop's own tests cover the rest.
@Suite("Queue trips of a request", .timeLimit(.minutes(1)))
struct QueueTripTests {
    private func trips(_ loop: EventLoop) async -> Int {
        await withCheckedContinuation { continuation in
            loop.execute { continuation.resume(returning: loop.queueTrips) }
        }
    }

    private func tripsOfRequests(_ count: Int, to path: String) async throws -> Int {
        var trips = 0
        try await withServer(routes: { router, loop in
            router.on(.get, "/") { _ in .text("done\n") }
            router.on(.post, "/") { .text($0.body.count == 3 ? "done\n" : "") }
            router.on(.get, "/suspends") { _ in
                await withCheckedContinuation { continuation in
                    loop.execute { continuation.resume() }
                }
                return .text("done\n")
            }
        }) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            let loop = server.loops[0]
            let before = await self.trips(loop)
            for _ in 0..<count {
                try await wire.send("GET \(path) HTTP/1.1\r\nHost: a\r\n\r\n")
                _ = try await wire.receive(until: "done\n")
                try await wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
                _ = try await wire.receive(until: "done\n")
            }
            // The trip of the call itself does not count.
            trips = await self.trips(loop) - before - 1
        }
        return trips
    }

    @Test("A request whose handler does not suspend costs no queue trip")
    func nothingSuspends() async throws {
        let trips = try await tripsOfRequests(50, to: "/")
        #expect(trips == 0)
    }

    @Test("A request whose handler waits for the loop costs at least the trip of the wait")
    func somethingSuspends() async throws {
        // This also shows that trips are counted.
        let trips = try await tripsOfRequests(50, to: "/suspends")
        #expect(trips >= 50)
    }
}

/// Blocks a loop until it is opened.
private final class Gate: Sendable {
    private let isOpen = Atomic<Bool>(false)

    func wait() { while !isOpen.load(ordering: .acquiring) { usleep(1000) } }

    func open() { isOpen.store(true, ordering: .releasing) }
}

private final class Order: @unchecked Sendable {
    private let lock = Lock()
    private var all: [String] = []

    var names: [String] { lock.withLock { all } }

    func append(_ name: String) { lock.withLock { all.append(name) } }
}

private final class Tally: Sendable {
    private let count = Atomic<Int>(0)

    var value: Int { count.load(ordering: .relaxed) }

    func increment() { count.add(1, ordering: .relaxed) }
}
