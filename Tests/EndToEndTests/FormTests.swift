import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// Requests as the vendors' clients send them, in `Forms/`: a file for each surface, a line of
    /// JSON for each call.
    ///
    /// | Member | Meaning |
    /// |---|---|
    /// | `client`, `version` | the sender; `recorded` on the wire or `read` in its source: `from` |
    /// | `scenario`, `call` | calls of one scenario share an app, in order; the client's function |
    /// | `key` | the key of its signature or proof, in the surface's words |
    /// | `method`, `path`, `query`, `headers`, `body` | the request; `bodyLatin1`: in ISO-8859-1 |
    /// | `status`, `holds`, `lacks` | of the response: text that headers and body have or lack |
    /// | `keep` | names for later lines: `location` (last segment), `header X`, `element X` |
    /// | `gets` | by device: the contents of each request of this call to its provider |
    ///
    /// Names in double braces are made for each scenario: `app`, `base` (the service's address),
    /// `apns:x`, `fcm:x`, `wns:x` and `mpns:x` (channels), `unique:x`, kept values, and times from
    /// now in seconds: `iso+60`, `us+60` (.NET), `java+60` (Java's 12 hours), `epoch+60`. `upper:`
    /// before a name gives upper case, `url:` percent-encodes.
    @Suite(
        "Requests of the vendors' clients and their responses",
        .runningStack,
        .serialized,
        .enabled(if: TestEnvironment.python != nil, "CARILLON_PYTHON is not set"),
        .timeLimit(.minutes(10))
    )
    struct FormTests {
        @Test(
            "Requests of Azure Notification Hubs' clients get the responses that they read",
            arguments: FormScenario.all(of: "azure")
        )
        func azure(_ scenario: FormScenario) async throws {
            try await play(scenario, on: HubForms())
        }

        private func play(_ scenario: FormScenario, on surface: some FormSurface) async throws {
            let simulator = surface.bench.simulator
            var values = FormValues(surface.bench)
            for form in scenario.forms {
                let before = try await simulator.received().next
                let answer = try await surface.send(form, filledBy: &values)
                let told =
                    "\(form["call"]?.string ?? ""): \(answer.status) \(answer.text.prefix(2000))"
                #expect(answer.status == form["status"]?.integer, "\(told)")
                let headers = answer.headers.map { "\($0.name): \($0.value)" }
                let text = (headers + [answer.text]).joined(separator: "\n")
                for wanted in values.strings(form["holds"]) {
                    #expect(text.contains(wanted), "\(wanted) is missing in \(told)")
                }
                for unwanted in values.strings(form["lacks"]) {
                    #expect(!text.contains(unwanted), "\(unwanted) is in \(told)")
                }
                for (name, what) in form["keep"]?.object ?? [:] {
                    guard let kept = FormValues.kept(what.string ?? "", of: answer) else {
                        throw TestFailure("there is no \(what) in \(told)")
                    }
                    values.kept[name] = kept
                }
                guard let gets = form["gets"]?.object else { continue }
                try await surface.waitUntilOver(answer)
                let received = try await simulator.received(after: before).all
                for (device, wanted) in gets {
                    let channel = values.filled(device)
                    let own = received.filter {
                        $0.token == channel || channel.hasSuffix($0.token) && !$0.token.isEmpty
                            || channel.hasSuffix($0.path)
                    }
                    let texts = own.map { "\($0.headers.text) \($0.body.text)" }
                    let expected = wanted.array ?? []
                    #expect(texts.count == expected.count, "\(device) of \(told): \(texts)")
                    for message in expected {
                        let parts = values.strings(message)
                        #expect(
                            texts.contains { text in parts.allSatisfy { text.contains($0) } },
                            "\(device) of \(told) did not get \(parts): \(texts)"
                        )
                    }
                }
            }
        }
    }
}

/// Calls that follow one another.
struct FormScenario: Sendable, CustomTestStringConvertible {
    let name: String
    let forms: [JSONValue]

    var testDescription: String { name }

    /// Returns the scenarios of `Forms/<surface>.jsonl`, in their order.
    static func all(of surface: String) -> [FormScenario] {
        let file = scriptFile("Forms/\(surface).jsonl")
        guard let text = try? String(contentsOfFile: file, encoding: .utf8) else {
            fatalError("\(file) cannot be read")
        }
        var scenarios: [FormScenario] = []
        for line in text.split(separator: "\n") {
            guard let form = try? JSONValue.parse(Array(line.utf8)),
                let name = form["scenario"]?.string
            else { fatalError("\(file) has a line that is no form: \(line.prefix(200))") }
            if scenarios.last?.name == name {
                scenarios[scenarios.count - 1] = FormScenario(
                    name: name,
                    forms: scenarios[scenarios.count - 1].forms + [form]
                )
            } else {
                scenarios.append(FormScenario(name: name, forms: [form]))
            }
        }
        return scenarios
    }
}

/// A surface whose forms can be sent.
protocol FormSurface {
    var bench: Bench { get }

