import Cryptography
import EventLoop
import HTTPServer
import Observability
import Support
import Testing

@testable import HTTPTransport

/// One small request.
struct HTTP2Request: Sendable {
    var head: HTTP2RequestHead
    var path: String
    var values: [String]
    var body: [UInt8]
    var timeout: Duration
    var isUrgent: Bool

    init(
        _ head: HTTP2RequestHead,
        path: String,
        values: [String] = [],
        body: [UInt8] = [],
        timeout: Duration = .seconds(20),
        isUrgent: Bool = false
    ) {
        self.head = head
        self.path = path
        self.values = values
        self.body = body
        self.timeout = timeout
        self.isUrgent = isUrgent
    }
}

extension HTTP2Pool {
    func send(
        _ requests: [HTTP2Request],
        of owner: ObjectIdentifier? = nil,
        answerTime: Duration? = nil,
        completion: @escaping Completion
    ) {
        var batch = HTTP2Requests(answerTime: answerTime)
        for request in requests {
            batch.add(
                request.head,
                path: request.path,
                values: request.values,
                body: request.body,
                timeout: request.timeout,
                isUrgent: request.isUrgent
            )
        }
        send(batch, of: owner, completion: completion)
    }
}

/// Results of a batch, by index.
final class Results: @unchecked Sendable {
    typealias Result = Swift.Result<HTTP2Response, HTTPTransportError>

    private let lock = Lock()
    private var results: [Int: Result] = [:]
    private var repeated = false

    func add(_ index: Int, _ result: Result) {
        lock.withLock { if results.updateValue(result, forKey: index) != nil { repeated = true } }
    }

    /// The results, or `nil` while some are missing.
    func all(_ count: Int) -> [Result]? {
        lock.withLock {
            #expect(!repeated)
            return results.count < count ? nil : (0..<count).compactMap { results[$0] }
        }
    }
}

extension Result where Success == HTTP2Response, Failure == HTTPTransportError {
    var status: Int? { (try? get())?.status }

    var error: HTTPTransportError? {
        if case .failure(let error) = self { return error }
        return nil
    }
}

/// A pool to a server of this process.
struct PoolBench {
    let pool: HTTP2Pool
    let loop: EventLoop
    let origin: String

    static func run(
        _ origin: String,
        _ loop: EventLoop,
        caFile: String? = nil,
        change: (inout HTTP2PoolConfiguration) -> Void = { _ in },
        _ body: (PoolBench) async throws -> Void
    ) async throws {
        var configuration = HTTP2PoolConfiguration(
            origin: origin,
            transport: HTTPTransportConfiguration(
                allowedHosts: try HostPolicy(origin: origin),
                caFile: caFile
            )
        )
        change(&configuration)
        let pool = try HTTP2Pool(configuration, on: loop)
        let result: Result<Void, any Error>
        do {
            try await body(PoolBench(pool: pool, loop: loop, origin: origin))
            result = .success(())
        } catch {
            result = .failure(error)
        }
        try await loop.onLoop { pool.close() }
        try result.get()
    }

    func start(
        _ paths: [String],
        headSuffix: String = "",
        body: [UInt8] = Array("{}".utf8),
        timeout: Duration = .seconds(30),
        answerTime: Duration? = nil,
        isUrgent: Bool = false,
        of owner: ObjectIdentifier? = nil
    ) async throws -> Results {
        let head = try HTTP2RequestHead(
            origin: try HTTP2Origin(origin),
            headers: [HTTPField("authorization", "bearer x")],
            varying: ["apns-id"]
        )
        let results = Results()
        let requests = paths.map {
            HTTP2Request(
                head,
                path: $0,
                values: ["id" + $0 + headSuffix],
                body: body,
                timeout: timeout,
                isUrgent: isUrgent
            )
        }
        try await loop.onLoop { [pool] in
            pool.send(requests, of: owner, answerTime: answerTime) { results.add($0, $1) }
        }
        return results
    }

