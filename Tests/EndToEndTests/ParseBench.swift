import Foundation
import JSON
import Support
import Testing

/// Calls to an app of its own by Parse's names.
struct ParseBench {
    let bench: Bench

    init() async throws { bench = try await Bench() }

    var restHeaders: [String: String] {
        ["X-Parse-Application-Id": bench.app.id, "X-Parse-REST-API-Key": bench.app.appKey]
    }
    var masterHeaders: [String: String] {
        ["X-Parse-Application-Id": bench.app.id, "X-Parse-Master-Key": bench.app.masterKey]
    }

    /// Calls as curl does with the REST key.
    func rest(
        _ method: String,
        _ path: String,
        _ body: JSONValue? = nil
    ) async throws -> HTTPAnswer {
        try await http(
            method,
            "\(bench.registration)/parse\(path)",
            headers: restHeaders,
            body: body
        )
    }

    func master(
        _ method: String,
        _ path: String,
        _ body: JSONValue? = nil,
        query: [String: String] = [:]
    ) async throws -> HTTPAnswer {
        var characters = CharacterSet.alphanumerics
        characters.insert("-")
        let text = query.map { name, value in
            "\(name)=\(value.addingPercentEncoding(withAllowedCharacters: characters) ?? "")"
        }.joined(separator: "&")
        return try await http(
            method,
            "\(bench.registration)/parse\(path)\(text.isEmpty ? "" : "?\(text)")",
            headers: masterHeaders,
            body: body
        )
    }

    /// Calls as Parse's JavaScript package does.
    func package(
        _ path: String,
        _ parameters: JSONObject,
        master: Bool = false,
        installation: String = UUID().uuidString
    ) async throws -> HTTPAnswer {
        var body = parameters
        body["_ApplicationId"] = .string(bench.app.id)
        body["_ClientVersion"] = "js8.6.0"
        body["_InstallationId"] = .string(installation)
        if master {
            body["_MasterKey"] = .string(bench.app.masterKey)
        } else {
            body["_JavaScriptKey"] = .string(bench.app.appKey)
        }
        return try await http(
            "POST",
            "\(bench.registration)/parse\(path)",
            headers: ["Content-Type": "text/plain"],
            bytes: JSONValue.object(body).bytes
        )
    }

    func package(
        _ path: String,
        _ parameters: JSONValue,
        master: Bool
    ) async throws -> HTTPAnswer {
        try await package(path, parameters.object ?? [:], master: master)
    }

    /// Returns a push's status as Parse's package requests it, once it has reached this one.
    func status(of id: String, _ wanted: String) async throws -> JSONValue {
        try await eventually("the push \(id) is \(wanted)") {
            let answer = try await package(
                "/classes/_PushStatus",
                ["_method": "GET", "where": ["objectId": .string(id)]],
                master: true
            )
            guard let status = answer.json?["results"]?.array?.first else {
                throw TestFailure("no status: \(answer.text)")
            }
            guard status["status"]?.string == wanted else { return nil }
            return status
        }
    }

    /// Returns the ids of one push that is sent several times under one request id.
    func repeatedPush(_ audience: JSONObject, times: Int) async throws -> Set<String> {
        var body = audience
        body["data"] = ["alert": "again"]
        let headers = masterHeaders.merging(["X-Parse-Request-Id": UUID().uuidString]) { a, _ in a }
        var ids: Set<String> = []
        for _ in 0..<times {
            let answer = try await http(
                "POST",
                "\(bench.registration)/parse/push",
                headers: headers,
                body: .object(body)
            )
            ids.insert(answer.header("x-parse-push-status-id") ?? "none: \(answer.text)")
        }
        for id in ids { _ = try await status(of: id, "succeeded") }
        return ids
    }
}

extension HTTPAnswer {
    var code: Int? { json?["code"]?.integer }
}
