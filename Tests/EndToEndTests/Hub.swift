import Foundation
import JSON
import Support
import Testing

/// A hub as its clients call it.
struct Hub {
    enum Key {
        case listen, full
    }

    let bench: Bench
    private let listen: String
    private let full: String

    var name: String { bench.app.id }

    init() async throws {
        bench = try await Bench()
        let resource = bench.registration + "/"
        listen = try await Self.token(
            resource,
            "DefaultListenSharedAccessSignature",
            bench.app.appKey
        )
        full = try await Self.token(
            resource,
            "DefaultFullSharedAccessSignature",
            bench.app.masterKey
        )
    }

    // Python's own HMAC and percent-encoding, so that no code of Carillon checks itself here.
    private static let script = """
        import base64, hashlib, hmac, sys, time, urllib.parse
        resource, name, key, lifetime, style = sys.argv[1:6]
        sr = urllib.parse.quote(resource.lower(), safe="")
        if style == "dotnet":
            parts = urllib.parse.urlsplit(resource.lower())
            path = parts.path if parts.path.endswith("/") else parts.path + "/"
            sr = urllib.parse.quote("http://" + parts.hostname + path, safe="").lower()
        se = str(int(time.time()) + int(lifetime))
        mac = hmac.new(key.encode(), (sr + "\\n" + se).encode(), hashlib.sha256).digest()
        sig = urllib.parse.quote(base64.b64encode(mac).decode(), safe="")
        print(f"SharedAccessSignature sr={sr}&sig={sig}&se={se}&skn={name}", end="")
        """

    static func token(
        _ resource: String,
        _ keyName: String,
        _ key: String,
        lifetime: Int = 3600,
        style: String = "js"
    ) async throws -> String {
        try await run(
            TestEnvironment.python ?? "",
            ["-c", script, resource, keyName, key, String(lifetime), style]
        ).successful("python")
    }

    func token(_ key: Key) -> String { key == .listen ? listen : full }

    func raw(
        _ method: String,
        _ path: String,
        query: String = "",
        by key: Key = .full,
        headers: [String: String] = [:],
        bytes: [UInt8] = []
    ) async throws -> HTTPAnswer {
        let more = query.isEmpty ? "" : "&\(query)"
        return try await http(
            method,
            "\(bench.registration)/\(name)/\(path)?api-version=2020-06\(more)",
            headers: headers.merging(["Authorization": key == .listen ? listen : full]) { $1 },
            bytes: bytes
        )
    }

    func call(
        _ method: String,
        _ path: String,
        by key: Key,
        body: JSONValue? = nil
    ) async throws -> HTTPAnswer {
        try await raw(
            method,
            path,
            by: key,
            headers: ["Content-Type": "application/json"],
            bytes: body?.bytes ?? []
        )
    }

    func send(
        _ format: String,
        _ body: String,
        path: String = "messages",
        query: String = "",
        headers: [String: String] = [:],
        by key: Key = .full
    ) async throws -> HTTPAnswer {
        try await raw(
            "POST",
            path,
            query: query,
            by: key,
            headers: headers.merging([
                "ServiceBusNotification-Format": format,
                "Content-Type": "application/json;charset=utf-8",
            ]) { $1 },
            bytes: Array(body.utf8)
        )
    }

    func register(
        _ platform: String,
        _ channel: String,
        tags: [String] = [],
        user: String? = nil,
        templates: JSONValue? = nil
    ) async throws {
        let id = TestEnvironment.unique("device-")
        var body: JSONObject = [
            "installationId": .string(id), "platform": .string(platform),
            "pushChannel": .string(channel), "tags": .array(tags.map { .string($0) }),
        ]
        body["userId"] = user.map { .string($0) }
        body["templates"] = templates
        let answer = try await call("PUT", "installations/\(id)", by: .listen, body: .object(body))
        guard answer.status == 200 else {
            throw TestFailure("PUT installations: \(answer.status) \(answer.text)")
        }
    }

    /// Returns the notification's id as both SDKs find it: the third segment of the address, and
    /// its last.
    func id(_ answer: HTTPAnswer) throws -> String {
        guard let location = answer.header("location"), let url = URL(string: location),
            location.hasPrefix(bench.registration), url.pathComponents.count == 4,
            url.pathComponents[1] == name
        else {
            throw TestFailure("\(answer.status) \(answer.text): \(answer.header("location") ?? "")")
        }
        return url.pathComponents[3]
    }

    /// Returns the telemetry of a send, once it has ended.
    func details(
        _ id: String,
        ends: [String] = ["Completed", "NoTargetFound"]
    ) async throws -> String {
        try await eventually("the send \(id) is over") {
            let answer = try await call("GET", "messages/\(id)", by: .full)
            guard answer.status == 200 else {
                throw TestFailure("GET messages: \(answer.status) \(answer.text)")
            }
            return ends.contains { answer.text.contains("<State>\($0)</State>") }
                ? answer.text : nil
        }
    }
}
