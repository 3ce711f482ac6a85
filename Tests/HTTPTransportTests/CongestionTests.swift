import EventLoop
import HTTPServer
import Support
import Testing

@testable import HTTPTransport

private let fine = HTTPServerResponse(status: 200)

/// 8 KiB in a head: those wait for no window of the peer's.
private let large = String(repeating: "0123456789abcdef", count: 512)

private func paths(_ count: Int) -> [String] { (0..<count).map { "/\($0)" } }

@Suite("Bytes that a socket has not taken", .timeLimit(.minutes(1))) struct OutputBuffers {
    @Test("What was taken does not stay, however long the buffer is topped up and never empty")
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

    @Test("Large or small, once it is empty nothing is left")
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

/// The most that was seen. Confined to a loop.
private final class Peak: @unchecked Sendable {
    var bytes = 0
    var looks = 0

    func see(_ pool: HTTP2Pool) {
        bytes = max(bytes, pool.connections.reduce(0) { $0 + $1.outputMemory })
        looks += 1
    }
}

@Suite("A pool whose peer does not read", .timeLimit(.minutes(2))) struct PoolCongestion {
    /// One connection through a tunnel, on which a first request has been answered.
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

    /// Starts so much at once that the socket takes no more.
    private func congest(
        _ bench: PoolBench,
        _ tunnel: Tunnel,
        timeout: Duration
    ) async throws -> Results {
        try await bench.loop.onLoop { tunnel.isPaused = true }
        let results = try await bench.start(paths(1500), headSuffix: large, timeout: timeout)
        _ = try await eventually("a full socket") {
            try await bench.loop.onLoop { bench.pool.connections.allSatisfy(\.isCongested) }
                ? () : nil
        }
        return results
    }

    @Test("A slow reader gets everything, and little memory waits for it")
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

    @Test("A connection whose requests are over is closed even where its socket takes no goodbye")
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
            // What the socket had taken may arrive; what is said not to have been sent does not.
            let notSent = all.indices.filter { all[$0].error?.requestWasNotSent == true }
            #expect(!notSent.isEmpty && notSent.count < all.count)
            #expect(try await bench.send(["/first"]).first?.status == 200)
            let arrived = Set(server.received.map(\.path))
            #expect(notSent.allSatisfy { !arrived.contains("/\($0)") })
        }
    }
}
