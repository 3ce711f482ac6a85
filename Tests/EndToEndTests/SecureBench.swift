import Cryptography
import Foundation
import JSON
import Support
import Testing

/// A stack with the service of secure payloads, and an app whose identities can be used.
struct SecureBench: Sendable {
    let stack: Stack
    let service: Stack.Service
    let app: Stack.App

    /// Runs the body with one; its services must end gracefully.
    static func run(
        _ extra: [String: String] = [:],
        withDispatcher: Bool = false,
        _ body: (SecureBench) async throws -> Void
    ) async throws {
        try await Stack.with { stack in
            let service = try await start(on: stack, extra)
            let bench = SecureBench(
                stack: stack,
                service: service,
                app: try await stack.makeApp()
            )
            let dispatcher = withDispatcher ? try await stack.start("carillon-dispatcher") : nil
            try await body(bench)
            for service in [service, dispatcher].compactMap({ $0 }) {
                #expect(await service.process.stop() == .status(0), "\(service.process.finalBytes)")
            }
        }
    }

    static func start(
        on stack: Stack,
        _ extra: [String: String] = [:]
    ) async throws -> Stack.Service {
        try await stack.start(
            "carillon-secure-payload",
            ["LOG_LEVEL": "debug"].merging(extra) { $1 }
        )
    }

    /// Returns the same for another app.
    func beside(_ app: Stack.App) -> SecureBench {
        SecureBench(stack: stack, service: service, app: app)
    }

    // MARK: Calls

    /// Calls the service for the app, by a path below it.
    func ask(
        _ method: String,
        _ path: String,
        _ headers: [String: String] = [:],
        _ body: JSONValue? = nil
    ) async throws -> HTTPAnswer {
        try await http(
            method,
            service.url + path,
            headers: ["X-LC-Id": app.id].merging(headers) { $1 },
            body: body
        )
    }

    static func basic(_ user: String, _ password: String) -> [String: String] {
        ["Authorization": "Basic " + Base64.encode(Array("\(user):\(password)".utf8))]
    }

    static func bearer(_ token: String) -> [String: String] {
        ["Authorization": "Bearer \(token)"]
    }

    // MARK: Calls of a backend

    struct Kept: Sendable {
        /// The form in paths and messages.
        let id: String
        /// The form in responses.
        let json: JSONValue
        let pushID: String
    }

    @discardableResult
    func keep(
        _ payload: String,
        for identity: String = "ann",
        _ more: JSONObject = [:],
        headers: [String: String] = [:]
    ) async throws -> Kept {
        var body: JSONObject = ["identity": .string(identity), "payload": .string(payload)]
        for (name, value) in more { body[name] = value }
        let answer = try await ask(
            "POST",
            "/api/notifications",
            app.masterHeaders.merging(headers) { $1 },
            .object(body)
        )
        guard answer.status == 201, let id = answer.json?["Id"],
            let pushID = answer.json?["pushId"]?.string
        else { throw TestFailure("not kept: \(answer.status) \(answer.text)") }
        return Kept(id: id.string ?? id.text, json: id, pushID: pushID)
    }

    /// Makes a secret for an identity and returns its credential.
    func proof(of identity: String) async throws -> [String: String] {
        Self.basic(identity, try await secret(of: identity))
    }

    func secret(of identity: String) async throws -> String {
        let answer = try await ask(
            "PUT",
            "/v1/identities/\(identity)/secret",
            app.masterHeaders,
            [:]
        )
        guard answer.status == 200, let secret = answer.json?["secret"]?.string else {
            throw TestFailure("no secret: \(answer.status) \(answer.text)")
        }
        return secret
    }

    // MARK: Calls of a device

    /// Registers a device as the tutorial's app does; returns its installation's id.
    func register(
        _ platform: String,
        _ handle: String,
        by proof: [String: String],
        tags: [String] = []
    ) async throws -> String {
        let made = try await ask("POST", "/api/register", proof)
        guard made.status == 200, let id = made.json?.string else {
            throw TestFailure("no id: \(made.status) \(made.text)")
        }
        let answer = try await ask(
            "PUT",
            "/api/register/\(id)",
            proof,
            [
                "Platform": .string(platform), "Handle": .string(handle),
                "Tags": .array(tags.map(JSONValue.string)),
            ]
        )
        guard answer.status == 200 else {
            throw TestFailure("not registered: \(answer.status) \(answer.text)")
        }
        return id
    }

    /// Makes a device a reader; returns its credential.
    func reader(
        _ installation: String,
        by proof: [String: String],
        sealingKey: [UInt8]? = nil
    ) async throws -> [String: String] {
        let body: JSONValue =
            if let sealingKey {
                ["sealingKey": .string(Base64.encodeURL(sealingKey))]
            } else {
                [:]
            }
        let answer = try await ask("PUT", "/v1/installations/\(installation)/reader", proof, body)
        guard answer.status == 200, let secret = answer.json?["deviceSecret"]?.string else {
            throw TestFailure("no reader: \(answer.status) \(answer.text)")
        }
        return Self.basic(installation, secret)
    }

    func read(
        _ id: String,
        by proof: [String: String],
        _ query: String = ""
    ) async throws -> HTTPAnswer {
        try await ask("GET", "/api/notifications/\(id)\(query)", proof)
    }

    // MARK: Results

    /// Returns a counter of the service, of these labels.
    func count(_ name: String) async throws -> Int {
        let text = try await http("GET", "\(service.url)/metrics").text
        let line = text.split(separator: "\n").first { $0.hasPrefix(name + " ") }
        return line.flatMap { Int($0.dropFirst(name.count + 1)) } ?? -1
    }

    /// Returns the audit's entries of the app, the latest first, once they satisfy the condition.
    func audit(until holds: ([JSONValue]) -> Bool) async throws -> [JSONValue] {
        try await eventually("the audit has it") {
            let lines = try await stack.carillon("audit", app.id, "--json").split(separator: "\n")
            let entries = lines.compactMap { try? JSONValue.parse(String($0)) }
            return holds(entries) ? entries : nil
        }
    }
}
