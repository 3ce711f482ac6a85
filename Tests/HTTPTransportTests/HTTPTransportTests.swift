import Cryptography
import EventLoop
import HTTPServer
import Support
import Testing

@testable import HTTPTransport

private func echo(_ request: HTTPServerRequest) -> HTTPServerResponse {
    HTTPServerResponse(
        status: 200,
        headers: ["X-Method": request.method.rawValue, "X-Path": request.rawTarget],
        body: request.body
    )
}

/// Makes a client for the server, runs `body`, and closes it.
private func withClient(
    _ server: LocalServer,
    _ loop: EventLoop,
    change: (inout HTTPTransportConfiguration) -> Void = { _ in },
    _ body: (HTTPClient) async throws -> Void
) async throws {
    var configuration = HTTPTransportConfiguration(
        allowedHosts: try HostPolicy(origin: server.origin),
        caFile: server.caFile
    )
    change(&configuration)
    let client = try HTTPClient(configuration, on: loop)
    do {
        try await body(client)
    } catch {
        try await loop.onLoop { client.close() }
        throw error
    }
    try await loop.onLoop { client.close() }
}

private func failure(
    _ client: HTTPClient,
    _ request: HTTPRequest
) async -> HTTPTransportError? {
    do throws(HTTPTransportError) {
        _ = try await client.call(request)
        return nil
    } catch {
        return error
    }
}

