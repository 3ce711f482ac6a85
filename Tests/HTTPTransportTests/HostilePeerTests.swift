import EventLoop
import HTTPServer
import Support
import Testing

@testable import HTTPTransport

/// Behaviour of a peer on each of its connections, beside SETTINGS and answers to PING.
struct Hostility: Sendable, CustomStringConvertible {
    var name: String
    /// The bytes that replace SETTINGS.
    var greeting: [UInt8]?
    /// The bytes for the stream of a complete request.
    var answer: @Sendable (Int) -> [UInt8]
    /// The bytes that are repeated after that, as fast as they are accepted.
    var flood: (@Sendable (Int) -> [UInt8])?

    init(
        _ name: String,
        greeting: [UInt8]? = nil,
        flood: (@Sendable (Int) -> [UInt8])? = nil,
        answer: @escaping @Sendable (Int) -> [UInt8] = { WireFrame.answer($0).bytes }
    ) {
        self.name = name
        self.greeting = greeting
        self.flood = flood
        self.answer = answer
    }

    var description: String { name }

    func script(_ connection: FramePeer.Connection, _ event: FramePeer.Event) {
        switch event {
        case .opened: connection.write(greeting ?? WireFrame.settings().bytes)
        case .frame(let frame):
            let isData = frame.isA(.data) && frame.flags & WireFrame.endStream != 0
            if frame.isA(.ping), frame.flags == 0 {
                connection.write(WireFrame(.ping, flags: 1, frame.payload))
            } else if isData {
                connection.write(answer(frame.stream))
                connection.count = frame.stream
                if let flood { connection.write(flood(frame.stream)) }
            }
        case .written:
            if let flood, connection.count > 0 { connection.write(flood(connection.count)) }
        case .closed: break
        }
    }
}

extension Hostility {
    static let settings: [Hostility] = {
        let entries: [(Int, Int)] = [
            (1, 0), (1, 0xFFFF_FFFF), (2, 1), (2, 7), (3, 1), (3, 0xFFFF_FFFF), (4, 0x7FFF_FFFF),
            (4, 0xFFFF_FFFF), (4, 1), (5, 0), (5, 16_384), (5, 0xFF_FFFF), (5, 0xFFFF_FFFF), (6, 0),
            (6, 1), (8, 1), (8, 2), (9, 9), (0xFFFF, 0xFFFF_FFFF),
        ]
        var all = entries.map { entry in
            Hostility("SETTINGS \(entry)", greeting: WireFrame.settings(entry).bytes)
        }
        let many = (0..<2000).flatMap { _ in [0, 9, 0, 0, 0, 9] as [UInt8] }
        all += [
            Hostility(
                "SETTINGS of 5 bytes",
                greeting: WireFrame(.settings, [0, 3, 0, 0, 0]).bytes
            ),
            Hostility("2000 settings", greeting: WireFrame(.settings, many).bytes),
            Hostility(
                "SETTINGS on a stream",
                greeting: WireFrame(.settings, stream: 1).bytes
            ),
            Hostility("no HTTP/2", greeting: Array("HTTP/1.1 400 Bad Request\r\n\r\n".utf8)),
            Hostility("zeros", greeting: [UInt8](repeating: 0, count: 100_000)),
        ]
        return all
    }()

    static let goodbyes: [Hostility] = {
        let ids: [[Int]] = [
            [0], [0x7FFF_FFFF], [2], [-1], [1, 0], [5, 3, 1], [1, 5], [1, 1], [0x7FFF_FFFF, 0],
        ]
        return ids.map { ids in
            Hostility("GOAWAY \(ids)") { _ in ids.flatMap { WireFrame.goaway($0).bytes } }
        } + [
            Hostility("GOAWAY of 7 bytes") { _ in WireFrame(.goaway, [0, 0, 0, 0, 0, 0, 0]).bytes },
            Hostility("GOAWAY with a long text") { _ in
                let text = [UInt8](repeating: 0xFF, count: 16_000)
                return WireFrame(.goaway, bigEndian(1) + bigEndian(-1) + text).bytes
            },
        ]
    }()

    static let resets = (Array(0...14) + [0xFF, 0xFFFF_FFFF]).map { code in
        Hostility("RST_STREAM \(code)") { WireFrame.reset($0, code: code).bytes }
    }