    func send(
        _ paths: [String],
        body: [UInt8] = Array("{}".utf8),
        timeout: Duration = .seconds(30)
    ) async throws -> [Results.Result] {
        let results = try await start(paths, body: body, timeout: timeout)
        return try await eventually("\(paths.count) results", within: .seconds(45)) {
            results.all(paths.count)
        }
    }
}

private func paths(_ count: Int) -> [String] { (0..<count).map { "/\($0)" } }

private func echo(_ request: HTTPServerRequest) -> HTTPServerResponse {
    HTTPServerResponse(
        status: 200,
        headers: ["X-Path": request.rawTarget, "apns-id": request.header("apns-id") ?? ""],
        body: request.body
    )
}

@Suite("Connection pool", .timeLimit(.minutes(2))) struct Pools {
    @Test(
        "Each request gets its own response, within the peer's stream limit",
        arguments: [1, 7, 1000]
    )
    func answers(streams: Int) async throws {
        try await withLocalServer(maxConcurrentStreams: streams, handler: echo) { server, loop in
            try await PoolBench.run(server.origin, loop, caFile: server.caFile) { bench in
                let count = streams == 1 ? 200 : 2000
                let results = try await bench.send(paths(count))
                for (index, result) in results.enumerated() {
                    let answer = try result.get()
                    #expect(answer.status == 200 && answer.header("x-path") == "/\(index)")
                    #expect(answer.header("apns-id") == "id/\(index)")
                    #expect(answer.body == Array("{}".utf8))
                }
                // No stream was refused and sent again.
                #expect(server.received.count == count)
                #expect(Set(server.received.map(\.connectionID)).count <= 4)
                let request = try #require(server.received.first)
                #expect(request.method == .post && request.scheme == "https")
                #expect(request.header("authorization") == "bearer x")
                #expect(request.header("user-agent") == "carillon")
            }
        }
    }

    @Test("Large bodies pass completely in both directions")
    func large() async throws {
        try await withLocalServer(handler: echo) { server, loop in
            try await PoolBench.run(server.origin, loop, caFile: server.caFile) { bench in
                let body = (0..<150_000).map { UInt8(truncatingIfNeeded: $0) }
                for result in try await bench.send(paths(20), body: body) {
                    #expect(try result.get().body == body)
                }
            }
        }
    }

    @Test("One request opens one connection, a burst several, up to the limit")
    func growth() async throws {
        let gate = Gate()
        try await withLocalServer(maxConcurrentStreams: 10) { request in
            if request.path != "/first" { await gate.wait() }
            return echo(request)
        } _: { server, loop in
            try await PoolBench.run(
                server.origin,
                loop,
                caFile: server.caFile,
                change: { $0.maximumConnections = 3 }
            ) { bench in
                _ = try await bench.send(["/first"])
                #expect(try await loop.onLoop { bench.pool.connectionCount } == 1)
                let results = try await bench.start(paths(200))
                // Three connections accept this many; the others wait in the pool.
                _ = try await eventually("requests") { server.received.count == 31 ? () : nil }
                #expect(try await loop.onLoop { bench.pool.connectionCount } == 3)
                #expect(try await loop.onLoop { bench.pool.requestsWaiting } == 170)
                await gate.open()
                let all = try await eventually("all") { results.all(200) }
                #expect(all.allSatisfy { $0.status == 200 })
                #expect(Set(server.received.map(\.connectionID)).count == 3)
            }
        }
    }

    @Test("A limit of one before the first response does not count as the capacity of connections")
    func risingLimit() async throws {
        let gate = Gate()
        try await withLocalServer(maxConcurrentStreams: 1) { request in
            if request.path != "/first" { await gate.wait() }
            return echo(request)
        } _: { server, loop in
            try await PoolBench.run(server.origin, loop, caFile: server.caFile) { bench in
                _ = try await bench.send(["/first"])
                server.server.setMaxConcurrentStreams(100)
                _ = try await eventually("the new limit") {
                    try await loop.onLoop {
                        bench.pool.connections.first?.peerStreamLimit
                    } == 100 ? () : nil
                }
                let results = try await bench.start(paths(150))
                _ = try await eventually("requests") { server.received.count == 151 ? () : nil }
                #expect(try await loop.onLoop { bench.pool.connectionCount } == 2)
                await gate.open()
                let all = try await eventually("all") { results.all(150) }
                #expect(all.allSatisfy { $0.status == 200 })
            }
        }
    }

    @Test("Each connection resolves its name again")
    func freshNames() async throws {
        try await withLocalServer(maxConcurrentStreams: 10, handler: echo) { server, loop in
            try await PoolBench.run(server.origin, loop, caFile: server.caFile) { bench in
                for number in 1...3 {
                    let answer = try #require(try await bench.send(["/"]).first).get()
                    #expect(try await loop.onLoop { bench.pool.lookups } == number)
                    try await loop.onLoop {
                        bench.pool.retire(answer.connection, because: "a test")
                    }
                }
                #expect(Set(server.received.map(\.connectionID)).count == 3)
            }
        }
    }

    @Test("A response beyond the limit is dropped, and the others continue")
    func hugeAnswer() async throws {
        try await withLocalServer { request in
            let count = request.path == "/huge" ? 300_000 : 200_000
            return HTTPServerResponse(
                status: 200,
                headers: [:],
                body: [UInt8](repeating: 65, count: count)
            )
        } _: { server, loop in
            try await PoolBench.run(server.origin, loop, caFile: server.caFile) { bench in
                let results = try await bench.send(["/1", "/huge", "/2"])
                #expect(results[0].status == 200 && results[2].status == 200)
                #expect(results[1].error?.kind == .responseTooLarge)
                #expect(results[1].error?.isInDoubt == true)
                #expect(Set(server.received.map(\.connectionID)).count == 1)
            }
        }
    }

    @Test("The stream limit may fall to one while requests are in flight")
    func limitFalls() async throws {
        try await withLocalServer(maxConcurrentStreams: 100) { request in
            try await Task.sleep(for: .milliseconds(5))
            return echo(request)
        } _: { server, loop in
            try await PoolBench.run(
                server.origin,
                loop,
                caFile: server.caFile,
                change: { $0.maximumConnections = 2 }
            ) { bench in
                let results = try await bench.start(paths(600))
                _ = try await eventually("the first requests") {
                    server.received.count >= 50 ? () : nil
                }
                server.server.setMaxConcurrentStreams(1)
                let all = try await eventually("all") { results.all(600) }
                #expect(all.allSatisfy { $0.status == 200 })
            }
        }
    }

    @Test("With a token one request tries each connection before the others follow")
    func proof() async throws {
        let gate = Gate()
        try await withLocalServer(maxConcurrentStreams: 100) { request in
            await gate.wait()
            return echo(request)
        } _: { server, loop in
            try await PoolBench.run(
                server.origin,
                loop,
                caFile: server.caFile,
                change: {
                    $0.provesFirst = true
                    $0.proofTimeout = .seconds(3600)
                    $0.maximumConnections = 1
                }
            ) { bench in
                let results = try await bench.start(paths(50))
                _ = try await eventually("a request") { server.received.isEmpty ? nil : () }
                #expect(try await loop.onLoop { bench.pool.requestsInside } == 50)
                #expect(server.received.count == 1)
                await gate.open()
                let all = try await eventually("all") { results.all(50) }
                #expect(all.allSatisfy { $0.status == 200 })
            }
        }
    }

    @Test("Closing a pool ends every request: sent ones are in doubt, the others were not sent")
    func close() async throws {
        try await withLocalServer(maxConcurrentStreams: 10) { _ in
            HTTPServerResponse(status: 200, ending: { _ in })
        } _: { server, loop in
            try await PoolBench.run(
                server.origin,
                loop,
                caFile: server.caFile,
                change: { $0.maximumConnections = 1 }
            ) { bench in
                let results = try await bench.start(paths(30))
                _ = try await eventually("requests") { server.received.count == 10 ? () : nil }
                try await loop.onLoop { bench.pool.close() }
                let all = try #require(results.all(30))
                #expect(all.allSatisfy { $0.error?.kind == .closed })
                #expect(all.count { $0.error?.isInDoubt == true } == 10)
                let late = try await bench.send(["/late"])
                #expect(late.first?.error?.kind == .closed)
            }
        }
    }

    @Test("closeAfterLast lets requests in flight finish")
    func closeAfterLast() async throws {
        let gate = Gate()
        try await withLocalServer { request in
            await gate.wait()
            return echo(request)
        } _: { server, loop in
            try await PoolBench.run(server.origin, loop, caFile: server.caFile) { bench in
                let results = try await bench.start(paths(5))
                _ = try await eventually("requests") { server.received.count == 5 ? () : nil }
                try await loop.onLoop { bench.pool.closeAfterLast() }
                let late = try await bench.send(["/late"])
                #expect(late.first?.error?.requestWasNotSent == true)
                await gate.open()
                let all = try await eventually("all") { results.all(5) }
                #expect(all.allSatisfy { $0.status == 200 })
                _ = try await eventually("its end") {
                    try await loop.onLoop { bench.pool.connectionCount } == 0 ? () : nil
                }
            }
        }
    }

    @Test("Requests beyond the limit are refused, not queued")
    func overloaded() async throws {
        try await withLocalServer { _ in
            HTTPServerResponse(status: 200, ending: { _ in })
        } _: { server, loop in
            try await PoolBench.run(
                server.origin,
                loop,
                caFile: server.caFile,
                change: { $0.maximumRequests = 5 }
            ) { bench in
                let results = try await bench.start(paths(8), timeout: .milliseconds(500))
                let all = try await eventually("all") { results.all(8) }
                #expect(all.count { $0.error?.kind == .overloaded } == 3)
                #expect(all.count { $0.error?.kind == .timeout } == 5)
            }
        }
    }

    @Test("A header that could smuggle a request is refused", arguments: ["a\r\nb: c", "a\0"])
    func smuggling(text: String) async throws {
        #expect(throws: HTTPTransportError.self) {
            try HTTP2RequestHead(
                origin: HTTP2Origin("https://a"),
                headers: [HTTPField("x", text)]
            )
        }
        #expect(throws: HTTPTransportError.self) {
            try HTTP2RequestHead(
                origin: HTTP2Origin("https://a"),
                headers: [HTTPField(text, "x")]
            )
        }
        #expect(throws: HTTPTransportError.self) {
            try HTTP2Origin("http://a")
        }
        try await withLocalServer(handler: echo) { server, loop in
            try await PoolBench.run(server.origin, loop, caFile: server.caFile) { bench in
                let results = try await bench.send(["/" + text, "/fine"])
                #expect(results[0].error?.kind == .invalidRequest)
                #expect(results[1].status == 200)
            }
        }
    }

    @Test("A head that does not fit into frames was not sent, and the connection stays")
    func hugeHead() async throws {
        try await withLocalServer(handler: echo) { server, loop in
            try await PoolBench.run(server.origin, loop, caFile: server.caFile) { bench in
                #expect(try await bench.send(["/first"]).first?.status == 200)
                let huge = String(repeating: "x", count: 70_000)
                let results = try await bench.start(["/huge"], headSuffix: huge)
                let result = try await eventually("its end") { results.all(1)?.first }
                #expect(result.error?.kind == .invalidRequest)
                #expect(result.error?.requestWasNotSent == true)
                #expect(try await bench.send(["/last"]).first?.status == 200)
                #expect(server.received.map(\.path) == ["/first", "/last"])
                #expect(Set(server.received.map(\.connectionID)).count == 1)
            }
        }
    }
}
