package import JSON

/// The simulator's plain HTTP side: the received requests, and the rules for its responses.
package struct SimulatorControl: Sendable {
    package let url: String

    /// One request that a provider received.
    package struct Received: Sendable {
        package let sequence: Int
        /// The time of arrival, in ISO 8601.
        package let at: String
        package let provider: String
        package let environment: String
        package let connection: Int?
        package let token: String
        /// The topic of APNs or FCM.
        package let topic: String?
        package let path: String
        package let status: Int
        package let reason: String?
        package let headers: JSONValue
        package let body: JSONValue

        init(_ json: JSONValue) {
            sequence = json["seq"]?.integer ?? -1
            at = json["at"]?.string ?? ""
            provider = json["provider"]?.string ?? ""
            environment = json["environment"]?.string ?? ""
            connection = json["connection"]?.integer
            token = json["token"]?.string ?? ""
            topic = json["topic"]?.string
            path = json["path"]?.string ?? ""
            status = json["status"]?.integer ?? 0
            reason = json["reason"]?.string
            headers = json["headers"] ?? .null
            body = json["body"] ?? .null
        }

        package func header(_ name: String) -> String? {
            headers.object?.first { $0.key.lowercased() == name.lowercased() }?.value.string
        }
    }

    /// Returns the requests after a sequence number, oldest first, with the number for the next
    /// call.
    package func received(after: Int = 0) async throws -> (all: [Received], next: Int) {
        let answer = try await http("GET", "\(url)/received?after=\(after)")
        guard answer.status == 200, let json = answer.json else {
            throw TestFailure("GET /received: \(answer.status) \(answer.text.prefix(200))")
        }
        if let dropped = json["dropped"]?.integer, dropped > 0 {
            throw TestFailure("the simulator has dropped \(dropped) of what it received")
        }
        return ((json["received"]?.array ?? []).map(Received.init), json["next"]?.integer ?? after)
    }

    /// Returns the requests for one token, or for the channel URI that ends with it.
    package func received(for token: String) async throws -> [Received] {
        try await received().all.filter { $0.token == token || $0.path.hasSuffix(token) }
    }

    /// Waits until this many requests for one token have arrived.
    package func waitFor(_ count: Int, for token: String) async throws -> [Received] {
        try await eventually("\(count) requests for one token") {
            let all = try await received(for: token)
            return all.count >= count ? all : nil
        }
    }

    /// Scripts the responses: the first rule that matches wins. Replaces all earlier rules.
    package func setRules(_ rules: [JSONValue]) async throws {
        try await put("rules", .array(rules))
    }

    package func setSettings(_ settings: JSONValue) async throws {
        try await put("settings", settings)
    }

    /// Returns how many requests a provider has answered with a status.
    package func count(_ provider: String, status: Int) async throws -> Int {
        let answer = try await http("GET", "\(url)/counts")
        guard let json = answer.json else { throw TestFailure("GET /counts: \(answer.status)") }
        return json[provider]?[String(status)]?.integer ?? 0
    }

    private func put(_ path: String, _ body: JSONValue) async throws {
        let answer = try await http("PUT", "\(url)/\(path)", body: body)
        guard (200..<300).contains(answer.status) else {
            throw TestFailure("PUT /\(path): \(answer.status) \(answer.text.prefix(300))")
        }
    }
}