    static let heads: [Hostility] = {
        let statuses = ["000", "099", "99", "-20", "1e9", "999", "2000", "", "２００", "20\u{0}"]
        var all = statuses.map { status in
            Hostility("status \(status.debugDescription)") {
                WireFrame.head($0, [(":status", status)], ends: true).bytes
            }
        }
        let fields: [[(String, String)]] = [
            [], [("a", "b")], [(":status", "200"), (":status", "500")],
            [(":status", "200"), ("Upper", "x")], [(":status", "200"), ("a", "b\r\nc: d")],
            [(":status", "200"), ("connection", "close")], [(":path", "/"), (":status", "200")],
            [(":status", "200"), ("content-length", "99999999999999999999")],
            [(":status", "200"), ("content-length", "-1")],
            [(":status", "200"), ("", "x")], [(":status", "101")],
        ]
        all += fields.map { fields in
            Hostility("head \(fields)") { WireFrame.head($0, fields, ends: true).bytes }
        }
        let manyFields = Array(repeating: ("a", String(repeating: "b", count: 100)), count: 150)
        all += [
            Hostility("a head of 100 KB") { stream in
                WireFrame.head(stream, [(":status", "200")], isWhole: false).bytes
                    + (0..<6).flatMap { part in
                        WireFrame(
                            .continuation,
                            flags: part == 5 ? WireFrame.endHeaders : 0,
                            stream: stream,
                            WireFrame.block(manyFields)
                        ).bytes
                    }
            },
            Hostility("no HPACK") {
                WireFrame(.headers, flags: 5, stream: $0, [0xFF, 0xFF, 0xFF, 0xFF, 0xFF]).bytes
            },
            Hostility("a table of any size") {
                WireFrame(.headers, flags: 5, stream: $0, [0x3F, 0xE1, 0xFF, 0xFF, 0x7F, 0x88])
                    .bytes
            },
            Hostility("CONTINUATION of nothing") {
                WireFrame(.continuation, flags: 4, stream: $0, [0x88]).bytes
            },
            Hostility("PUSH_PROMISE") {
                WireFrame(.pushPromise, flags: 4, stream: $0, bigEndian(2) + [0x82]).bytes
            },
            Hostility("streams that nobody opened") { stream in
                WireFrame.answer(stream + 1000).bytes + WireFrame.answer(2).bytes
            },
            Hostility("a frame of 16 MB") { stream in
                WireFrame(.data, stream: stream, [UInt8](repeating: 0, count: 0xFF_FFFF)).bytes
            },
            Hostility("more padding than there is") {
                WireFrame(.data, flags: 8, stream: $0, [200, 1, 2]).bytes
            },
            Hostility("a body before its head") {
                WireFrame(.data, flags: 1, stream: $0, [1]).bytes + WireFrame.answer($0).bytes
            },
            Hostility("two answers") { WireFrame.answer($0).bytes + WireFrame.answer($0).bytes },
            Hostility("windows beyond 2^31") { stream in
                WireFrame.windowUpdate(stream, 0x7FFF_FFFF).bytes
                    + WireFrame.windowUpdate(0, 0x7FFF_FFFF).bytes
            },
            Hostility("windows of nothing") { WireFrame.windowUpdate($0, 0).bytes },
        ]
        return all
    }()

    private static func many(_ frame: WireFrame) -> [UInt8] {
        let bytes = frame.bytes
        return (0..<max(1, 65_536 / bytes.count)).flatMap { _ in bytes }
    }

