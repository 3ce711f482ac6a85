internal import FoundationEssentials
internal import Glibc
internal import JSON

/// `registry PORT APP KEY KIND FROM TO CONNECTIONS SECONDS`: that many clients, each with a
/// connection of its own, ask the registration service at that port of this machine for one thing
/// after the other, for so long. Prints how many a second were answered, and how long one took.
///
/// KIND: `known` saves devices between FROM and TO at random; `new` saves each once, from FROM on;
/// `subscribe` adds a channel to an installation whose object id is a number between FROM and TO.
func measureRegistry(_ arguments: [String]) throws -> String {
    guard arguments.count == 8, let port = UInt16(arguments[0]),
        let kind = RegistryLoad.Kind(rawValue: arguments[3]),
        let from = Int(arguments[4]), let to = Int(arguments[5]), from <= to,
        let connections = Int(arguments[6]), (1...1000).contains(connections),
        let seconds = Double(arguments[7])
    else {
        throw BenchmarkError(
            "usage: carillon-bench registry PORT APP KEY known|new|subscribe FROM TO CONNECTIONS"
                + " SECONDS"
        )
    }
    var load = RegistryLoad(
        app: arguments[1],
        key: arguments[2],
        kind: kind,
        devices: from...to
    )
    var clients: [LoadClient] = []
    defer { for client in clients { client.close() } }
    for _ in 0..<connections { clients.append(try LoadClient(port: port)) }
    // The first find connections, plans and caches made.
    _ = try run(&load, clients, for: min(1, seconds / 4))
    var times = try run(&load, clients, for: seconds)
    times.sort()
    let figures: JSONValue = [
        "per_second": .double(Double(times.count) / seconds),
        "p50": .double(percentile(times, 0.5) ?? 0), "p99": .double(percentile(times, 0.99) ?? 0),
        "p999": .double(percentile(times, 0.999) ?? 0),
    ]
    return figures.text
}

/// - Returns: How many milliseconds each answer took.
private func run(
    _ load: inout RegistryLoad,
    _ clients: [LoadClient],
    for seconds: Double
) throws -> [Double] {
    var times: [Double] = []
    let end = ContinuousClock.now + .seconds(seconds)
    var polled = clients.map { pollfd(fd: $0.descriptor, events: Int16(POLLIN), revents: 0) }
    var open = clients.count
    for client in clients { try client.send(load.next()) }
    while open > 0 {
        let ready = unsafe poll(&polled, nfds_t(polled.count), 10_000)
        guard ready > 0 else { throw BenchmarkError("no answer within 10 seconds") }
        for (index, client) in clients.enumerated() where polled[index].revents != 0 {
            guard let took = try client.receive() else { continue }
            let now = ContinuousClock.now
            if now < end {
                times.append(took)
                try client.send(load.next())
            } else {
                open -= 1
            }
        }
    }
    return times
}

/// What is asked for, as the bytes of whole requests.
private struct RegistryLoad {
    enum Kind: String { case known, new, subscribe }

    let app: String
    let key: String
    let kind: Kind
    let devices: ClosedRange<Int>
    private var count = 0

    init(app: String, key: String, kind: Kind, devices: ClosedRange<Int>) {
        self.app = app
        self.key = key
        self.kind = kind
        self.devices = devices
    }

    mutating func next() -> [UInt8] {
        count += 1
        switch kind {
        case .known: return save(Int.random(in: devices))
        case .new: return save(devices.lowerBound + count)
        case .subscribe:
            let body = """
                {"channels":{"__op":"AddUnique","objects":["channel-\(Int.random(in: 0..<500))"]}}
                """
            let id = Self.hex(Int.random(in: devices), 24)
            return request("PUT /1.1/installations/\(id)", body)
        }
    }

    /// The row that `registry_rows` of deploy/bench makes of the same number.
    private func save(_ device: Int) -> [UInt8] {
        let token = Self.hex(device, 64)
        return request(
            "POST /1.1/installations",
            """
            {"deviceType":"ios","deviceToken":"\(token)","installationId":"phone-\(device)",\
            "apnsEnvironment":"production","channels":["news","half"],"badge":0,\
            "timeZone":"Europe/Berlin","localeIdentifier":"de_CH","identity":"user-\(device / 3)",\
            "plan":\(device % 100),"appVersion":"4.2.1"}
            """
        )
    }

    private func request(_ line: String, _ body: String) -> [UInt8] {
        Array(
            """
            \(line) HTTP/1.1\r
            Host: 127.0.0.1\r
            X-LC-Id: \(app)\r
            X-LC-Key: \(key)\r
            Content-Type: application/json\r
            Content-Length: \(body.utf8.count)\r
            \r
            \(body)
            """.utf8
        )
    }

    private static func hex(_ number: Int, _ width: Int) -> String {
        let digits = String(number, radix: 16)
        return String(repeating: "0", count: max(0, width - digits.utf8.count)) + digits
    }
}

/// One connection that has one request at a time.
private final class LoadClient {
    let descriptor: Int32
    private var sentAt = ContinuousClock.now
    private var answer: [UInt8] = []
    private var buffer = [UInt8](repeating: 0, count: 16_384)

    init(port: UInt16) throws {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let status = unsafe withUnsafePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard descriptor >= 0, status == 0 else {
            throw BenchmarkError("nobody listens on port \(port)")
        }
        var on: Int32 = 1
        unsafe setsockopt(descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &on, 4)
    }

    func close() { _ = Glibc.close(descriptor) }

    func send(_ request: [UInt8]) throws {
        sentAt = .now
        answer.removeAll(keepingCapacity: true)
        guard unsafe write(descriptor, request, request.count) == request.count else {
            throw BenchmarkError("a request could not be written")
        }
    }

    /// - Returns: How many milliseconds the answer took; `nil` while there is more to come.
    func receive() throws -> Double? {
        let count = unsafe read(descriptor, &buffer, buffer.count)
        guard count > 0 else { throw BenchmarkError("the connection was closed") }
        answer += buffer[..<count]
        guard let length = try wholeLength() else { return nil }
        guard answer.count >= length else { return nil }
        return (ContinuousClock.now - sentAt) / .milliseconds(1)
    }

    /// Of head and body, once the head is there.
    private func wholeLength() throws -> Int? {
        let end: [UInt8] = [13, 10, 13, 10]
        guard let head = answer.firstRange(of: end) else { return nil }
        let text = String(decoding: answer[..<head.lowerBound], as: UTF8.self)
        guard text.hasPrefix("HTTP/1.1 20") else {
            throw BenchmarkError("refused: \(String(decoding: answer, as: UTF8.self))")
        }
        let lines = text.lowercased().split(separator: "\r\n")
        guard let line = lines.first(where: { $0.hasPrefix("content-length:") }),
            let length = Int(line.dropFirst(15).filter { $0 != " " })
        else { throw BenchmarkError("an answer without a length") }
        return head.upperBound + length
    }
}
