import Cryptography
import Foundation
import JSON
import Support

/// The network between a Realm client and ingest: `realm_proxy.py`, which says how it can be
/// changed.
struct RealmProxy {
    let process: ChildProcess
    let url: String

    /// Runs the body with one in front of a bench's service.
    static func with(
        _ bench: IngestBench,
        _ change: JSONObject = [:],
        _ body: (RealmProxy) async throws -> Void
    ) async throws {
        let key = try await bench.stack.derivedKey(for: "realm tokens")
        let process = try await ChildProcess.start(
            "/usr/bin/python3",
            [scriptFile("realm_proxy.py"), String(try bench.service.port), Hex.encode(key)],
            environment: ["PYTHONDONTWRITEBYTECODE": "1"]
        )
        let line = try await process.line("a port") { $0.hasPrefix("listening ") }
        let proxy = RealmProxy(
            process: process,
            url: "http://127.0.0.1:\(line.split(separator: " ")[1])"
        )
        // It has nothing to finish.
        defer { process.signal(SIGKILL) }
        try await proxy.set(change)
        try await body(proxy)
    }

    func set(_ change: JSONObject) async throws {
        let answer = try await http("POST", "\(url)/proxy", body: .object(change))
        guard answer.status == 200 else { throw TestFailure("the proxy: \(answer.text)") }
    }

    /// Sends new connections to another service, and ends those that are open.
    func move(to service: Stack.Service) async throws {
        try await set(["port": JSONValue(try service.port), "cut": true])
    }

    // MARK: Traffic

    private func seen() async throws -> JSONValue {
        try await http("GET", "\(url)/proxy").json ?? .null
    }

    /// The handshakes of WebSockets: `offered`, `chosen`, which is null without a response, and the
    /// service's `port`.
    var handshakes: [JSONValue] {
        get async throws { try await seen()["handshakes"]?.array ?? [] }
    }

    /// The other requests, as `POST /path 200`, without the prefix that all have.
    var requests: [String] {
        get async throws {
            (try await seen()["requests"]?.array ?? []).compactMap { request in
                request.string?.replacing("/api/client/v2.0", with: "")
            }
        }
    }

    /// The WebSockets that are open.
    var openSockets: Int { get async throws { try await seen()["open"]?.integer ?? 0 } }

    /// The bytes that clients have sent through WebSockets.
    var sentBytes: Int { get async throws { try await seen()["sent"]?.integer ?? 0 } }
}

extension Stack.Service {
    var port: Int {
        get throws {
            guard let port = URLComponents(string: url)?.port else {
                throw TestFailure("a service without a port: \(url)")
            }
            return port
        }
    }
}
