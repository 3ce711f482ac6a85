internal import Glibc
internal import JSON

/// The response times of one load, and its duration.
struct LoadTimes {
    /// Milliseconds, in order of arrival.
    var answers: [Double] = []
    var seconds: Double = 0

    var figures: String {
        let times = answers.sorted()
        let figures: JSONValue = [
            "answers": JSONValue(times.count),
            "per_second": .double(Double(times.count) / seconds),
            "p50": .double(percentile(times, 0.5) ?? 0),
            "p99": .double(percentile(times, 0.99) ?? 0),
            "p999": .double(percentile(times, 0.999) ?? 0),
        ]
        return figures.text
    }
}

/// Lets clients send one request after the other, for this long.
///
/// - Parameters:
///   - clients: All of them idle.
///   - seconds: The duration of sending; requests in flight at its end are waited for.
///   - rate: The number of requests due per second, all clients together; `nil`: one after each
///     response. With a rate a response time counts from when its request was due, so that a
///     server that stops for a while does not get fewer requests.
///   - next: The bytes of a complete request; `nil` at the end.
/// - Returns: The time of each response.
/// - Throws: `BenchmarkError` for a response without success, or without one for ten seconds.
func ask(
    _ clients: [LoadClient],
    for seconds: Double,
    rate: Double? = nil,
    _ next: () -> [UInt8]?
) throws -> LoadTimes {
    var times = LoadTimes()
    let start = ContinuousClock.now
    let end = start + .seconds(seconds)
    var idle = Array(clients.indices)
    var asked = 0
    var last = start
    var isOver = false
    while true {
        while !isOver, let index = idle.last {
            let now = ContinuousClock.now
            let due = rate.map { start + .seconds(Double(asked) / $0) } ?? now
            isOver = max(due, now) >= end
            if isOver || due > now { break }
            guard let request = next() else {
                isOver = true
                break
            }
            idle.removeLast()
            asked += 1
            try clients[index].send(request, dueAt: due)
        }
        if isOver, idle.count == clients.count { break }
        // The wait is until the next one is due, if a client is free.
        var wait = Duration.seconds(10)
        if let rate, !isOver, !idle.isEmpty {
            wait = max(.zero, start + .seconds(Double(asked) / rate) - .now)
        }
        let ready = try readable(clients, within: wait)
        guard !ready.isEmpty else {
            if rate != nil, !isOver, !idle.isEmpty { continue }
            throw BenchmarkError("no answer within 10 seconds")
        }
        for index in ready {
            guard let took = try clients[index].receive() else { continue }
            last = .now
            times.answers.append(took)
            idle.append(index)
        }
    }
    times.seconds = max(0.001, (last - start) / .seconds(1))
    return times
}

/// - Returns: The clients with something to read; none if the time ran out. `select` takes the wait
///   in microseconds, which `poll` does not.
private func readable(_ clients: [LoadClient], within wait: Duration) throws -> [Int] {
    var set = fd_set()
    var highest: Int32 = 0
    unsafe withUnsafeMutableBytes(of: &set) { bits in
        for client in clients where Int(client.descriptor) < bits.count * 8 {
            unsafe bits[Int(client.descriptor) / 8] |= 1 << UInt8(client.descriptor % 8)
            highest = max(highest, client.descriptor)
        }
    }
    var time = timeval(
        tv_sec: Int(wait.components.seconds),
        tv_usec: Int(wait.components.attoseconds / 1_000_000_000_000)
    )
    let count = unsafe select(highest + 1, &set, nil, nil, &time)
    guard count >= 0 else { throw BenchmarkError("select failed") }
    guard count > 0 else { return [] }
    return unsafe withUnsafeBytes(of: &set) { bits in
        clients.indices.filter { index in
            let descriptor = clients[index].descriptor
            return unsafe Int(descriptor) < bits.count * 8
                && bits[Int(descriptor) / 8] & 1 << UInt8(descriptor % 8) != 0
        }
    }
}

/// One connection that has one request at a time.
final class LoadClient {
    let descriptor: Int32
    /// The last response, head and body.
    private(set) var answer: [UInt8] = []
    private var dueAt = ContinuousClock.now
    private var buffer = [UInt8](repeating: 0, count: 131_072)
    private let expected: String

    /// Connects.
    ///
    /// - Parameters:
    ///   - port: A port of this machine.
    ///   - expecting: The first digits of each response's status.
    /// - Throws: `BenchmarkError` if nothing listens.
    init(port: UInt16, expecting: String = "20") throws {
        expected = "HTTP/1.1 " + expecting
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

    func send(_ request: [UInt8], dueAt: ContinuousClock.Instant = .now) throws {
        self.dueAt = dueAt
        answer.removeAll(keepingCapacity: true)
        guard unsafe write(descriptor, request, request.count) == request.count else {
            throw BenchmarkError("a request could not be written")
        }
    }

    /// - Returns: The milliseconds of the response; `nil` while there is more to come.
    func receive() throws -> Double? {
        let count = unsafe read(descriptor, &buffer, buffer.count)
        guard count > 0 else { throw BenchmarkError("the connection was closed") }
        answer += buffer[..<count]
        guard let length = try wholeLength() else { return nil }
        guard answer.count >= length else { return nil }
        return (ContinuousClock.now - dueAt) / .milliseconds(1)
    }

    /// Returns the length of head and body, once the head is there.
    private func wholeLength() throws -> Int? {
        let end: [UInt8] = [13, 10, 13, 10]
        guard let head = answer.firstRange(of: end) else { return nil }
        let text = String(decoding: answer[..<head.lowerBound], as: UTF8.self)
        guard text.hasPrefix(expected) else {
            throw BenchmarkError("refused: \(String(decoding: answer, as: UTF8.self))")
        }
        let lines = text.lowercased().split(separator: "\r\n")
        guard let line = lines.first(where: { $0.hasPrefix("content-length:") }),
            let length = Int(line.dropFirst(15).filter { $0 != " " })
        else { throw BenchmarkError("an answer without a length") }
        return head.upperBound + length
    }
}
