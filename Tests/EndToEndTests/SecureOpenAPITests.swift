import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Secure payloads and their OpenAPI description", .timeLimit(.minutes(10)))
    struct SecureOpenAPITests {
        /// TRACE is not one of our methods: 501, not 405. A tag expression has a grammar that a
        /// schema cannot express, a handle is its provider's, and few numbers are an id: invalid
        /// generated values are refused. A busy machine checks too few secrets in time: 503.
        private static let settings = """
            [phases.coverage]
            unexpected-methods = ["GET", "PUT", "POST", "DELETE", "PATCH"]

            [checks.positive_data_acceptance]
            expected-statuses = ["2xx", "401", "403", "404", "409", "410", "422", "400", "503"]

            [checks.not_a_server_error]
            expected-statuses = ["2xx", "3xx", "4xx", "503"]

            """

        @Test(
            "Schemathesis finds no violation of /openapi.json",
            .enabled(
                if: TestEnvironment.pythonWithSchemathesis != nil,
                "CARILLON_PYTHON_SCHEMATHESIS is not set"
            ),
            arguments: ["backend", "reader"]
        )
        func schemathesis(caller: String) async throws {
            try await SecureBench.run([
                "RATE_LIMIT_FAILURES_PER_ADDRESS": "0", "SECURE_FAILURES_PER_IDENTITY": "0",
            ]) { bench in
                try await bench.stack.carillon("app", "set", bench.app.id, "secure-unnamed=on")
                try await bench.keep("content")
                let user =
                    caller == "backend"
                    ? "\(bench.app.id):\(bench.app.masterKey)"
                    : "ann:" + (try await bench.secret(of: "ann"))
                let answer = try await runSchemathesis(
                    of: bench.service.url,
                    settings: try bench.stack.write(Self.settings, to: "schemathesis.toml"),
                    user: user
                )
                #expect(answer.exit == .status(0), "\(answer.output.suffix(8000))")
            }
        }

        // MARK: Hostile input

        /// 4,000, or as many as a minute allows.
        private static let wanted = 4_000
        private static let limit = Duration.seconds(60)
        private static let connections = 8
        private static let batch = 50

        @Test("Random bodies and credentials cause no server error")
        func fuzz() async throws {
            try await SecureBench.run([
                "RATE_LIMIT_FAILURES_PER_ADDRESS": "0", "SECURE_FAILURES_PER_IDENTITY": "0",
                "HTTP_ACCESS_LOG": "false",
            ]) { bench in
                try await bench.stack.carillon("app", "set", bench.app.id, "secure-unnamed=on")
                let reader = "reader:" + (try await bench.secret(of: "reader"))
                let master = "\(bench.app.id):\(bench.app.masterKey)"
                let id = try await bench.keep("content", for: "reader").id
                let port = UInt16(try #require(URLComponents(string: bench.service.url)?.port))
                let end = ContinuousClock.now + Self.limit
                let statuses = try await withThrowingTaskGroup(of: [Int: Int].self) { group in
                    for number in 0..<Self.connections {
                        group.addTask {
                            try await onThread {
                                var maker = RequestMaker(
                                    seed: UInt64(number) + 1,
                                    app: bench.app.id,
                                    users: [reader, master],
                                    ids: [id]
                                )
                                return try Self.send(
                                    Self.wanted / Self.connections,
                                    until: end,
                                    to: port,
                                    &maker
                                )
                            }
                        }
                    }
                    return try await group.reduce(into: [:]) { all, part in
                        all.merge(part, uniquingKeysWith: +)
                    }
                }
                let count = statuses.values.reduce(0, +)
                print(
                    "fuzzed requests: \(count), by status: \(statuses.sorted { $0.key < $1.key })"
                )
                #expect(count > 2000)
                #expect(statuses.keys.allSatisfy { $0 < 500 || $0 == 503 }, "\(statuses)")
                // Most of them come from callers with access.
                #expect((statuses[400] ?? 0) > 0 && (statuses[201] ?? 0) > 0, "\(statuses)")
                #expect(try await bench.count("secure_tampered_total") == 0)
                let failures = bench.service.process.events.filter { $0["level"] == "error" }
                #expect(failures.isEmpty, "\(failures.prefix(3).map(\.text))")
            }
        }

        /// Sends requests in batches over connections that stay open, and counts the responses.
        private static func send(
            _ count: Int,
            until end: ContinuousClock.Instant,
            to port: UInt16,
            _ maker: inout RequestMaker
        ) throws -> [Int: Int] {
            var statuses: [Int: Int] = [:]
            var sent = 0
            while sent < count, ContinuousClock.now < end {
                let socket = try LoopbackSocket(port: port)
                defer { socket.close() }
                var requests: [UInt8] = []
                for number in 0..<batch { requests += maker.next(isLast: number == batch - 1) }
                try socket.send(requests)
                // Bytes that are not HTTP end the connection, and the requests after them get no
                // response.
                let answers = String(decoding: try socket.receiveAll(), as: UTF8.self)
                for part in answers.components(separatedBy: "HTTP/1.1 ").dropFirst() {
                    guard let status = Int(part.prefix(3)) else { continue }
                    statuses[status, default: 0] += 1
                    sent += 1
                }
            }
            return statuses
        }
    }
}

/// Makes random requests, of meaningful and meaningless pieces; the same seed makes the same.
private struct RequestMaker {
    private var generator: Generator
    private let app: String
    private let users: [String]
    private let ids: [String]

    /// SplitMix64.
    private struct Generator: RandomNumberGenerator {
        var state: UInt64

        mutating func next() -> UInt64 {
            state &+= 0x9E37_79B9_7F4A_7C15
            var value = state
            value = (value ^ (value >> 30)) &* 0xBF58_476D_1CE4_E5B9
            value = (value ^ (value >> 27)) &* 0x94D0_49BB_1331_11EB
            return value ^ (value >> 31)
        }
    }

