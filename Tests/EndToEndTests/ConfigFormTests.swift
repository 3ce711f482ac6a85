import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// The requests of `Forms/remote-config.jsonl`, a line of JSON each: recorded on the wire, or
    /// read in a client's source or documentation, as `from` says.
    ///
    /// | Member | Meaning |
    /// |---|---|
    /// | `scenario` | requests of one scenario share an app, in their order |
    /// | `key` | `token` publishes, `client` is the app key in a header; `unknown`; or empty |
    /// | `method`, `path`, `query`, `headers`, `body` | the request; `bodyBase64` is its bytes |
    /// | `stream` | the response does not end |
    /// | `status`, `holds`, `lacks` | the status, and what headers and body contain or lack |
    /// | `keep` | names for later lines: `header X`, `json X` |
    ///
    /// Names in double braces are the app's (`app`, `key`) and the kept values; `url:`
    /// percent-encodes.
    @Suite(
        "Requests of Remote Config clients and their responses",
        .runningConfig,
        .serialized,
        .timeLimit(.minutes(5))
    )
    struct ConfigFormTests {
        @Test(arguments: ConfigForms.scenarios)
        func forms(_ scenario: ConfigForms) async throws {
            let bench = try await RunningConfig.makeBench()
            var values = ["app": bench.app.id, "key": bench.app.appKey]
            for form in scenario.forms {
                let answer = try await scenario.send(form, values, bench)
                let told = "\(form["call"]?.string ?? ""): \(answer.status) \(answer.text)"
                #expect(answer.status == form["status"]?.integer, "\(told.prefix(2000))")
                let headers = answer.headers.map { "\($0.name): \($0.value)" }
                let text = (headers + [answer.text]).joined(separator: "\n")
                for wanted in (form["holds"]?.array ?? []).compactMap(\.string) {
                    let wanted = scenario.filled(wanted, values)
                    #expect(text.contains(wanted), "\(wanted) is missing: \(told.prefix(2000))")
                }
                for unwanted in (form["lacks"]?.array ?? []).compactMap(\.string) {
                    #expect(!text.contains(unwanted), "\(unwanted) is there: \(told.prefix(2000))")
                }
                for (name, what) in form["keep"]?.object ?? [:] {
                    let words = (what.string ?? "").split(separator: " ").map(String.init)
                    let value =
                        words.first == "header"
                        ? answer.header(words[1]) : answer.json?[words[1]]?.string
                    let kept: String = try #require(value, "\(told.prefix(2000))")
                    values[name] = kept
                }
            }
        }
    }
}

/// The requests of one scenario.
struct ConfigForms: Sendable, CustomTestStringConvertible {
    let testDescription: String
    private(set) var forms: [JSONValue] = []

    static let scenarios: [ConfigForms] = {
        let file = scriptFile("Forms/remote-config.jsonl")
        guard let text = try? String(contentsOfFile: file, encoding: .utf8) else {
            fatalError("\(file) cannot be read")
        }
        var scenarios: [ConfigForms] = []
        for line in text.split(separator: "\n") {
            guard let form = try? JSONValue.parse(String(line)),
                let name = form["scenario"]?.string
            else { fatalError("\(file) has an invalid line: \(line.prefix(200))") }
            if scenarios.last?.testDescription != name {
                scenarios.append(ConfigForms(testDescription: name))
            }
            scenarios[scenarios.count - 1].forms.append(form)
        }
        return scenarios
    }()

    func filled(_ text: String, _ values: [String: String]) -> String {
        var result = text
        for (name, value) in values {
            let encoded = value.addingPercentEncoding(withAllowedCharacters: .alphanumerics)
            result = result.replacingOccurrences(of: "{{\(name)}}", with: value)
                .replacingOccurrences(of: "{{url:\(name)}}", with: encoded ?? value)
        }
        return result
    }

    /// Sends one, and reads its response; a stream is read until it contains the expected text.
    func send(
        _ form: JSONValue,
        _ values: [String: String],
        _ bench: ConfigBench
    ) async throws -> HTTPAnswer {
        var headers = ["Connection: close", "Host: 127.0.0.1"]
        switch form["key"]?.string {
        case "token": headers.append("Authorization: Bearer \(bench.token)")
        case "client": headers.append("X-Goog-Api-Key: \(bench.app.appKey)")
        case "unknown": headers.append("Authorization: Bearer ya29.nobody-has-this-token")
        default: break
        }
        for (name, value) in form["headers"]?.object ?? [:] {
            headers.append("\(name): \(filled(value.string ?? "", values))")
        }
        var body = Array(filled(form["body"]?.string ?? "", values).utf8)
        if let coded = form["bodyBase64"]?.string.flatMap({ Data(base64Encoded: $0) }) {
            body = Array(coded)
        }
        let method = form["method"]?.string ?? "GET"
        if form["headers"]?["Transfer-Encoding"] != nil {
            // Java's clients declare chunks in a GET, and send no chunk.
            body = Array("0\r\n\r\n".utf8)
        } else if !body.isEmpty || ["POST", "PUT"].contains(method) {
            headers.append("Content-Length: \(body.count)")
        }
        let query = filled(form["query"]?.string ?? "", values)
        let target =
            filled(form["path"]?.string ?? "/", values) + (query.isEmpty ? "" : "?\(query)")
        let head = (["\(method) \(target) HTTP/1.1"] + headers).joined(separator: "\r\n")
        let request = Array((head + "\r\n\r\n").utf8) + body
        guard let port = URLComponents(string: bench.watcher.url)?.port else {
            throw TestFailure("no port in \(bench.watcher.url)")
        }
        let wanted = (form["holds"]?.array ?? []).compactMap(\.string)
            .map { filled($0, values).lowercased() }
        let isStream = form["stream"]?.bool == true
        let bytes = try await onThread {
            let socket = try LoopbackSocket(port: UInt16(port))
            defer { socket.close() }
            try socket.send(request)
            guard isStream else { return try socket.receiveAll() }
            var bytes: [UInt8] = []
            while true {
                bytes += try socket.receive()
                let text = String(decoding: bytes, as: UTF8.self).lowercased()
                if !text.hasPrefix("http/1.1 200") || wanted.allSatisfy({ text.contains($0) }) {
                    return bytes
                }
            }
        }
        if isStream { return HTTPAnswer.begun(bytes) }
        return try parse(bytes, of: "\(method) \(target)")
    }
}

extension HTTPAnswer {
    /// Returns the start of a response without an end, its chunks as they came.
    static func begun(_ bytes: [UInt8]) -> HTTPAnswer {
        let text = String(decoding: bytes, as: UTF8.self)
        let head = text.components(separatedBy: "\r\n\r\n").first ?? ""
        var lines = head.components(separatedBy: "\r\n")
        let status = lines.removeFirst().split(separator: " ").dropFirst().first
        let headers = lines.map { line -> (name: String, value: String) in
            let colon = line.firstIndex(of: ":") ?? line.endIndex
            let value = line[colon...].dropFirst().drop { $0 == " " }
            return (line[..<colon].lowercased(), String(value))
        }
        return HTTPAnswer(
            status: status.flatMap { Int($0) } ?? 0,
            headers: headers,
            body: Array(text.dropFirst(head.count).utf8)
        )
    }
}
