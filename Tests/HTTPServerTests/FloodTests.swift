import HTTPServer
import Observability
import Support
import Testing

@testable import HTTP2

/// Frames that are cheap to send and expensive to process.
@Suite(.timeLimit(.minutes(1)))
struct FloodTests {
    private static let enhanceYourCalm = 11

    /// Sends until the server ends its side, and returns the error of its GOAWAY.
    private func flood(
        _ server: TestServer,
        _ start: [Frame] = [],
        with frames: (Int) -> [Frame]
    ) async throws -> Int? {
        let wire = try await FrameWire(port: server.port)
        defer { wire.close() }
        for frame in start { try await wire.send(frame) }
        for turn in 0..<400 {
            // A server that has closed the connection accepts no more.
            do { try await wire.send(frames(turn)) } catch { break }
        }
        wire.endOutput()
        return try await wire.rest().last { $0.isA(.goaway) }?.number(at: 4)
    }

    private func expectsCalm(
        _ start: [Frame] = [],
        with frames: @escaping (Int) -> [Frame]
    ) async throws {
        try await withServer { server in
            let code = try await flood(server, start, with: frames)
            #expect(code == Self.enhanceYourCalm)
            let count = server.metrics.counter(.httpRefused, ["reason": "flood"]).value
            #expect(count == 1)
            // Other clients are still served.
            let found = try await server.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(found.map(\.status) == [200])
        }
    }

    @Test func requestsThatAreResetAtOnce() async throws {
        try await expectsCalm { turn in
            (0..<10).flatMap { index in
                let stream = 2 * (10 * turn + index) + 1
                return [
                    requestHead(stream, "GET", "/slow"),
                    Frame(.reset, stream: stream, bigEndianBytes(8)),
                ]
            }
        }
    }

    /// Here the server resets the streams itself: a request without a path is a stream error.
    @Test func requestsThatTheServerHasToReset() async throws {
        let block = headerBlock([(":method", "GET"), (":scheme", "http")])
        try await expectsCalm { turn in
            (0..<10).map { index in
                Frame(
                    .headers,
                    flags: Frame.endHeaders | Frame.endStream,
                    stream: 2 * (10 * turn + index) + 1,
                    block
                )
            }
        }
    }

    @Test func pings() async throws {
        try await expectsCalm { _ in
            [Frame](repeating: Frame(.ping, [0, 0, 0, 0, 0, 0, 0, 1]), count: 20)
        }
    }

    @Test func settings() async throws {
        try await expectsCalm { _ in [Frame](repeating: Frame(.settings), count: 20) }
    }

    @Test func longSettings() async throws {
        let entries = (0..<1000).flatMap { _ in [UInt8](arrayLiteral: 0, 3, 0, 0, 0, 1) }
        // This bound is libnghttp2's own, which has no counter.
        try await withServer { server in
            let code = try await flood(server) { _ in [Frame(.settings, entries)] }
            #expect(code == Self.enhanceYourCalm)
        }
    }

    @Test func emptyData() async throws {
        try await expectsCalm([requestHead(1, "POST", "/echo", ends: false)]) { _ in
            [Frame](repeating: Frame(.data, stream: 1), count: 20)
        }
    }

    @Test func priorities() async throws {
        try await expectsCalm { turn in
            [Frame](
                repeating: Frame(kind: 2, stream: 2 * turn + 1, bigEndianBytes(0) + [16]),
                count: 20
            )
        }
    }

    @Test(arguments: [UInt8(10), 12, 16, 77, 255])
    func framesOfUnknownTypes(_ kind: UInt8) async throws {
        try await expectsCalm { _ in
            [Frame](repeating: Frame(kind: kind, [1, 2, 3]), count: 20)
        }
    }

    @Test func windowUpdates() async throws {
        try await expectsCalm { _ in
            [Frame](repeating: Frame(.windowUpdate, bigEndianBytes(1)), count: 1000)
        }
    }

    @Test func continuationsWithoutEnd() async throws {
        let block = headerBlock([(":method", "GET"), (":scheme", "http"), (":path", "/")])
        let head = Frame(.headers, flags: Frame.endStream, stream: 1, block)
        try await expectsCalm([head]) { turn in
            [Frame(.continuation, stream: 1, headerBlock([("x-\(turn)", "a")]))]
        }
    }

    @Test func emptyContinuations() async throws {
        let head = Frame(.headers, flags: Frame.endStream, stream: 1, headerBlock([]))
        try await expectsCalm([head]) { _ in
            [Frame](repeating: Frame(.continuation, stream: 1), count: 20)
        }
    }

    /// A few bytes that name a long entry of the table many times.
    @Test func headersThatGrowByTheTable() async throws {
        let long = [UInt8](repeating: 97, count: 3000)
        // A literal with indexing: name `x`, the value's length as an HPACK integer, the value.
        let entry: [UInt8] = [0x40, 1, 120, 127, 0xB9, 0x16] + long
        let bomb = [UInt8](repeating: 0x80 | 62, count: 12_000)
        try await expectsCalm { turn in
            [
                Frame(
                    .headers,
                    flags: Frame.endHeaders | Frame.endStream,
                    stream: 2 * turn + 1,
                    entry + bomb
                )
            ]
        }
    }

    /// A bucket is full at first, empties, and fills with time.
    @Test(arguments: FloodGuard.Kind.allCases)
    func aBucketFillsWithTime(_ kind: FloodGuard.Kind) {
        var guarded = FloodGuard()
        let start = ContinuousClock.now
        let burst = (0..<Int(kind.burst)).map { _ in guarded.admit(kind, at: start) }
        #expect(!burst.contains(false))
        let next = guarded.admit(kind, at: start)
        #expect(!next)
        var steady = FloodGuard()
        for second in 0..<20 {
            let found = (0..<Int(kind.perSecond)).map { _ in
                steady.admit(kind, at: start + .seconds(second))
            }
            #expect(!found.contains(false))
        }
    }

    /// An honest client's traffic is not a flood: hundreds of cancelled requests within seconds.
    @Test func somePingsAndCancelledRequestsAreTaken() async throws {
        try await withServer { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            for index in 0..<80 {
                let stream = 2 * index + 1
                try await wire.send(
                    requestHead(stream, "GET", "/hello/x"),
                    Frame(.ping, [0, 0, 0, 0, 0, 0, 0, 1]),
                    Frame(kind: 77, [1, 2, 3]),
                    Frame(.reset, stream: stream, bigEndianBytes(8))
                )
                _ = try await wire.next(.ping)
            }
            try await wire.send(requestHead(999, "GET", "/hello/x"))
            #expect(try await wire.body(of: 999) == "hello x")
        }
    }
}
