import EventLoop
import HTTPServer
import Support
import Testing

@testable import HTTPTransport

private let fine = HTTPServerResponse(status: 200)

/// 8 KiB in a head: those need no window of the peer's.
private let large = String(repeating: "0123456789abcdef", count: 512)

private func paths(_ count: Int) -> [String] { (0..<count).map { "/\($0)" } }

@Suite("Bytes that a socket has not accepted", .timeLimit(.minutes(1))) struct OutputBuffers {
    @Test("Accepted bytes leave memory, however long the buffer is refilled before it is empty")
    func toppedUp() {
        var buffer = OutputBuffer()
        var next: UInt8 = 0
        var expected: UInt8 = 0
        var peak = 0
        for _ in 0..<2000 {
            while buffer.pending < 65_536 {
                buffer.bytes.append(next)
                next &+= 1
            }
            unsafe buffer.withPending { bytes in
                for index in 0..<16_384 {
                    if unsafe bytes[index] != expected { Issue.record("a byte is lost") }
                    expected &+= 1
                }
            }
            buffer.took(16_384)
            #expect(buffer.pending == 65_536 - 16_384)
            peak = max(peak, buffer.bytes.count)
        }
        #expect(peak <= 3 * 65_536)
    }

    @Test("A buffer of any size uses no memory once it is empty")
    func emptied() {
        for count in [1, 1_000_000] {
            var buffer = OutputBuffer()
            buffer.bytes = [UInt8](repeating: 1, count: count)
            buffer.took(count)
            #expect(buffer.pending == 0 && buffer.bytes.isEmpty && buffer.sent == 0)
            #expect(buffer.bytes.capacity <= 262_144)
        }
    }
}

/// The maximum that was seen. Confined to a loop.
private final class Peak: @unchecked Sendable {
    var bytes = 0
    var looks = 0

    func see(_ pool: HTTP2Pool) {
        bytes = max(bytes, pool.connections.reduce(0) { $0 + $1.outputMemory })
        looks += 1
    }
}

