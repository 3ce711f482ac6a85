internal import EventLoop
internal import Glibc
internal import HTTPServer
internal import JSON

/// `sink CERTIFICATE KEY [TOPIC [PROJECT]]`: replaces APNs and FCM until SIGTERM, and records when
/// each event of `carillon-bench events` arrived. It answers 200 to all, but never to requests of
/// `TOPIC` and of FCM's `PROJECT`. Its only line is an object with its two ports.
///
/// On the plain port `GET /count` returns how many events there were since `POST /reset`, `GET
/// /arrivals` also the number of duplicates, and the latencies since the last `GET /arrivals`.
func serveSink(_ arguments: [String]) async throws {
    guard (2...4).contains(arguments.count) else {
        throw BenchmarkError("usage: carillon-bench sink CERTIFICATE KEY [TOPIC [PROJECT]]")
    }
    let hangingTopic = arguments.count > 2 ? arguments[2] : nil
    let hangingProject = arguments.count > 3 ? arguments[3] : nil
    let loop = try EventLoop(name: "sink")
    var configuration = HTTPServerConfiguration(
        host: "127.0.0.1",
        port: 0,
        tls: HTTPServerConfiguration.TLS(
            port: 0,
            certificate: .files(certificate: arguments[0], privateKey: arguments[1]),
            applicationProtocols: [.http2]
        )
    )
    configuration.idleTimeout = .seconds(600)
    configuration.http2.maxConcurrentStreams = 1000
    let arrivals = Arrivals(on: loop)
    let answer = HTTPServerResponse(
        status: 200,
        headers: ["apns-id": "9e3779b9-7f4a-4000-8000-00007f4a7c15"]
    )
    let hang = HTTPServerResponse(status: 200, ending: { _ in })
    let server = try HTTPServer(configuration, loops: [loop]) { _ in
        var router = Router()
        router.on(.post, "/3/device/:token") { request in
            if let hangingTopic, request.header("apns-topic") == hangingTopic { return hang }
            arrivals.add(EventMark(endOf: request.body))
            return answer
        }
        router.on(.post, "/v1/projects/:project/messages:send") { request in
            if let hangingProject, request.pathParameters["project"] == hangingProject {
                return hang
            }
            let message = try? JSONValue.parse(request.body)
            let mark = message?["message"]?["data"]?[EventMark.field]?.string
            arrivals.add(mark.flatMap(EventMark.init(text:)))
            return .json(["name": "projects/bench/messages/1"])
        }
        router.on(.post, "/token") { _ in
            .json(["access_token": "bench", "expires_in": 3600, "token_type": "Bearer"])
        }
        router.on(.get, "/arrivals") { _ in .json(arrivals.take()) }
        router.on(.get, "/count") { _ in .text(String(arrivals.count)) }
        router.on(.post, "/reset") { _ in
            arrivals.reset()
            return .empty(204)
        }
        return router
    }
    var ports: JSONObject = [:]
    for address in try await server.start() { ports[address.scheme] = JSONValue(address.port) }
    await announce(JSONValue.object(ports).text, untilTerminated: loop)
    await server.stop(within: .seconds(1))
    await loop.stop()
}

/// Returns the time in microseconds since 1970, which is comparable between processes of one
/// machine.
func wallMicroseconds() -> Int {
    var now = timespec()
    unsafe clock_gettime(CLOCK_REALTIME, &now)
    return now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}

/// Confined to its loop.
private final class Arrivals: @unchecked Sendable {
    private static let maximumNumber = 10_000_000

    private let loop: EventLoop
    private var seen: [Bool] = []
    private var distinct = 0
    private var repeats = 0
    /// Latencies since the last request, only of the first arrival of each event.
    private var microseconds: [Int32] = []

    init(on loop: EventLoop) { self.loop = loop }

    /// Adds an arrival. One without a mark belongs to a broadcast.
    func add(_ mark: EventMark?) {
        precondition(loop.isCurrent)
        guard let mark, mark.number < Self.maximumNumber else { return }
        if mark.number >= seen.count {
            seen += repeatElement(false, count: max(4096, mark.number + 1 - seen.count))
        }
        guard !seen[mark.number] else {
            repeats += 1
            return
        }
        seen[mark.number] = true
        distinct += 1
        microseconds.append(Int32(clamping: wallMicroseconds() - mark.sentAt))
    }

    var count: Int {
        precondition(loop.isCurrent)
        return distinct
    }

    func take() -> JSONValue {
        precondition(loop.isCurrent)
        let times = microseconds.sorted()
        microseconds.removeAll(keepingCapacity: true)
        var object: JSONObject = [
            "distinct": JSONValue(distinct), "repeats": JSONValue(repeats),
            "timed": JSONValue(times.count),
        ]
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1)] {
            object[name] = percentile(times, share).map { .double(Double($0) / 1000) }
        }
        return .object(object)
    }

    func reset() {
        precondition(loop.isCurrent)
        seen.removeAll(keepingCapacity: true)
        microseconds.removeAll(keepingCapacity: true)
        (distinct, repeats) = (0, 0)
    }
}

/// - Returns: The value that `share` of the sorted values do not exceed; `nil` without values.
func percentile<Value>(_ sorted: [Value], _ share: Double) -> Value? {
    sorted.isEmpty ? nil : sorted[min(sorted.count - 1, Int(Double(sorted.count) * share))]
}

/// The part of an event that reaches the provider through the push: its number, and when it was
/// written. It is the payload's last field, as an app's own data comes after `aps`.
struct EventMark: Equatable {
    static let field = "bench"

    var number: Int
    /// In microseconds since 1970.
    var sentAt: Int

    var text: String { "\(sentAt):\(number)" }
}

extension EventMark {
    init?(text: String) {
        let parts = text.split(separator: ":").map { Int($0) }
        guard parts.count == 2, let sentAt = parts[0], let number = parts[1], number >= 0 else {
            return nil
        }
        self.init(number: number, sentAt: sentAt)
    }

    /// Parses `…:"1732199045123456:42"}` from its end.
    init?(endOf payload: [UInt8]) {
        var index = payload.count - 2
        guard index > 2, payload[index + 1] == UInt8(ascii: "}"),
            payload[index] == UInt8(ascii: "\"")
        else { return nil }

        func digits(after delimiter: UInt8) -> Int? {
            var value = 0
            var factor = 1
            var count = 0
            index -= 1
            while index >= 0, count <= 18 {
                let byte = payload[index]
                if byte == delimiter { return count > 0 ? value : nil }
                guard (48...57).contains(byte) else { return nil }
                value += Int(byte - 48) * factor
                count += 1
                if count < 18 { factor *= 10 }
                index -= 1
            }
            return nil
        }

        guard let number = digits(after: UInt8(ascii: ":")),
            let sentAt = digits(after: UInt8(ascii: "\""))
        else { return nil }
        self.init(number: number, sentAt: sentAt)
    }
}