    /// Floods without an end and without an answer.
    static let floods: [Hostility] = {
        let small: [(String, @Sendable (Int) -> WireFrame)] = [
            ("PING", { _ in WireFrame(.ping, Array(repeating: 1, count: 8)) }),
            ("answers to PING", { _ in WireFrame(.ping, flags: 1, Array(repeating: 1, count: 8)) }),
            ("SETTINGS", { _ in .settings((4, 65_535)) }),
            ("SETTINGS acknowledged", { _ in WireFrame(.settings, flags: 1) }),
            ("unknown frames", { _ in WireFrame(kind: 0xBB, flags: 0xFF, stream: 7, [1, 2, 3]) }),
            ("unknown frames of nothing", { WireFrame(kind: 0x0C, stream: $0, []) }),
            ("PRIORITY", { WireFrame(.priority, stream: $0, [0, 0, 0, 9, 1]) }),
            ("WINDOW_UPDATE", { _ in .windowUpdate(0, 1) }),
            ("empty DATA", { WireFrame(.data, stream: $0 + 2) }),
            ("interim answers", { .head($0, [(":status", "103"), ("link", "x")]) }),
            ("GOAWAY", { _ in .goaway(0x7FFF_FFFF) }),
            ("RST_STREAM of another", { _ in .reset(1, code: 8) }),
            ("CONTINUATION", { WireFrame(.continuation, stream: $0, [0x88]) }),
        ]
        let silent = small.map { name, frame in
            Hostility("endless \(name)", flood: { many(frame($0)) }, answer: { _ in [] })
        }
        return silent + [
            Hostility(
                "an endless body",
                flood: { many(WireFrame(.data, stream: $0, [UInt8](repeating: 1, count: 16_000))) },
                answer: { WireFrame.head($0, [(":status", "400")]).bytes }
            ),
            Hostility(
                "an endless head",
                flood: {
                    many(WireFrame(.continuation, stream: $0, WireFrame.block([("a", "b")])))
                },
                answer: { WireFrame.head($0, [(":status", "200")], isWhole: false).bytes }
            ),
            Hostility(
                "an answer, and endless unknown frames",
                flood: { _ in many(WireFrame(kind: 0xBB, [])) }
            ),
        ]
    }()
}

@Suite("A hostile HTTP/2 server", .timeLimit(.minutes(3))) struct HostilePeers {
    /// Expects each request to end once, and a neighbour on the same loop to be answered meanwhile.
    /// With `endsSoon` the end of the connection ends the requests, not their deadline.
    private func run(_ all: [Hostility], endsSoon: Bool = false) async throws {
        try await withLocalServer { _ in
            HTTPServerResponse(status: 200)
        } _: { server, neighbours in
            try await PoolBench.run(
                server.origin,
                neighbours,
                caFile: server.caFile
            ) { neighbour in
                for hostility in all {
                    try await meet(hostility, beside: neighbour, endsSoon: endsSoon)
                }
            }
        }
    }

    private func meet(
        _ hostility: Hostility,
        beside neighbour: PoolBench,
        endsSoon: Bool
    ) async throws {
        try await FramePeer.run(hostility.script) { peer, _ in
            try await PoolBench.run(
                peer.origin,
                neighbour.loop,
                caFile: peer.caFile,
                change: { $0.stallTimeout = .milliseconds(200) }
            ) { bench in
                let results = try await bench.start(
                    (0..<5).map { "/\($0)" },
                    timeout: endsSoon ? .seconds(20) : .milliseconds(1500)
                )
                while results.all(5) == nil {
                    let start = ContinuousClock.now
                    let answers = try await neighbour.send(["/"], timeout: .seconds(10))
                    #expect(answers.first?.status == 200, "beside \(hostility)")
                    #expect(.now - start < .seconds(3), "beside \(hostility)")
                    await neighbour.loop.turn()
                }
                let timeouts = results.all(5)?.count { $0.error?.kind == .timeout }
                #expect(!endsSoon || timeouts == 0, "\(hostility)")
                let (inside, retired) = try await bench.loop.onLoop { [pool = bench.pool] in
                    (pool.requestsInside, pool.connections.count { $0.rule.isRetiring })
                }
                #expect(inside == 0, "\(hostility)")
                #expect(retired <= 4, "\(hostility)")
                // Eight are allowed, then they are opened ever more slowly.
                #expect(peer.connections <= 20, "\(hostility): \(peer.connections)")
            }
        }
    }

    @Test("Invalid settings end each request once") func settings() async throws {
        try await run(Hostility.settings)
    }

    @Test("Invalid GOAWAY frames end each request once") func goodbyes() async throws {
        try await run(Hostility.goodbyes)
    }

    @Test("RST_STREAM with any code ends its request once") func resets() async throws {
        try await run(Hostility.resets)
    }

    @Test("Invalid heads and bodies end each request once") func heads() async throws {
        try await run(Hostility.heads)
    }

    @Test("A flood ends its own connection, and nothing else") func floods() async throws {
        try await run(Hostility.floods, endsSoon: true)
    }
}

extension EventLoop {
    /// Waits for a moment, so that a test which polls leaves time for the work that it waits for.
    fileprivate nonisolated func turn() async {
        await withCheckedContinuation { continuation in
            execute { self.schedule(after: .milliseconds(50)) { continuation.resume() } }
        }
    }
}