@Suite(.timeLimit(.minutes(1))) struct WholeCalls {
    @Test("A call over HTTP/2 returns the complete response")
    func http2() async throws {
        try await withLocalServer(handler: echo) { server, loop in
            try await withClient(server, loop) { client in
                let answer = try await client.call(
                    HTTPRequest(
                        url: server.origin + "/3/device/ab?x=1",
                        headers: [HTTPField("apns-id", "1"), HTTPField("empty", "")],
                        body: Array("hello".utf8)
                    )
                )
                #expect(answer.status == 200)
                #expect(answer.protocolVersion == .http2)
                #expect(answer.body == Array("hello".utf8))
                #expect(answer.header("X-METHOD") == "POST")
                #expect(answer.header("x-path") == "/3/device/ab?x=1")
                #expect(answer.headers.allSatisfy { $0.name == $0.name.lowercased() })
                #expect(server.received.first?.header("apns-id") == "1")
                #expect(server.received.first?.header("empty") == "")
            }
        }
    }

    @Test("HTTP/1.1 sends a length, no Expect and no chunks")
    func http1() async throws {
        try await withLocalServer(handler: echo) { server, loop in
            try await withClient(server, loop, change: { $0.version = .http1Only }) { client in
                let body = [UInt8](repeating: 65, count: 5000)
                let answer = try await client.call(
                    HTTPRequest(url: server.origin + "/", body: body)
                )
                #expect(answer.protocolVersion == .http1_1)
                let request = try #require(server.received.first)
                #expect(request.header("content-length") == "5000")
                #expect(request.header("expect") == nil)
                #expect(request.header("transfer-encoding") == nil)
                #expect(request.body == body)
                let empty = try await client.call(HTTPRequest(url: server.origin + "/"))
                #expect(empty.status == 200)
                #expect(server.received.last?.header("content-length") == "0")
                let get = try await client.call(
                    HTTPRequest(method: "GET", url: server.origin + "/")
                )
                #expect(get.header("x-method") == "GET")
            }
        }
    }

    @Test("A peer that must speak HTTP/2 and does not is an error")
    func http2Required() async throws {
        try await withLocalServer(protocols: [.http11], handler: echo) { server, loop in
            try await withClient(server, loop, change: { $0.version = .http2Required }) { client in
                let error = await failure(client, HTTPRequest(url: server.origin + "/"))
                #expect(error?.kind == .protocolViolation)
            }
        }
    }

    @Test(
        "Many calls share few connections, within the peer's stream limit",
        arguments: [1, 5, 100]
    )
    func multiplex(streams: Int) async throws {
        try await withLocalServer(maxConcurrentStreams: streams, handler: echo) { server, loop in
            try await withClient(
                server,
                loop,
                change: { $0.maximumConnectionsPerHost = 2 }
            ) { client in
                let statuses = await withTaskGroup(of: Int?.self) { group in
                    for index in 0..<200 {
                        group.addTask {
                            let request = HTTPRequest(
                                url: server.origin + "/\(index)",
                                body: Array("\(index)".utf8)
                            )
                            let answer = try? await client.call(request)
                            return answer?.body == request.body ? answer?.status : nil
                        }
                    }
                    return await group.reduce(into: [Int?]()) { $0.append($1) }
                }
                #expect(statuses.count == 200 && statuses.allSatisfy { $0 == 200 })
                // No stream was refused and sent again, so all connections stayed open.
                #expect(server.received.count == 200)
                #expect(Set(server.received.map(\.connectionID)).count <= 2)
            }
        }
    }

    @Test("A first call that is never answered does not delay the others")
    func patience() async throws {
        try await withLocalServer { request in
            var response = echo(request)
            if request.path == "/silent" { response.ending = { _ in } }
            return response
        } _: { server, loop in
            try await withClient(server, loop) { client in
                async let silent = failure(
                    client,
                    HTTPRequest(url: server.origin + "/silent", timeout: .seconds(20))
                )
                _ = try await eventually("the request") { server.received.count == 1 ? () : nil }
                let answer = try await client.call(
                    HTTPRequest(url: server.origin + "/other", timeout: .seconds(10))
                )
                #expect(answer.status == 200)
                try await loop.onLoop { client.close() }
                #expect(await silent?.kind == .closed)
            }
        }
    }

    @Test("A redirect is returned as the response and never followed")
    func redirect() async throws {
        try await withLocalServer { request in
            HTTPServerResponse(status: 302, headers: ["Location": "/elsewhere"])
        } _: { server, loop in
            try await withClient(server, loop) { client in
                let answer = try await client.call(HTTPRequest(url: server.origin + "/"))
                #expect(answer.status == 302)
                #expect(server.received.count == 1)
            }
        }
    }

    @Test("The certificate from memory authenticates the client")
    func clientCertificate() async throws {
        try await withLocalServer(requestsClientCertificate: true) { request in
            .text(request.clientCertificateSubject ?? "none")
        } _: { server, loop in
            let pair = try server.authority.issue(hosts: ["pusher"], client: true)
            try await withClient(
                server,
                loop,
                change: {
                    $0.clientCertificate = .init(
                        certificatePEM: pair.certificatePEM,
                        privateKeyPEM: pair.privateKeyPEM
                    )
                }
            ) { client in
                let answer = try await client.call(HTTPRequest(url: server.origin + "/"))
                #expect(String(decoding: answer.body, as: UTF8.self) == "CN=pusher")
            }
            try await withClient(
                server,
                loop,
                change: {
                    $0.clientCertificate = .init(certificatePEM: "no", privateKeyPEM: "no")
                }
            ) { client in
                let error = await failure(client, HTTPRequest(url: server.origin + "/"))
                #expect(error?.kind == .local)
                #expect(error?.requestWasNotSent == true)
            }
        }
    }
}