    /// Returns the headers that authenticate the call.
    func proof(of form: JSONValue) throws -> [String: String]

    /// Waits until the requests to providers for a call have ended.
    func waitUntilOver(_ answer: HTTPAnswer) async throws
}

extension FormSurface {
    func send(_ form: JSONValue, filledBy values: inout FormValues) async throws -> HTTPAnswer {
        var headers = try proof(of: form)
        for (name, value) in form["headers"]?.object ?? [:] {
            headers[name] = values.filled(value.string ?? "")
        }
        let bytes: [UInt8]
        if let text = form["bodyLatin1"]?.string {
            bytes = values.filled(text).unicodeScalars.map { UInt8($0.value) }
        } else {
            let body = form["body"] ?? .null
            bytes = body.isNull ? [] : Array(values.filled(body.string ?? body.text).utf8)
        }
        let query = values.filled(form["query"]?.string ?? "")
        return try await http(
            form["method"]?.string ?? "GET",
            bench.registration + values.filled(form["path"]?.string ?? "/")
                + (query.isEmpty ? "" : "?\(query)"),
            headers: headers,
            bytes: bytes
        )
    }
}

/// The values of names in double braces.
struct FormValues {
    var kept: [String: String] = [:]
    private var made: [String: String] = [:]
    private let bench: Bench
    private let now = Date()

    init(_ bench: Bench) { self.bench = bench }

    mutating func filled(_ text: String) -> String {
        var result = ""
        var rest = text[...]
        while let open = rest.firstRange(of: "{{"),
            let close = rest[open.upperBound...].firstRange(of: "}}")
        {
            result +=
                rest[..<open.lowerBound] + value(String(rest[open.upperBound..<close.lowerBound]))
            rest = rest[close.upperBound...]
        }
        return result + rest
    }

    mutating func strings(_ value: JSONValue?) -> [String] {
        (value?.array ?? []).map { filled($0.string ?? "") }
    }

    private mutating func value(_ name: String) -> String {
        if let value = kept[name] ?? made[name] { return value }
        let parts = name.split(separator: ":", maxSplits: 1).map(String.init)
        if let time = time(name) { return time }
        guard parts.count == 2 else {
            switch name {
            case "app": return bench.app.id
            case "base": return bench.registration
            default: fatalError("a form has an unknown name: \(name)")
            }
        }
        switch parts[0] {
        case "upper": return value(parts[1]).uppercased()
        case "url":
            return value(parts[1]).addingPercentEncoding(withAllowedCharacters: .alphanumerics)
                ?? ""
        default: break
        }
        let unique = TestEnvironment.unique("\(parts[1])-")
        let made =
            switch parts[0] {
            case "apns": makeAPNsToken()
            case "fcm", "unique": unique
            case "wns": "\(bench.stack.origin)/wns/?token=\(unique)"
            case "mpns": "\(bench.stack.origin)/mpns/\(unique)"
            default: fatalError("a form has an unknown name: \(name)")
            }
        self.made[name] = made
        return made
    }

    private func time(_ name: String) -> String? {
        let parts = name.split(separator: "+").map(String.init)
        guard parts.count == 2, let seconds = Double(parts[1]) else { return nil }
        let date = Date(timeIntervalSince1970: now.timeIntervalSince1970.rounded() + seconds)
        let formatter = DateFormatter()
        formatter.locale = Locale(identifier: "en_US_POSIX")
        formatter.timeZone = TimeZone(secondsFromGMT: 0)
        switch parts[0] {
        case "epoch": return String(Int(date.timeIntervalSince1970))
        case "iso": formatter.dateFormat = "yyyy-MM-dd'T'HH:mm:ss"
        case "us": formatter.dateFormat = "MM/dd/yyyy HH:mm:ss"
        case "java": formatter.dateFormat = "MM/dd/yyyy hh:mm:ss"
        default: return nil
        }
        return formatter.string(from: date)
    }

    static func kept(_ what: String, of answer: HTTPAnswer) -> String? {
        let words = what.split(separator: " ").map(String.init)
        switch words.first {
        case "location":
            return answer.header("location").flatMap { URL(string: $0) }?.lastPathComponent
        case "header": return answer.header(words.last ?? "")
        case "element":
            let name = words.last ?? ""
            guard let open = answer.text.firstRange(of: "<\(name)>"),
                let close = answer.text[open.upperBound...].firstRange(of: "</\(name)>")
            else { return nil }
            return String(answer.text[open.upperBound..<close.lowerBound])
        default: return nil
        }
    }
}

/// Azure's clients: `key` is `listen`, `full`, or absent for the full key.
struct HubForms: FormSurface {
    private let hub: Hub

    init() async throws { hub = try await Hub() }

    var bench: Bench { hub.bench }

    func proof(of form: JSONValue) throws -> [String: String] {
        ["Authorization": hub.token(form["key"]?.string == "listen" ? .listen : .full)]
    }

    func waitUntilOver(_ answer: HTTPAnswer) async throws {
        _ = try await hub.details(try hub.id(answer))
    }
}
