internal import EventLoop
internal import FoundationEssentials
internal import HTTPTransport
internal import JSON

/// `transport ORIGIN CA-FILE CONNECTIONS STREAMS REQUESTS PATHS BODY`: sends requests like those to
/// APNs, in batches of 256 and twice as many at once as there are streams, and checks the status of
/// each response. `PATHS` is a file with one path a line, `BODY` one with the body of each request.
func measureTransport(_ arguments: [String]) async throws -> String {
    guard arguments.count == 7, let connections = Int(arguments[2]),
        let streams = Int(arguments[3]), let requests = Int(arguments[4])
    else {
        throw BenchmarkError("usage: transport ORIGIN CA CONNECTIONS STREAMS REQUESTS PATHS BODY")
    }
    let paths = try Data(contentsOf: URL(filePath: arguments[5]))
        .split(separator: UInt8(ascii: "\n")).map { String(decoding: $0, as: UTF8.self) }
    let body = try [UInt8](Data(contentsOf: URL(filePath: arguments[6])))
    let loop = try EventLoop(name: "bench")
    let configuration = HTTP2PoolConfiguration(
        origin: arguments[0],
        transport: HTTPTransportConfiguration(
            allowedHosts: try HostPolicy(origin: arguments[0]),
            caFile: arguments[1]
        ),
        maximumConnections: connections,
        maximumStreams: streams
    )
    let head = try HTTP2RequestHead(
        origin: try HTTP2Origin(arguments[0]),
        headers: [
            HTTPField("authorization", "bearer " + String(repeating: "x", count: 200)),
            HTTPField("apns-topic", "com.example.shop"), HTTPField("apns-push-type", "alert"),
            HTTPField("apns-priority", "10"), HTTPField("content-type", "application/json"),
        ],
        varying: ["apns-id"]
    )
    let sender = try TransportSender(
        pool: HTTP2Pool(configuration, on: loop),
        head: head,
        paths: paths,
        body: body,
        total: requests,
        window: max(512, connections * streams * 2),
        connections: connections
    )
    let elapsed = await withCheckedContinuation { continuation in
        loop.execute { sender.run { continuation.resume(returning: $0) } }
    }
    await loop.stop()
    guard sender.accepted == requests else {
        let rest = sender.failures.map { "\($0.value) × \($0.key)" }.joined(separator: ", ")
        throw BenchmarkError("\(sender.accepted) of \(requests) answered 200; \(rest)")
    }
    let result: JSONValue = ["per_second": .double(Double(requests) / (elapsed / .seconds(1)))]
    return result.text
}

/// Confined to its loop until it is done.
private final class TransportSender: @unchecked Sendable {
    private let pool: HTTP2Pool
    private let head: HTTP2RequestHead
    private let paths: [String]
    private let body: [UInt8]
    private let total: Int
    private let window: Int
    private let connections: Int
    private var sent = 0
    private var answered = 0
    private(set) var accepted = 0
    private(set) var failures: [String: Int] = [:]
    private var start = ContinuousClock.now
    private var done: (Duration) -> Void = { _ in }

    init(
        pool: HTTP2Pool,
        head: HTTP2RequestHead,
        paths: [String],
        body: [UInt8],
        total: Int,
        window: Int,
        connections: Int
    ) {
        self.pool = pool
        self.head = head
        self.paths = paths
        self.body = body
        self.total = total
        self.window = window
        self.connections = connections
    }

    func run(_ done: @escaping (Duration) -> Void) {
        self.done = done
        start = .now
        fill()
    }

    private func fill() {
        while sent < total, sent - answered < window {
            let count = min(256, total - sent)
            var requests = HTTP2Requests(count: count)
            for number in sent..<sent + count {
                requests.add(
                    head,
                    // h2load's connections use the paths in the same order, which suits a server
                    // that caches open files.
                    path: paths[number / connections % paths.count],
                    value: identifier(number),
                    body: body
                )
            }
            sent += count
            pool.send(requests) { [self] _, result in finished(result) }
        }
    }

    private func finished(_ result: Result<HTTP2Response, HTTPTransportError>) {
        answered += 1
        switch result {
        case .success(let response) where response.status == 200: accepted += 1
        case .success(let response): failures["status \(response.status)", default: 0] += 1
        case .failure(let error): failures[error.debugDescription, default: 0] += 1
        }
        if sent - answered <= window - 256 { fill() }
        guard answered == total else { return }
        let elapsed = ContinuousClock.now - start
        pool.close()
        done(elapsed)
    }

    /// Makes a different identifier for each request, in the form of a UUID.
    private func identifier(_ number: Int) -> String {
        var bits = UInt64(number) &* 0x9E37_79B9_7F4A_7C15
        return unsafe String(unsafeUninitializedCapacity: 36) { bytes in
            for index in 0..<24 { unsafe bytes[index] = Self.start[index] }
            for index in 24..<36 {
                unsafe bytes[index] = Self.digits[Int(bits & 15)]
                bits = bits << 60 | bits >> 4
            }
            return 36
        }
    }

    private static let start = Array("9e3779b9-7f4a-4000-8000-".utf8)
    private static let digits = Array("0123456789abcdef".utf8)
}