@Suite(.timeLimit(.minutes(1))) struct Failures {
    @Test("A deadline ends a call that was sent, and reports one that was not")
    func deadline() async throws {
        try await withLocalServer { _ in
            HTTPServerResponse(status: 200, ending: { _ in })
        } _: { server, loop in
            try await withClient(server, loop) { client in
                let request = HTTPRequest(url: server.origin + "/", timeout: .milliseconds(300))
                let error = await failure(client, request)
                #expect(error?.kind == .timeout)
                #expect(error?.requestWasNotSent == false)
                #expect(server.received.count == 1)
            }
        }
        // This listener never answers the handshake.
        let loop = try EventLoop(name: "silent")
        let port = try await loop.onLoop {
            try TCPListener(host: "127.0.0.1", port: 0, on: loop) { _ in }.port
        }
        let url = "https://127.0.0.1:\(port)/"
        let client = try HTTPClient(
            HTTPTransportConfiguration(allowedHosts: try HostPolicy(origin: url)),
            on: loop
        )
        let error = await failure(client, HTTPRequest(url: url, timeout: .milliseconds(300)))
        #expect(error?.kind == .timeout)
        #expect(error?.requestWasNotSent == true)
        try await loop.onLoop { client.close() }
        await loop.stop()
    }

    @Test("A failure before a request goes out reports that nothing was sent")
    func notSent() async throws {
        let loop = try EventLoop(name: "client")
        // Nothing listens on port 1.
        let cases: [(String, HTTPTransportError.Kind)] = [
            ("https://127.0.0.1:1/", .connect),
            ("https://no-such-host.invalid:443/", .resolve),
        ]
        for (url, kind) in cases {
            let client = try HTTPClient(
                HTTPTransportConfiguration(allowedHosts: try HostPolicy(origin: url)),
                on: loop
            )
            let error = await failure(client, HTTPRequest(url: url))
            #expect(error?.kind == kind)
            #expect(error?.requestWasNotSent == true)
            #expect(error?.isRetryable == true)
            try await loop.onLoop { client.close() }
        }
        await loop.stop()
    }

    @Test("A certificate of an unknown authority is refused")
    func untrusted() async throws {
        try await withLocalServer(handler: echo) { server, loop in
            try await withClient(server, loop, change: { $0.caFile = nil }) { client in
                let error = await failure(client, HTTPRequest(url: server.origin + "/"))
                #expect(error?.kind == .tls)
                #expect(error?.requestWasNotSent == true)
                #expect(server.received.isEmpty)
            }
        }
    }

    @Test("A certificate for another name is refused")
    func wrongName() async throws {
        try await withLocalServer(handler: echo) { server, loop in
            let url = "https://other.localhost:\(server.port)/"
            try await withClient(
                server,
                loop,
                change: {
                    if let policy = try? HostPolicy(origin: url) { $0.allowedHosts = policy }
                }
            ) { client in
                let error = await failure(client, HTTPRequest(url: url))
                #expect(error?.kind == .tls)
            }
        }
    }

    @Test("A body beyond the limit is not collected")
    func tooLarge() async throws {
        try await withLocalServer { _ in
            HTTPServerResponse(status: 200, body: [UInt8](repeating: 1, count: 100_000))
        } _: { server, loop in
            try await withClient(
                server,
                loop,
                change: { $0.maximumResponseBytes = 50_000 }
            ) { client in
                let error = await failure(client, HTTPRequest(url: server.origin + "/"))
                #expect(error?.kind == .responseTooLarge)
            }
        }
    }

    @Test("A stream that was refused unprocessed is sent again")
    func refusedStream() async throws {
        let first = FirstTime()
        try await withLocalServer { request in
            var response = echo(request)
            if first.take() { response.ending = { $0.reset(code: 7) } }
            return response
        } _: { server, loop in
            try await withClient(server, loop) { client in
                let answer = try await client.call(HTTPRequest(url: server.origin + "/"))
                #expect(answer.status == 200)
                #expect(server.received.count == 2)
            }
        }
    }

    @Test("Unprocessed requests go to a new connection after GOAWAY", arguments: [0, nil])
    func goaway(lastStreamID: Int?) async throws {
        let first = FirstTime()
        try await withLocalServer { request in
            var response = echo(request)
            if first.take() {
                response.ending = {
                    if lastStreamID == nil { $0.answer() }
                    $0.goaway(
                        lastStreamID: lastStreamID,
                        code: 0,
                        data: Array(#"{"reason":"Shutdown"}"#.utf8)
                    )
                }
            }
            return response
        } _: { server, loop in
            try await withClient(server, loop) { client in
                for _ in 0..<5 {
                    let answer = try await client.call(HTTPRequest(url: server.origin + "/"))
                    #expect(answer.status == 200)
                }
                #expect(server.received.count == (lastStreamID == nil ? 5 : 6))
                #expect(Set(server.received.map(\.connectionID)).count == 2)
            }
        }
    }

    @Test("A burst over connections that send GOAWAY repeatedly leaves no call in doubt")
    func goawayBurst() async throws {
        let taken = Tally()
        try await withLocalServer { request in
            var response = echo(request)
            let number = taken.next()
            if number % 40 == 39, let stream = request.streamID {
                // This one, and all that came after it, were not processed.
                response.ending = {
                    $0.goaway(lastStreamID: max(0, stream - 2), code: 0, data: [])
                }
            }
            return response
        } _: { server, loop in
            try await withClient(server, loop) { client in
                let outcomes = await withTaskGroup(of: Int.self) { group in
                    for index in 0..<300 {
                        group.addTask {
                            let request = HTTPRequest(
                                url: server.origin + "/\(index)",
                                isRepeatable: false
                            )
                            do throws(HTTPTransportError) {
                                return try await client.call(request).status
                            } catch {
                                return error.requestWasNotSent ? 0 : -1
                            }
                        }
                    }
                    return await group.reduce(into: [Int: Int]()) { $0[$1, default: 0] += 1 }
                }
                // A call that was refused too often for the client to continue reports that it can
                // be repeated.
                #expect(outcomes[-1] == nil)
                #expect(outcomes[200, default: 0] >= 100)
                #expect(outcomes[200, default: 0] + outcomes[0, default: 0] == 300)
            }
        }
    }

    @Test("A reset stream is a missing response")
    func reset() async throws {
        try await withLocalServer { _ in
            HTTPServerResponse(status: 200, ending: { $0.reset(code: 2) })
        } _: { server, loop in
            try await withClient(server, loop) { client in
                let request = HTTPRequest(url: server.origin + "/", isRepeatable: false)
                let error = await failure(client, request)
                #expect(error?.kind == .connectionLost)
                #expect(error?.requestWasNotSent == false)
            }
        }
    }

    @Test(
        "A call that must not be repeated is sent once, even if a reused connection dies",
        arguments: [true, false]
    )
    func keptConnection(isRepeatable: Bool) async throws {
        let loop = try EventLoop(name: "plain")
        let peer = DyingPeer()
        let port = try await loop.onLoop { try peer.listen(on: loop) }
        let url = "http://127.0.0.1:\(port)/"
        let client = try HTTPClient(
            HTTPTransportConfiguration(
                allowedHosts: try HostPolicy(origin: url),
                version: .http1Only
            ),
            on: loop
        )
        let request = HTTPRequest(url: url, body: [65], isRepeatable: isRepeatable)
        #expect(try await client.call(request).status == 200)
        let error = await failure(client, request)
        let requests = try await loop.onLoop { peer.requests }
        if isRepeatable {
            #expect(error == nil)
            #expect(requests == 3)
        } else {
            #expect(error?.kind == .connectionLost)
            #expect(error?.requestWasNotSent == false)
            #expect(requests == 2)
        }
        try await loop.onLoop { client.close() }
        await loop.stop()
    }

    @Test("A header or method that could smuggle a request is refused")
    func injection() async throws {
        try await withLocalServer(handler: echo) { server, loop in
            try await withClient(server, loop) { client in
                let requests = [
                    HTTPRequest(url: server.origin, headers: [HTTPField("a", "b\r\nc: d")]),
                    HTTPRequest(url: server.origin, headers: [HTTPField("a b", "c")]),
                    HTTPRequest(method: "GET /\r\n", url: server.origin),
                    HTTPRequest(url: "https://localhost:\(server.port)/\r\n"),
                    HTTPRequest(url: "https://user@localhost:\(server.port)/"),
                    HTTPRequest(url: "ftp://localhost:\(server.port)/"),
                ]
                for request in requests {
                    let error = await failure(client, request)
                    #expect(error?.kind == .invalidRequest)
                    #expect(error?.requestWasNotSent == true)
                }
                #expect(server.received.isEmpty)
            }
        }
    }

    @Test("A proxy is used, and its refusal means that nothing was sent")
    func proxy() async throws {
        try await withLocalServer(handler: echo) { server, loop in
            let peer = ProxyThatRefuses()
            let port = try await loop.onLoop { try peer.listen(on: loop) }
            try await withClient(
                server,
                loop,
                change: { $0.proxy = "http://127.0.0.1:\(port)" }
            ) { client in
                let error = await failure(client, HTTPRequest(url: server.origin + "/"))
                #expect(error?.requestWasNotSent == true)
                let head = try await loop.onLoop { peer.head }
                #expect(head.hasPrefix("CONNECT localhost:\(server.port) HTTP/1.1\r\n"))
                #expect(server.received.isEmpty)
            }
            try await withClient(
                server,
                loop,
                change: {
                    $0.proxy = "http://127.0.0.1:\(port)"
                    $0.noProxy = "localhost"
                }
            ) { client in
                let answer = try await client.call(HTTPRequest(url: server.origin + "/"))
                #expect(answer.status == 200)
            }
        }
    }
}

@Suite(.timeLimit(.minutes(1))) struct Closing {
    @Test("Closing ends every call once and accepts no more")
    func close() async throws {
        try await withLocalServer { request in
            var response = HTTPServerResponse(status: 200)
            if request.path != "/open" { response.ending = { _ in } }
            return response
        } _: { server, loop in
            try await withClient(server, loop) { client in
                let url = server.origin + "/"
                _ = try await client.call(HTTPRequest(url: server.origin + "/open"))
                async let first = failure(client, HTTPRequest(url: url))
                async let second = failure(client, HTTPRequest(url: url))
                _ = try await eventually("two more") { server.received.count == 3 ? () : nil }
                try await loop.onLoop { client.close() }
                for error in await [first, second] {
                    #expect(error?.kind == .closed)
                    #expect(error?.requestWasNotSent == false)
                }
                let late = await failure(client, HTTPRequest(url: url))
                #expect(late?.kind == .closed)
                #expect(late?.requestWasNotSent == true)
                #expect(try await loop.onLoop { client.callsInProgress } == 0)
            }
        }
    }

    @Test("closeAfterLastCall lets calls in flight finish")
    func closeAfterLastCall() async throws {
        let gate = Gate()
        try await withLocalServer { request in
            await gate.wait()
            return echo(request)
        } _: { server, loop in
            try await withClient(server, loop) { client in
                let request = HTTPRequest(url: server.origin + "/", body: [1])
                async let answer = client.call(request)
                _ = try await eventually("the request") { server.received.count == 1 ? () : nil }
                try await loop.onLoop { client.closeAfterLastCall() }
                let late = await failure(client, request)
                #expect(late?.kind == .closed)
                await gate.open()
                #expect(try await answer.status == 200)
            }
        }
    }

    @Test("Concurrent calls beyond the limit are refused, not queued")
    func overloaded() async throws {
        try await withLocalServer { _ in
            HTTPServerResponse(status: 200, ending: { _ in })
        } _: { server, loop in
            try await withClient(server, loop, change: { $0.maximumCalls = 1 }) { client in
                async let first = failure(client, HTTPRequest(url: server.origin + "/"))
                _ = try await eventually("the request") { server.received.count == 1 ? () : nil }
                let second = await failure(client, HTTPRequest(url: server.origin + "/"))
                #expect(second?.kind == .overloaded)
                try await loop.onLoop { client.close() }
                #expect(await first?.kind == .closed)
            }
        }
    }
}
