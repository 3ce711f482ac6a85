/// `registry PORT APP KEY KIND FROM TO CONNECTIONS SECONDS`: CONNECTIONS clients send one request
/// after the other to the registration service at that port of this machine, for SECONDS. Prints
/// how many a second were answered, and how long one took.
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
    // These create connections and plans, and fill caches.
    _ = try ask(clients, for: min(1, seconds / 4)) { load.next() }
    return try ask(clients, for: seconds) { load.next() }.figures
}

/// The requests of a load, as complete bytes.
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

    /// Makes the row that `registry_rows` of deploy/bench makes of the same number.
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
