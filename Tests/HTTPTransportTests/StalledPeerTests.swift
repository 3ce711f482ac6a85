import EventLoop
import Support
import Testing

@testable import HTTPTransport

private let maxStreams = 3
private let initialWindow = 4

private func paths(_ count: Int) -> [String] { (0..<count).map { "/\($0)" } }

@Suite("A stalled peer", .timeLimit(.minutes(2))) struct StalledPeers {
    /// Behaviour of a peer's first connections; the later ones answer.
    enum Stall: CaseIterable {
        case noSettings, noStreams, noStreamsAfterOne, noWindow, noConnectionWindow
    }

    /// Makes a peer whose first `bad` connections stall, and whose others answer each complete
    /// request.
    private static func script(
        _ stall: Stall,
        bad: Int = 1
    ) -> @Sendable (FramePeer.Connection, FramePeer.Event) -> Void {
        return { connection, event in
            let isBad = connection.number <= bad
            switch event {
            case .opened:
                switch stall {
                case _ where !isBad:
                    connection.write(.settings((initialWindow, 1 << 20)))
                    connection.write(.windowUpdate(0, 1 << 20))
                case .noSettings: break
                case .noStreams: connection.write(.settings((maxStreams, 0)))
                case .noStreamsAfterOne: connection.write(.settings((maxStreams, 1)))
                case .noWindow: connection.write(.settings((initialWindow, 0)))
                case .noConnectionWindow: connection.write(.settings((initialWindow, 1 << 20)))
                }
            case .frame(let frame):
                if frame.isA(.settings), frame.flags == 0 {
                    if !isBad || stall != .noSettings {
                        connection.write(WireFrame(.settings, flags: WireFrame.acknowledgement))
                    }
                } else if frame.isA(.ping), frame.flags == 0 {
                    connection.write(
                        WireFrame(.ping, flags: WireFrame.acknowledgement, frame.payload)
                    )
                } else if frame.isA(.data), frame.flags & WireFrame.endStream != 0 {
                    connection.write(.answer(frame.stream))
                    if isBad, stall == .noStreamsAfterOne {
                        connection.write(.settings((maxStreams, 0)))
                    }
                }
            case .written, .closed: break
            }
        }
    }

    /// More than the initial 64 KiB of a connection's window.
    private static func body(_ stall: Stall) -> [UInt8] {
        [UInt8](repeating: 0x20, count: stall == .noConnectionWindow ? 70_000 : 100)
    }

    @Test("A stalled connection is replaced within seconds, and waiting requests use the next one")
    func replaced() async throws {
        for stall in Stall.allCases {
            try await FramePeer.run(Self.script(stall)) { peer, loop in
                try await PoolBench.run(
                    peer.origin,
                    loop,
                    caFile: peer.caFile,
                    change: { $0.maximumConnections = 1 }
                ) { bench in
                    let start = ContinuousClock.now
                    let results = try await bench.send(
                        paths(3),
                        body: Self.body(stall),
                        timeout: .seconds(15)
                    )
                    let errors = results.compactMap(\.error)
                    #expect(errors.isEmpty, "\(stall): \(errors)")
                    #expect(peer.connections == 2, "\(stall): \(peer.connections)")
                    #expect(.now - start < .seconds(10), "\(stall)")
                }
            }
        }
    }

    @Test("If every connection stalls, few are opened, and waiting requests get an error")
    func bounded() async throws {
        for stall in [Stall.noSettings, .noStreams, .noWindow] {
            try await FramePeer.run(Self.script(stall, bad: .max)) { peer, loop in
                try await PoolBench.run(
                    peer.origin,
                    loop,
                    caFile: peer.caFile,
                    change: { $0.stallTimeout = .milliseconds(200) }
                ) { bench in
                    let results = try await bench.send(paths(20), timeout: .seconds(20))
                    for error in results.map(\.error) {
                        #expect(error?.kind == .connectionLost, "\(stall): \(error as Any)")
                        #expect(error?.requestWasNotSent == true, "\(stall)")
                    }
                    #expect((3...6).contains(peer.connections), "\(stall): \(peer.connections)")
                    // One more attempt is made, after a wait that has grown.
                    let before = peer.connections
                    let again = try await bench.send(paths(20), timeout: .seconds(20))
                    #expect(again.allSatisfy { $0.error?.requestWasNotSent == true }, "\(stall)")
                    #expect(peer.connections <= before + 1, "\(stall)")
                    let reconnect = try await loop.onLoop { bench.pool.reconnect }
                    #expect(reconnect.failures >= 3, "\(stall)")
                }
            }
        }
    }

    @Test("A request that was sent completely is waited for, and others move to a new connection")
    func halfTaken() async throws {
        // A window for one body of 100 bytes; half of the second stays.
        try await FramePeer.run { connection, event in
            guard connection.number == 1 else {
                return Self.script(.noWindow, bad: 0)(connection, event)
            }
            if case .opened = event {
                connection.write(.settings((initialWindow, 0)))
            }
            if case .frame(let frame) = event, frame.isA(.headers), frame.stream == 1 {
                connection.write(.windowUpdate(1, 100))
            }
        } _: { peer, loop in
            try await PoolBench.run(
                peer.origin,
                loop,
                caFile: peer.caFile,
                change: {
                    $0.stallTimeout = .milliseconds(300)
                    $0.maximumConnections = 1
                }
            ) { bench in
                let results = try await bench.send(
                    paths(2),
                    body: Self.body(.noWindow),
                    timeout: .seconds(3)
                )
                #expect(results.first?.error?.kind == .timeout)
                #expect(results.first?.error?.isInDoubt == true)
                #expect(results.last?.status == 200)
            }
        }
    }
}