    init(seed: UInt64, app: String, users: [String], ids: [String]) {
        generator = Generator(state: seed)
        (self.app, self.users, self.ids) = (app, users, ids)
    }

    private mutating func one<Value>(_ values: [Value]) -> Value {
        values[Int.random(in: 0..<values.count, using: &generator)]
    }

    private mutating func happens(_ percent: Int) -> Bool {
        Int.random(in: 0..<100, using: &generator) < percent
    }

    private static let odd = [
        "", "0", "a", "ann", "é", "e\u{301}", "\u{0}", "%", "\"", "\\", "\u{FFFF}", "🔔", "null",
        "-1", "9999999999999999999999", "1e400", "cds_",
        "cds_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "a.b.c", "username:ann", "username:bob", "a && b", "!(a)", "$UserId:{x}", " ", "\u{202E}",
        "https://x.notify.windows.com/1", "00000000-0000-0000-0000-000000000000",
    ]

    private mutating func text() -> String {
        switch Int.random(in: 0..<10, using: &generator) {
        case 0: String(repeating: one(Self.odd), count: Int.random(in: 0..<700, using: &generator))
        case 1: one(Self.odd) + one(Self.odd)
        default: one(Self.odd)
        }
    }

    private mutating func value(_ depth: Int = 0) -> JSONValue {
        switch Int.random(in: 0..<(depth > 2 ? 6 : 8), using: &generator) {
        case 0: .null
        case 1: .bool(happens(50))
        case 2: .integer(one([0, 1, 60, 59, 2_592_000, -1, .max, .min]))
        case 3: .double(one([0.5, 60, 1e300]))
        case 6: .array((0..<3).map { _ in value(depth + 1) })
        case 7: .object(object(depth + 1))
        default: .string(text())
        }
    }

    private mutating func object(_ depth: Int = 0) -> JSONObject {
        var object: JSONObject = [:]
        for name in [
            "identity", "payload", "visibleText", "tag", "expiresInSeconds", "readOnce", "sealed",
            "secret", "sealingKey", "Platform", "Handle", "Tags",
        ] where happens(10) { object[name] = value(depth) }
        if happens(3) { object[text()] = value(depth) }
        return object
    }

    private mutating func body() -> [UInt8] {
        var object = object()
        switch Int.random(in: 0..<6, using: &generator) {
        case 0, 1:
            object["identity"] = "reader"
            object["payload"] = "content"
        case 2:
            object["Platform"] = .string(one(["apns", "gcm", "wns", "mpns"]))
            object["Handle"] = .string(happens(50) ? "reg:1" : text())
        default: break
        }
        if happens(2) { object["sealed"] = true }
        var bytes = object.bytes
        if happens(10), !bytes.isEmpty {
            bytes[Int.random(in: 0..<bytes.count, using: &generator)] =
                UInt8.random(in: 0...255, using: &generator)
        }
        return bytes
    }

    /// Wrong secrets are few: each takes a tenth of a second.
    private mutating func authorization() -> String? {
        switch Int.random(in: 0..<20, using: &generator) {
        case 0: nil
        case 1:
            "Bearer "
                + one(["", "x", "a.b.c", "eyJhbGciOiJub25lIn0.e30.", "eyJhbGciOiJFUzI1NiJ9.e30.AA"])
        case 2: "Basic " + one(["", "!", "YQ==", "Og=="])
        case 3:
            "Basic " + Data((one(Self.odd) + ":cds_" + one(Self.odd)).utf8).base64EncodedString()
        case 4: "Basic " + Data(text().utf8).base64EncodedString().prefix(4000)
        case 5: one(["Digest x", "basic", ""])
        default: "Basic " + Data(one(users).utf8).base64EncodedString()
        }
    }

    private mutating func segment() -> String {
        if happens(50) {
            return one(ids + ["12", "000000000000000000000001", "ann", "a%2Fb", "%C3%A9"])
        }
        return text().addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? "x"
    }

    private mutating func path() -> String {
        let base = happens(20) ? "/" + one([app, "none", "v1"]) : ""
        let id = segment()
        let path = one([
            "\(base)/api/notifications", "\(base)/api/notifications",
            "\(base)/api/notifications/\(id)",
            "\(base)/api/register", "\(base)/api/register/\(id)", "/v1/identities/\(id)/secret",
            "/v1/installations/\(id)/reader",
        ])
        guard happens(20) else { return path }
        let name = one(["identity", "limit", "after", "installation", "handle", "x"])
        return path + "?\(name)=\(segment())"
    }

    mutating func next(isLast: Bool) -> [UInt8] {
        let method = one(["GET", "GET", "POST", "POST", "PUT", "DELETE", "HEAD"])
        var head = "\(method) \(path()) HTTP/1.1\r\nHost: x\r\n"
        // A response to HEAD has no body, whatever its length says, so it comes last here.
        if isLast || method == "HEAD" {
            head += "Connection: \(isLast ? "close" : "keep-alive")\r\n"
        }
        if let line = authorization() { head += "Authorization: \(line)\r\n" }
        if happens(10) { head += "X-LC-Id: \(one([app, "none", "a b"]))\r\n" }
        if happens(5) { head += "X-LC-Key: \(one(["x", "x,master", ""]))\r\n" }
        if happens(10) {
            head += "Idempotency-Key: \(one(["k1", "k2", String(repeating: "k", count: 300)]))\r\n"
        }
        let body = method == "GET" || method == "HEAD" ? [] : body()
        head += "Content-Length: \(body.count)\r\n\r\n"
        return Array(head.utf8) + body
    }
}
