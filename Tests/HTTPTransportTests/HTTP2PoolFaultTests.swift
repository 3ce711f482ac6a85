import Cryptography
import EventLoop
import Foundation
import HTTPServer
import Support
import Testing

@testable import HTTPTransport

private func paths(_ count: Int) -> [String] { (0..<count).map { "/\($0)" } }

/// The most events in one turn of a loop. Confined to the loop.
private final class TurnCount: @unchecked Sendable {
    private let loop: EventLoop
    private var now = 0
    private(set) var most = 0

    init(_ loop: EventLoop) { self.loop = loop }

    func count() {
        now += 1
        most = max(most, now)
        guard now == 1 else { return }
        loop.atEndOfTurn { self.now = 0 }
    }
}

private let fine = HTTPServerResponse(status: 200)

@Suite("A pool whose server misbehaves", .timeLimit(.minutes(2))) struct PoolFaults {
    @Test("After GOAWAY unprocessed requests move silently, and no request is processed twice")
    func goaway() async throws {
        try await withLocalServer(maxConcurrentStreams: 50) { request in
            // This is each connection's 71st.
            guard let stream = request.streamID, stream == 141 else { return fine }
            var response = fine
            // This one, and all that came after it, were not processed.
            response.ending = { $0.goaway(lastStreamID: stream - 2, code: 0, data: []) }
            return response
        } _: { server, loop in
            try await PoolBench.run(server.origin, loop, caFile: server.caFile) { bench in
                let results = try await bench.send(paths(1000))
                #expect(results.allSatisfy { $0.status == 200 })
                #expect(Set(server.received.map(\.connectionID)).count > 10)
                // nginx does this too, only later: nothing was delayed by it.
                let reconnect = try await loop.onLoop { bench.pool.reconnect }
                #expect(reconnect.earlyEnds == 0 && reconnect.failures == 0)
            }
        }
    }

    @Test("A server that ends each connection after one response gets new ones at a bounded rate")
    func goawayStorm() async throws {
        try await withLocalServer(maxConcurrentStreams: 1) { request in
            var response = fine
            let stream = request.streamID
            response.ending = {
                $0.answer()
                $0.goaway(lastStreamID: stream, code: 0, data: [])
            }
            return response
        } _: { server, loop in
            try await PoolBench.run(
                server.origin,
                loop,
                caFile: server.caFile,
                change: { $0.maximumConnections = 2 }
            ) { bench in
                let results = try await bench.send(paths(200), timeout: .seconds(3))
                // Four are allowed, then they are opened ever more slowly: not 50 in three seconds.
                let connections = Set(server.received.map(\.connectionID)).count
                #expect(connections >= 5 && connections < 50)
                #expect(results.count { $0.status == 200 } == connections)
                for error in results.compactMap(\.error) { #expect(error.requestWasNotSent) }
                #expect(try await loop.onLoop { bench.pool.reconnect.earlyEnds } > 0)
            }
        }
    }

    @Test("A refused stream is sent again, a bounded number of times")
    func refused() async throws {
        let first = FirstTime()
        try await withLocalServer { request in
            var response = fine
            if request.path == "/never" || first.take() { response.ending = { $0.reset(code: 7) } }
            return response
        } _: { server, loop in
            try await PoolBench.run(server.origin, loop, caFile: server.caFile) { bench in
                #expect(try await bench.send(["/once"]).first?.status == 200)
                #expect(server.received.count == 2)
                let never = try await bench.send(["/never"])
                #expect(never.first?.error?.requestWasNotSent == true)
            }
        }
    }

    @Test("A reset stream is in doubt, and sent once")
    func reset() async throws {
        try await withLocalServer { _ in
            HTTPServerResponse(status: 200, ending: { $0.reset(code: 2) })
        } _: { server, loop in
            try await PoolBench.run(server.origin, loop, caFile: server.caFile) { bench in
                let error = try await bench.send(["/"]).first?.error
                #expect(error?.kind == .connectionLost && error?.isInDoubt == true)
                #expect(server.received.count == 1)
            }
        }
    }

    @Test("An unanswered request ends in doubt at its deadline, and the others are not delayed")
    func silence() async throws {
        try await withLocalServer(maxConcurrentStreams: 20) { request in
            var response = fine
            if request.path.hasSuffix("9") { response.ending = { _ in } }
            return response
        } _: { server, loop in
            try await PoolBench.run(server.origin, loop, caFile: server.caFile) { bench in
                let silent = try await bench.start(
                    (0..<10).map { "/\($0)9" },
                    timeout: .milliseconds(800)
                )
                let results = try await bench.send((0..<100).map { "/\($0)0" })
                #expect(results.allSatisfy { $0.status == 200 })
                let all = try await eventually("all") { silent.all(10) }
                #expect(all.allSatisfy { $0.error?.kind == .timeout })
                #expect(all.allSatisfy { $0.error?.isInDoubt == true })
                #expect(server.received.count == 110)
            }
        }
    }

    @Test(
        "A request that has waited for a stream still has half of its time for the answer, or as much as its owner wants",
        arguments: [nil, Duration.milliseconds(2000)]
    )
    func waited(answerTime: Duration?) async throws {
        try await withLocalServer(maxConcurrentStreams: 1) { _ in
            HTTPServerResponse(status: 200, ending: { _ in })
        } _: { server, loop in
            try await PoolBench.run(
                server.origin,
                loop,
                caFile: server.caFile,
                change: { $0.maximumConnections = 1 }
            ) { bench in
                let begun = ContinuousClock.now
                let first = try await bench.start(["/first"], timeout: .milliseconds(2000))
                let second = try await bench.start(
                    ["/second"],
                    timeout: .milliseconds(2400),
                    answerTime: answerTime
                )
                let error = try await eventually("its end") { second.all(1) }.first?.error
                // The first one had the only stream for 2,000 ms.
                let least = Duration.milliseconds(2000) + (answerTime ?? .milliseconds(1200))
                #expect(begun.duration(to: .now) >= least)
                #expect(error?.kind == .timeout && error?.isInDoubt == true)
                #expect(first.all(1)?.first?.error?.isInDoubt == true)
                #expect(server.received.map(\.path) == ["/first", "/second"])
            }
        }
    }

    @Test("Requests to a silent server end at their deadlines and were not sent")
    func mute() async throws {
        let loop = try EventLoop(name: "mute")
        let port = try await loop.onLoop {
            try TCPListener(host: "127.0.0.1", port: 0, on: loop) { _ in }.port
        }
        try await PoolBench.run("https://127.0.0.1:\(port)", loop) { bench in
            let error = try await bench.send(["/"], timeout: .milliseconds(300)).first?.error
            #expect(error?.kind == .timeout && error?.requestWasNotSent == true)
        }
        await loop.stop()
    }

    @Test("A thousand deadlines of one moment end in batches, with other work in between")
    func portions() async throws {
        let loop = try EventLoop(name: "mute")
        let port = try await loop.onLoop {
            try TCPListener(host: "127.0.0.1", port: 0, on: loop) { _ in }.port
        }
        try await PoolBench.run("https://127.0.0.1:\(port)", loop) { bench in
            let head = try HTTP2RequestHead(origin: try HTTP2Origin(bench.origin), headers: [])
            let (turns, results) = (TurnCount(loop), Results())
            try await loop.onLoop {
                let requests = (0..<1000).map {
                    HTTP2Request(head, path: "/\($0)", timeout: .milliseconds(300))
                }
                bench.pool.send(requests) { index, result in
                    turns.count()
                    results.add(index, result)
                }
            }
            let all = try await eventually("all") { results.all(1000) }
            #expect(all.allSatisfy { $0.error?.kind == .timeout })
            // A batch of this tick, and one left over from the tick before.
            #expect(try await loop.onLoop { turns.most } <= 2 * HTTP2Pool.endsOfTurn)
        }
        await loop.stop()
    }

    @Test("A failure before a request goes out has its reason, and that nothing was sent")
    func notSent() async throws {
        let loop = try EventLoop(name: "client")
        // Nothing listens on port 1.
        let cases: [(String, HTTPTransportError.Kind)] = [
            ("https://127.0.0.1:1", .connect), ("https://no-such-host.invalid", .resolve),
        ]
        for (origin, kind) in cases {
            try await PoolBench.run(
                origin,
                loop,
                change: {
                    guard let anywhere = try? HostPolicy(["no-such-host.invalid:443"]),
                        kind == .resolve
                    else { return }
                    $0.transport.allowedHosts = anywhere
                }
            ) { bench in
                let results = try await bench.send(paths(3))
                #expect(results.allSatisfy { $0.error?.kind == kind })
                #expect(results.allSatisfy { $0.error?.requestWasNotSent == true })
            }
        }
        await loop.stop()
    }

    @Test("An allowed host must have a public address")
    func privateAddress() async throws {
        try await withLocalServer { _ in
            fine
        } _: { server, loop in
            try await PoolBench.run(
                "https://localhost",
                loop,
                change: {
                    if let policy = try? HostPolicy(["localhost"]) {
                        $0.transport.allowedHosts = policy
                    }
                }
            ) { bench in
                let error = try await bench.send(["/"]).first?.error
                #expect(error?.kind == .hostRefused && error?.requestWasNotSent == true)
            }
            var configuration = HTTP2PoolConfiguration(
                origin: server.origin,
                transport: HTTPTransportConfiguration(allowedHosts: try HostPolicy(["other"]))
            )
            #expect(throws: HTTPTransportError.self) {
                _ = try HTTP2Pool(configuration, on: loop)
            }
            configuration.transport.caFile = "/no/such/file"
            configuration.transport.allowedHosts = try HostPolicy(origin: server.origin)
            #expect(throws: HTTPTransportError.self) {
                _ = try HTTP2Pool(configuration, on: loop)
            }
        }
    }

    @Test(
        "A wrong authority, a wrong name and a missing HTTP/2 are distinct errors, with nothing sent"
    )
    func untrusted() async throws {
        try await withLocalServer { _ in
            fine
        } _: { server, loop in
            try await PoolBench.run(server.origin, loop) { bench in
                let error = try await bench.send(["/"]).first?.error
                #expect(error?.kind == .tls && error?.requestWasNotSent == true)
            }
            let other = "https://other.localhost:\(server.port)"
            try await PoolBench.run(other, loop, caFile: server.caFile) { bench in
                let error = try await bench.send(["/"]).first?.error
                #expect(error?.kind == .tls)
            }
            #expect(server.received.isEmpty)
        }
        try await withLocalServer(protocols: [.http11]) { _ in
            fine
        } _: { server, loop in
            try await PoolBench.run(server.origin, loop, caFile: server.caFile) { bench in
                let error = try await bench.send(["/"]).first?.error
                // It is refused in the handshake or after it: in both cases nothing was sent.
                #expect(error?.kind == .protocolViolation || error?.kind == .tls)
                #expect(error?.requestWasNotSent == true)
            }
        }
    }

    @Test("A certificate that is itself in the CA file is trusted, as in libcurl, and no other")
    func partialChain() async throws {
        try await withLocalServer { _ in
            fine
        } _: { server, loop in
            let other = try server.authority.issue(hosts: ["other"])
            for (pem, status) in [(server.certificatePEM, 200), (other.certificatePEM, nil)] {
                let file =
                    FileManager.default.temporaryDirectory.path
                    + "/" + TestEnvironment.unique("leaf-") + ".pem"
                try pem.write(toFile: file, atomically: true, encoding: .utf8)
                defer { try? FileManager.default.removeItem(atPath: file) }
                try await PoolBench.run(server.origin, loop, caFile: file) { bench in
                    let result = try await bench.send(["/"]).first
                    #expect(result?.status == status)
                    if status == nil { #expect(result?.error?.kind == .tls) }
                }
            }
        }
    }

    @Test("The certificate from memory authenticates the client")
    func clientCertificate() async throws {
        try await withLocalServer(requestsClientCertificate: true) { request in
            .text(request.clientCertificateSubject ?? "none")
        } _: { server, loop in
            let pair = try server.authority.issue(hosts: ["pusher"], client: true)
            try await PoolBench.run(
                server.origin,
                loop,
                caFile: server.caFile,
                change: {
                    $0.transport.clientCertificate = .init(
                        certificatePEM: pair.certificatePEM,
                        privateKeyPEM: pair.privateKeyPEM
                    )
                }
            ) { bench in
                let answer = try await bench.send(["/"]).first?.get()
                #expect(answer.map { String(decoding: $0.body, as: UTF8.self) } == "CN=pusher")
            }
        }
    }

    @Test("A proxy that refuses means that nothing was sent")
    func proxy() async throws {
        try await withLocalServer { _ in
            fine
        } _: { server, loop in
            let proxy = ProxyThatRefuses()
            let port = try await loop.onLoop { try proxy.listen(on: loop) }
            try await PoolBench.run(
                server.origin,
                loop,
                caFile: server.caFile,
                change: { $0.transport.proxy = "http://127.0.0.1:\(port)" }
            ) { bench in
                let error = try await bench.send(["/"]).first?.error
                #expect(error?.kind == .proxy || error?.kind == .connectionLost)
                #expect(error?.requestWasNotSent == true)
                let head = try await loop.onLoop { proxy.head }
                #expect(head.hasPrefix("CONNECT localhost:\(server.port) HTTP/1.1\r\n"))
                #expect(server.received.isEmpty)
            }
        }
    }

    @Test("A proxy that tunnels is used")
    func tunnel() async throws {
        try await withLocalServer { _ in
            fine
        } _: { server, loop in
            let tunnel = Tunnel(to: server.port)
            let port = try await loop.onLoop { try tunnel.listen(on: loop) }
            try await PoolBench.run(
                server.origin,
                loop,
                caFile: server.caFile,
                change: { $0.transport.proxy = "http://127.0.0.1:\(port)" }
            ) { bench in
                let results = try await bench.send(paths(300))
                #expect(results.allSatisfy { $0.status == 200 })
                #expect(try await loop.onLoop { tunnel.connections } > 0)
            }
        }
    }

    @Test("When a server dies, all requests in flight are in doubt, and the next server is found")
    func death() async throws {
        try await withLocalServer(maxConcurrentStreams: 100) { request in
            var response = fine
            if request.path != "/fine" { response.ending = { _ in } }
            return response
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
                }
            ) { bench in
                #expect(try await bench.send(["/fine"]).first?.status == 200)
                let results = try await bench.start(paths(120))
                _ = try await eventually("requests") { server.received.count > 100 ? () : nil }
                try await loop.onLoop { tunnel.cut() }
                // The rest follow on a new connection, until its streams are used too.
                _ = try await eventually("the rest") { server.received.count > 120 ? () : nil }
                try await loop.onLoop { bench.pool.close() }
                let all = try #require(results.all(120))
                // Each was sent once, and not silently again.
                #expect(all.allSatisfy { $0.error != nil })
                #expect(all.count { $0.error?.isInDoubt == true } >= 100)
                let sent = server.received.filter { $0.path != "/fine" }.map(\.path)
                #expect(Set(sent).count == sent.count)
            }
        }
    }

    @Test("A peer that stops answering PING is closed long before the deadlines")
    func frozen() async throws {
        try await withLocalServer { _ in
            fine
        } _: { server, loop in
            let tunnel = Tunnel(to: server.port)
            let port = try await loop.onLoop { try tunnel.listen(on: loop) }
            try await PoolBench.run(
                server.origin,
                loop,
                caFile: server.caFile,
                change: {
                    $0.pingAfter = .milliseconds(200)
                    $0.transport.proxy = "http://127.0.0.1:\(port)"
                }
            ) { bench in
                #expect(try await bench.send(["/"]).first?.status == 200)
                try await loop.onLoop { tunnel.isFrozen = true }
                let error = try await bench.send(["/"], timeout: .seconds(100)).first?.error
                #expect(error?.kind == .connectionLost && error?.isInDoubt == true)
            }
        }
    }

    @Test("A connection with a bad response is replaced, and the others stay")
    func retire() async throws {
        try await withLocalServer { _ in
            fine
        } _: { server, loop in
            try await PoolBench.run(server.origin, loop, caFile: server.caFile) { bench in
                for _ in 0..<3 {
                    let answer = try #require(try await bench.send(["/"]).first).get()
                    try await loop.onLoop {
                        bench.pool.retire(answer.connection, because: "a test")
                    }
                }
                #expect(Set(server.received.map(\.connectionID)).count == 3)
            }
        }
    }

    @Test("Idle connections are closed, and old ones replaced", arguments: [true, false])
    func idle(isOld: Bool) async throws {
        try await withLocalServer { _ in
            fine
        } _: { server, loop in
            try await PoolBench.run(
                server.origin,
                loop,
                caFile: server.caFile,
                change: {
                    if isOld {
                        $0.maximumAge = .milliseconds(1)
                    } else {
                        $0.idleTimeout = .milliseconds(1)
                    }
                }
            ) { bench in
                for _ in 0..<3 {
                    #expect(try await bench.send(["/"]).first?.status == 200)
                    _ = try await eventually("its end") {
                        try await loop.onLoop {
                            bench.pool.timePasses()
                            return bench.pool.connectionCount
                        } == 0 ? () : nil
                    }
                }
                #expect(Set(server.received.map(\.connectionID)).count == 3)
            }
        }
    }
}
