import HTTPServer
import JSON

/// One request as a provider saw it, with its answer.
struct ReceivedRequest: Sendable {
    var provider: Provider
    var environment: String
    var result: CheckResult
    /// `nil` without an answer: `ending` says what happened instead.
    var status: Int?
    var reason: String?
    /// RFC 3339, UTC.
    var at: String
    var request: HTTPServerRequest

    func json(number: Int) -> JSONValue {
        var headers = JSONObject()
        for field in request.headers {
            let name = field.name.lowercased()
            let earlier = headers[name]?.string.map { $0 + ", " } ?? ""
            headers[name] = .string(earlier + field.value)
        }
        let body: JSONValue =
            (try? JSONValue.parse(request.body))
            ?? .string(String(decoding: request.body, as: UTF8.self))
        let optional = { (text: String?) in text.map { JSONValue.string($0) } ?? .null }
        return [
            "seq": JSONValue(number), "at": .string(at), "provider": .string(provider.rawValue),
            "environment": .string(environment), "connection": JSONValue(request.connectionID),
            "certificate": optional(request.clientCertificateSubject),
            "token": optional(result.token), "topic": optional(result.topic),
            "method": .string(request.method.rawValue), "path": .string(request.rawTarget),
            "headers": .object(headers), "body": body,
            "status": status.map { JSONValue($0) } ?? .null, "reason": optional(reason),
        ]
    }
}

/// The received requests, bounded: the oldest are dropped, and counted.
///
/// Numbers are odd and begin with 1, and `next` is the even number after the last one. So a client
/// may pass its last number or the last `next` as `after`. In both cases it neither misses a
/// request nor gets one twice.
struct ReceivedLog: Sendable {
    static let maximumCount = 50_000
    static let maximumBytes = 64 << 20

    private let maximumCount: Int
    private let maximumBytes: Int
    private var entries: [[UInt8]] = []
    /// The number of dropped entries in `entries`; they are removed by the thousand.
    private var gone = 0
    private var byteCount = 0
    private var lastNumber = -1
    private(set) var dropped = 0
    private(set) var counts: [String: [String: Int]] = [:]

    init(maximumCount: Int = maximumCount, maximumBytes: Int = maximumBytes) {
        self.maximumCount = maximumCount
        self.maximumBytes = maximumBytes
    }

    mutating func append(_ request: ReceivedRequest) {
        lastNumber += 2
        let entry = request.json(number: lastNumber).bytes
        entries.append(entry)
        byteCount += entry.count
        count(request.provider.rawValue, request.status.map { "\($0)" } ?? request.reason ?? "none")
        while entries.count - gone > maximumCount || byteCount > maximumBytes, gone < entries.count
        {
            byteCount -= entries[gone].count
            entries[gone] = []
            gone += 1
            dropped += 1
        }
        if gone >= 1000 {
            entries.removeFirst(gone)
            gone = 0
        }
    }

    mutating func count(_ name: String, _ outcome: String) {
        counts[name, default: [:]][outcome, default: 0] += 1
    }

    /// Deletes the requests and counts; numbers continue.
    mutating func clear() {
        let last = lastNumber
        self = ReceivedLog(maximumCount: maximumCount, maximumBytes: maximumBytes)
        lastNumber = last
    }

    /// Returns the body of `GET /received`.
    func listing(after: Int) -> [UInt8] {
        var body = Array(#"{"received":["#.utf8)
        // The number of the first entry that is still stored.
        let first = lastNumber - 2 * (entries.count - gone - 1)
        let skipped = after < first ? 0 : min((after - first) / 2 + 1, entries.count - gone)
        var isFirst = true
        for entry in entries[(gone + skipped)...] {
            if !isFirst { body.append(UInt8(ascii: ",")) }
            isFirst = false
            body += entry
        }
        body += Array(#"],"next":\#(lastNumber + 1),"dropped":\#(dropped)}"#.utf8)
        return body
    }

    /// The body of `GET /counts`: providers and outcomes in the order of their names.
    var countsListing: JSONValue {
        var object = JSONObject()
        for (name, outcomes) in counts.sorted(by: { $0.key < $1.key }) {
            var inner = JSONObject()
            for (outcome, count) in outcomes.sorted(by: { $0.key < $1.key }) {
                inner[outcome] = JSONValue(count)
            }
            object[name] = .object(inner)
        }
        return .object(object)
    }
}