@Suite("A pool whose peer does not read", .timeLimit(.minutes(2))) struct PoolCongestion {
    /// Runs `body` with one connection through a tunnel, on which a first request has been
    /// answered.
    private func run(
        answer: HTTPServerResponse = fine,
        change: @escaping (inout HTTP2PoolConfiguration) -> Void = { _ in },
        _ body: (PoolBench, Tunnel, LocalServer) async throws -> Void
    ) async throws {
        try await withLocalServer(maxConcurrentStreams: 1000) { request in
            request.path == "/first" ? fine : answer
        } _: { server, loop in
            let tunnel = Tunnel(to: server.port)
            let port = try await loop.onLoop { try tunnel.listen(on: loop) }
            try await PoolBench.run(
                server.origin,
                loop,
                caFile: server.caFile,
                change: {
                    $0.maximumConnections = 1
                    $0.transport.proxy = "http://127.0.0.1:\(port)"
                    change(&$0)
                }
            ) { bench in
                #expect(try await bench.send(["/first"]).first?.status == 200)
                try await body(bench, tunnel, server)
            }
        }
    }

    /// Starts so many requests at once that the socket accepts no more.
    private func congest(
        _ bench: PoolBench,
        _ tunnel: Tunnel,
        count: Int = 1500,
        timeout: Duration
    ) async throws -> Results {
        try await bench.loop.onLoop { tunnel.isPaused = true }
        let results = try await bench.start(
            paths(count),
            headSuffix: large,
            timeout: timeout
        )
        _ = try await eventually("a full socket") {
            try await bench.loop.onLoop { bench.pool.connections.allSatisfy(\.isCongested) }
                ? () : nil
        }
        return results
    }

    @Test("A slow reader gets everything, and little memory is used for it")
    func slowReader() async throws {
        try await run { bench, tunnel, server in
            let peak = Peak()
            let results = try await congest(bench, tunnel, timeout: .seconds(100))
            try await bench.loop.onLoop { [pool = bench.pool] in
                peak.see(pool)
                tunnel.onSlowRead = { peak.see(pool) }
                tunnel.isPaused = false
            }
            let all = try await eventually("all", within: .seconds(100)) { results.all(1500) }
            #expect(all.allSatisfy { $0.status == 200 })
            #expect(server.received.count == 1501)
            let (bytes, looks) = try await bench.loop.onLoop { (peak.bytes, peak.looks) }
            #expect(bytes > 0 && bytes <= 3 * HTTP2Connection.outputBytes, "\(bytes)")
            #expect(looks > 50)
        }
    }

    @Test("Waiting bytes are sent as soon as the socket accepts some again")
    func drained() async throws {
        let hang = HTTPServerResponse(status: 200, ending: { _ in })
        // The server sends nothing after its settings, and the clock does not tick.
        try await run(answer: hang, change: { $0.tick = .seconds(3600) }) { bench, tunnel, server in
            _ = try await congest(bench, tunnel, count: 900, timeout: .seconds(7200))
            try await bench.loop.onLoop { tunnel.isPaused = false }
            _ = try await eventually("all") { server.received.count == 901 ? () : nil }
        }
    }

    @Test("A request that a full socket delays can be withdrawn until it is written")
    func withdraw() async throws {
        try await run { bench, tunnel, server in
            let results = try await congest(bench, tunnel, timeout: .seconds(100))
            let inside = try await bench.loop.onLoop { [pool = bench.pool] in
                // These are more than those without a stream.
                let waiting = pool.requestsWaiting
                pool.withdraw()
                #expect(pool.requestsWaiting == 0 && pool.requestsInside < 1500 - waiting)
                tunnel.isPaused = false
                return pool.requestsInside
            }
            #expect(inside > 0)
            let all = try await eventually("all") { results.all(1500) }
            #expect(all.count { $0.status == 200 } == inside)
            #expect(all.count { $0.error?.kind == .withdrawn } == 1500 - inside)
            #expect(try await bench.send(["/first"]).first?.status == 200)
            #expect(server.received.count == inside + 2)
        }
    }

    @Test("A lower limit recalls unwritten requests, which do not wait inside a connection")
    func limitFalls() async throws {
        try await run { bench, tunnel, server in
            let results = try await congest(bench, tunnel, timeout: .seconds(100))
            server.server.setMaxConcurrentStreams(1)
            _ = try await eventually("the requests' return") {
                try await bench.loop.onLoop { [pool = bench.pool] in
                    // 1500 less the thousand streams from before.
                    pool.requestsWaiting > 500 && pool.requestsInside == 1500
                } ? () : nil
            }
            server.server.setMaxConcurrentStreams(1000)
            try await bench.loop.onLoop { tunnel.isPaused = false }
            let all = try await eventually("all") { results.all(1500) }
            #expect(all.allSatisfy { $0.status == 200 })
            #expect(Set(server.received.map(\.path)).count == 1501)
            #expect(server.received.count == 1501)
        }
    }

    @Test("A connection without requests is closed even if its socket accepts no GOAWAY")
    func deadSocket() async throws {
        // All deadlines pass before a PING is due.
        try await run(change: { $0.pingAfter = .seconds(1) }) { bench, tunnel, server in
            let results = try await congest(bench, tunnel, timeout: .milliseconds(400))
            _ = try await eventually("the connection's end") {
                try await bench.loop.onLoop {
                    bench.pool.timePasses()
                    return bench.pool.connectionCount
                } == 0 ? () : nil
            }
            let all = try await eventually("all") { results.all(1500) }
            #expect(all.allSatisfy { $0.error != nil })
            try await bench.loop.onLoop { tunnel.isPaused = false }
            // Bytes that the socket had accepted may arrive; those reported as unsent do not.
            let notSent = all.indices.filter { all[$0].error?.requestWasNotSent == true }
            #expect(!notSent.isEmpty)
            #expect(try await bench.send(["/first"]).first?.status == 200)
            let arrived = Set(server.received.map(\.path))
            #expect(notSent.allSatisfy { !arrived.contains("/\($0)") })
        }
    }
}
