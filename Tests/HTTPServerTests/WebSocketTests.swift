import Cryptography
import EventLoop
import Foundation
import Observability
import Support
import Testing

@testable import HTTPServer

/// WebSockets over real sockets, frame by frame.
@Suite(.timeLimit(.minutes(1)))
struct WebSocketTests {
    private func handshake(_ replace: [String: String?] = [:]) -> String {
        SocketWire.request().split(separator: "\r\n", omittingEmptySubsequences: false)
            .compactMap { line -> String? in
                let name = line.split(separator: ":").first.map(String.init) ?? ""
                guard let value = replace[name] else { return String(line) }
                return value.map { "\(name): \($0)" }
            }
            .joined(separator: "\r\n")
    }

    // MARK: Handshake

    @Test func theHandshakeIsThatOfTheStandard() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            let socket = try await SocketWire(
                port: server.port,
                fields: [
                    "Sec-WebSocket-Protocol: x, a",
                    "Sec-WebSocket-Protocol: b",
                    "Sec-WebSocket-Extensions: permessage-deflate",
                ]
            )
            defer { socket.close() }
            // RFC 6455 section 1.3 has this key and this answer.
            #expect(
                socket.head
                    == [
                        "HTTP/1.1 101 Switching Protocols", "Upgrade: websocket",
                        "Connection: Upgrade",
                        "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
                        "Sec-WebSocket-Protocol: a", "", "",
                    ].joined(separator: "\r\n")
            )
            #expect(await handler.next() == .opened("a"))
        }
    }

    @Test func anotherVersionIsToldTheRightOne() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            for version: String? in ["8", "", "13, 8", nil] {
                let reply = try #require(
                    try await server.exchange(handshake(["Sec-WebSocket-Version": version])).first
                )
                #expect(reply.status == 426)
                #expect(reply.head.contains("Sec-WebSocket-Version: 13\r\n"))
                #expect(reply.head.contains("Upgrade: websocket\r\n"))
            }
        }
    }

    @Test func anInvalidKeyIsRefused() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            for key: String? in [
                nil, "", "AAAA", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZQ=*",
                "dGhlIHNhbXBsZSBub25jZSE=", "====dGhlIHNhbXBsZSBub25jZQ",
            ] {
                let replies = try await server.exchange(handshake(["Sec-WebSocket-Key": key]))
                #expect(replies.map(\.status) == [400], "\(key ?? "no key")")
            }
        }
    }

    @Test func anOrdinaryRequestIsToldToUpgrade() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            for (name, value) in [("Upgrade", nil), ("Upgrade", "h2c"), ("Connection", "close")] {
                let reply = try #require(
                    try await server.exchange(handshake([name: value])).first
                )
                #expect(reply.status == 426)
                #expect(reply.head.contains("Upgrade: websocket\r\n"))
            }
            // HTTP/1.0 has no upgrade.
            let old = handshake().replacingOccurrences(of: "HTTP/1.1", with: "HTTP/1.0")
            #expect(try await server.exchange(old).map(\.status) == [426])
            // A list, in any case, is what browsers send.
            let list = handshake(["Connection": "keep-alive, UPGRADE", "Upgrade": "WebSocket"])
            let answer = try await server.exchange(Array(list.utf8))
            #expect(String(decoding: answer, as: UTF8.self).hasPrefix("HTTP/1.1 101 "))
        }
    }

    @Test func aPlainRouteIgnoresTheUpgrade() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            let replies = try await server.exchange(SocketWire.request("/plain"))
            #expect(replies.map(\.body) == ["plain"])
        }
    }

    /// Over HTTP/2 a socket's route answers as if no upgrade was asked for.
    @Test func overHTTP2ThereIsNoUpgrade() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(requestHead(1, "GET", "/socket"), requestHead(3, "GET", "/plain"))
            #expect(try await wire.body(of: 3) == "plain")
            #expect(try await wire.body(of: 1).contains("426"))
        }
    }

    // MARK: Bytes around the handshake

    @Test func framesInTheHandshakesPacketAreRead() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            for path in ["/socket", "/later"] {
                let early = SocketFrame.text("early").bytes() + SocketFrame.text("half").bytes()
                let socket = try await SocketWire(
                    port: server.port,
                    path,
                    early: Array(early.dropLast(3))
                )
                defer { socket.close() }
                #expect(try await socket.next() == .text("early"))
                try await socket.send(Array(early.suffix(3)))
                #expect(try await socket.next() == .text("half"))
            }
        }
    }

    @Test func aRequestBeforeTheHandshakeIsAnsweredFirst() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            let plain = "GET /plain HTTP/1.1\r\nHost: a\r\n\r\n"
            try await wire.send(
                Array((plain + SocketWire.request()).utf8) + SocketFrame.text("x").bytes()
            )
            let answer = try await wire.receive(until: "\u{1}x")
            #expect(answer.contains("plainHTTP/1.1 101 "))
        }
    }

    /// A client that has ended its side before the upgrade is not waited for.
    @Test(arguments: ["/socket", "/later"])
    func aClientThatHasLeftIsMissed(_ path: String) async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            let answer = try await server.exchange(
                Array(SocketWire.request(path).utf8) + SocketFrame.text("silent").bytes()
            )
            #expect(String(decoding: answer, as: UTF8.self).hasPrefix("HTTP/1.1 101 "))
            #expect(await handler.end() == 1006)
        }
    }

    // MARK: Messages

    @Test func everyByteMayComeAlone() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            let socket = try await SocketWire(port: server.port)
            defer { socket.close() }
            let frames = [
                SocketFrame.text("one", isFinal: false), SocketFrame(SocketFrame.ping, [1, 2]),
                .rest("two"), SocketFrame(SocketFrame.binary, [0, 255]),
            ]
            for byte in frames.flatMap({ $0.bytes() }) { try await socket.send([byte]) }
            #expect(try await socket.next() == SocketFrame(SocketFrame.pong, [1, 2]))
            #expect(try await socket.next() == .text("onetwo"))
            #expect(try await socket.next() == SocketFrame(SocketFrame.binary, [0, 255]))
        }
    }

    @Test func aSocketKeepsItsHandler() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            let socket = try await SocketWire(port: server.port, "/own")
            defer { socket.close() }
            try await socket.send(.text("hello"), .close(4000))
            #expect(try await socket.rest() == [.text("hello"), .close(4000)])
            #expect(await handler.end() == 4000)
        }
    }

    @Test func oneEncodedFrameServesManySends() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            let socket = try await SocketWire(port: server.port)
            defer { socket.close() }
            try await socket.send(.text("shared"), .text("ping"), .text("end"))
            #expect(try await socket.next() == .text("shared"))
            #expect(try await socket.next() == .text("shared"))
            #expect(try await socket.next() == SocketFrame(SocketFrame.ping))
            #expect(try await socket.next() == .text("end"))
        }
    }

    @Test func pingsAreNoted() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            let socket = try await SocketWire(port: server.port)
            defer { socket.close() }
            #expect(await handler.next() == .opened(nil))
            try await socket.send(SocketFrame(SocketFrame.ping), SocketFrame(SocketFrame.pong))
            #expect(try await socket.next() == SocketFrame(SocketFrame.pong))
            #expect(await handler.next() == .pinged(1))
        }
    }

    // MARK: Ends

    @Test func aClientsCloseIsAnsweredAndTold() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            let socket = try await SocketWire(port: server.port)
            defer { socket.close() }
            // The reply to a message before the close goes before the close, too.
            try await socket.send(.text("last words"), .close(4000, [65]), .text("too late"))
            #expect(try await socket.rest() == [.text("last words"), .close(4000, [65])])
            #expect(await handler.end() == 4000)
        }
    }

    @Test func theServersCloseIsTheLastFrame() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            let socket = try await SocketWire(port: server.port)
            defer { socket.close() }
            try await socket.send(.text("close 4001 away"), .text("ignored"))
            #expect(try await socket.next() == .close(4001, Array("away".utf8)))
            #expect(await handler.end() == 4001)
            // What was under way is not answered; the client's close ends the connection.
            try await socket.send(SocketFrame(SocketFrame.ping), .text("ignored"), .close(4001))
            #expect(try await socket.next() == nil)
        }
    }

    @Test func aClientThatDoesNotAnswerACloseIsCutOff() async throws {
        let handler = EchoHandler()
        var limits = WebSocketLimits()
        limits.closing = .milliseconds(100)
        try await withServer(
            configure: { $0.headTimeout = .milliseconds(800) },
            routes: handler.routes(limits)
        ) { server in
            let socket = try await SocketWire(port: server.port)
            defer { socket.close() }
            try await socket.send(.text("close 1001 away"))
            #expect(try await socket.rest() == [.close(1001, Array("away".utf8))])
        }
    }

    @Test func anAbortIsAReset() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            let socket = try await SocketWire(port: server.port)
            defer { socket.close() }
            try await socket.send(.text("abort"))
            await #expect(throws: TestFailure.self) { _ = try await socket.next() }
            #expect(await handler.end() == 1006)
        }
    }

    @Test func anIllegalFrameCanBeSent() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            let socket = try await SocketWire(port: server.port)
            defer { socket.close() }
            try await socket.send(.text("hello"), .text("illegal"))
            #expect(try await socket.next() == .text("hello"))
            #expect(try await socket.restBytes() == [0xc1, 0x00])
            #expect(await handler.end() == 1006)
        }
    }

    @Test func aVanishedClientIsMissed() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            let socket = try await SocketWire(port: server.port)
            try await socket.send(.text("silent", isFinal: false))
            socket.close()
            #expect(await handler.end() == 1006)
            let connections = server.metrics.gauge(.httpConnections)
            _ = try await eventually("no connection is left") {
                connections.value == 0 ? true : nil
            }
        }
    }

    @Test func violationsEndWithTheirCode() async throws {
        let handler = EchoHandler()
        var limits = WebSocketLimits()
        limits.messageBytes = 1000
        try await withServer(routes: handler.routes(limits)) { server in
            let large = SocketFrame(SocketFrame.binary, [UInt8](repeating: 0, count: 1001))
            for (code, bytes) in [
                (1002, SocketFrame.text("x").bytes(mask: nil)),
                (1002, SocketFrame(3).bytes()),
                (1002, SocketFrame(SocketFrame.text, reservedBits: 4).bytes()),
                (1007, SocketFrame(SocketFrame.text, [0xff]).bytes()),
                (1009, large.bytes()),
                (1002, SocketFrame.close(1005).bytes()),
            ] {
                let socket = try await SocketWire(port: server.port)
                defer { socket.close() }
                try await socket.send(SocketFrame.text("ok").bytes() + bytes)
                #expect(try await socket.rest().map(\.closeCode) == [nil, code])
                #expect(await handler.end() == code)
            }
        }
    }

    // MARK: Limits

    @Test func aSocketWithTooMuchQueuedIsDropped() async throws {
        let handler = EchoHandler()
        var limits = WebSocketLimits()
        limits.queuedBytes = 64 << 10
        try await withServer(routes: handler.routes(limits)) { server in
            let slow = try await SocketWire(port: server.port, receiveBufferBytes: 4096)
            defer { slow.close() }
            try await slow.send(.text("flood 10000"))
            #expect(await handler.end() == 1006)
            await #expect(throws: TestFailure.self) { while try await slow.next() != nil {} }
            // A burst within the limit arrives.
            let other = try await SocketWire(port: server.port)
            defer { other.close() }
            try await other.send(.text("flood 3"), .text("end"))
            for _ in 0..<3 { #expect(try await other.next()?.payload.count == 16 << 10) }
            #expect(try await other.next() == .text("end"))
        }
    }

    @Test func pongsCountAsQueued() async throws {
        let handler = EchoHandler()
        var limits = WebSocketLimits()
        limits.queuedBytes = 64 << 10
        try await withServer(routes: handler.routes(limits)) { server in
            let socket = try await SocketWire(port: server.port, receiveBufferBytes: 4096)
            defer { socket.close() }
            let ping = SocketFrame(SocketFrame.ping, [UInt8](repeating: 1, count: 125)).bytes()
            let pings = Array(repeatElement(ping, count: 500).joined())
            await #expect(throws: TestFailure.self) {
                for _ in 0..<10_000 { try await socket.send(pings) }
            }
            #expect(await handler.end() == 1006)
        }
    }

    @Test func aSilentClientIsDropped() async throws {
        let handler = EchoHandler()
        var limits = WebSocketLimits()
        limits.idle = .seconds(300)
        let routes = handler.routes(limits)
        let spare = try EventLoop(name: "spare")
        try await withStillServer(answerBytes: 1, routes: { routes(&$0, spare) }) { server in
            let socket = try await SocketWire(port: server.port)
            defer { socket.close() }
            try await socket.send(.text("hello"))
            #expect(try await socket.next() == .text("hello"))
            await server.tick(after: .seconds(290), times: 10)
            try await socket.send(.text("still here"))
            #expect(try await socket.next() == .text("still here"))
            await server.tick(after: .seconds(301), times: 10)
            #expect(await handler.end() == 1006)
            await #expect(throws: TestFailure.self) { _ = try await socket.next() }
        }
        await spare.stop()
    }

    /// HTTP's own limits of time end with the handshake.
    @Test func aSocketOutlivesTheLimitsOfRequests() async throws {
        let handler = EchoHandler()
        let routes = handler.routes()
        let spare = try EventLoop(name: "spare")
        try await withStillServer(answerBytes: 1, routes: { routes(&$0, spare) }) { server in
            let socket = try await SocketWire(port: server.port)
            defer { socket.close() }
            await server.tick(after: .seconds(200), times: 10)
            try await socket.send(.text("hello"))
            #expect(try await socket.next() == .text("hello"))
        }
        await spare.stop()
    }

    // MARK: Stop

    @Test func aStopClosesSocketsWith1001() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes()) { server in
            let socket = try await SocketWire(port: server.port)
            defer { socket.close() }
            try await socket.send(.text("hello"))
            #expect(try await socket.next() == .text("hello"))
            let start = ContinuousClock.now
            async let stop: Void = server.server.stop(within: .seconds(30))
            let rest = try await socket.rest()
            #expect(rest.map(\.closeCode) == [1001])
            #expect(await handler.end() == 1001)
            socket.wire.endOutput()
            await stop
            #expect(ContinuousClock.now - start < .seconds(10))
        }
    }
}

/// A client that shares no code with ours.
@Suite(
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.python != nil, "CARILLON_PYTHON is not set")
)
struct WebSocketClientTests {
    @Test func theClientLibraryOfPythonAgrees() async throws {
        let python = try #require(TestEnvironment.python)
        let script = URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "websocket_client.py").path
        let handler = EchoHandler()
        var limits = WebSocketLimits()
        limits.messageBytes = 128 << 10
        let folder = try TemporaryFolder()
        let authority = try CertificateAuthority.make(commonName: "Test CA")
        try folder.write(authority.certificatePEM, "ca.pem")
        let leaf = try authority.issue(hosts: ["localhost"])
        try await withServer(
            configure: {
                $0.tls = HTTPServerConfiguration.TLS(
                    port: 0,
                    certificate: .pem(
                        certificate: leaf.certificatePEM,
                        privateKey: leaf.privateKeyPEM
                    )
                )
            },
            routes: handler.routes(limits)
        ) { server in
            let output = try await run(
                python,
                [script, "\(server.port)", "\(server.tlsPort)", folder.path("ca.pem")]
            ).successful("the client")
            #expect(output.split(separator: "\n").count == 11, "\(output)")
        }
    }
}
