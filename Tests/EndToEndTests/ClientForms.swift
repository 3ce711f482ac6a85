import Foundation
import JSON
import Support
import Testing

/// One row of a table in `Forms`: a request as an official client sends it, and its required
/// effects.
///
/// A line of the file is JSON with names such as `${app}` in it, which a bench fills in before it
/// is parsed: ids, keys, tokens and signatures are those of the test's own app.
///
/// | Key | Meaning |
/// |---|---|
/// | `client`, `from`, `call` | the client, recorded or read, and the app's call |
/// | `method`, `path`, `query`, `headers`, `body` or `text` | the request; `text` is not JSON |
/// | `status` | of the response; by default 2xx |
/// | `reads` | paths that the client reads in the response, such as `0.success.objectId` |
/// | `gives` | members that the response must have |
/// | `tells` | headers that the response must have; `*` stands for any value |
/// | `rings` | the devices of the fixture that get the push, and no others | words:ok
/// | `gets` | by device: members of the body, and headers, that its provider receives |
struct ClientForm: Sendable, CustomTestStringConvertible {
    let line: Int
    let row: JSONValue

    var client: String { row["client"]?.string ?? "?" }
    var testDescription: String { "\(line) \(client): \(row["call"]?.string ?? "?")" }

    /// Returns the rows of a table as they are in the file, with their placeholders.
    static func lines(of surface: String) -> [String] {
        let file = scriptFile("Forms/\(surface).jsonl")
        let text = try? String(contentsOfFile: file, encoding: .utf8)
        return (text ?? "").split(separator: "\n").map(String.init)
    }

    init(_ line: Int, _ text: String, filling values: [String: String]) throws {
        self.line = line
        var text = text
        for (name, value) in values { text = text.replacing("${\(name)}", with: value) }
        row = try JSONValue.parse(text)
    }

    var method: String { row["method"]?.string ?? "GET" }

    var target: String {
        let query = row["query"]?.string ?? ""
        return (row["path"]?.string ?? "/") + (query.isEmpty ? "" : "?\(query)")
    }

    var headers: [String: String] {
        Dictionary(
            (row["headers"]?.object ?? [:]).map { ($0.key, $0.value.string ?? "") },
            uniquingKeysWith: { $1 }
        )
    }

    var body: [UInt8] {
        if let text = row["text"]?.string { return Array(text.utf8) }
        guard let body = row["body"], !body.isNull else { return [] }
        return body.bytes
    }

    /// Sends it, with other headers if the bench signs.
    func send(to base: String, headers: [String: String]? = nil) async throws -> HTTPAnswer {
        try await http(method, base + target, headers: headers ?? self.headers, bytes: body)
    }

    /// Compares the response with the parts that the client reads.
    func check(_ answer: HTTPAnswer) {
        let said = "\(testDescription): \(answer.status) \(answer.text.prefix(600))"
        if let status = row["status"]?.integer {
            #expect(answer.status == status, "\(said)")
        } else {
            #expect((200..<300).contains(answer.status), "\(said)")
        }
        for path in row["reads"]?.array ?? [] {
            let found = Self.value(at: path.string ?? "", in: answer.json)
            #expect(found != nil, "\(path.text) is not in \(said)")
        }
        if let gives = row["gives"] {
            #expect(answer.json.map { Self.holds($0, gives) } == true, "\(gives.text) \(said)")
        }
        for (name, value) in row["tells"]?.object ?? [:] {
            let told = answer.header(name)
            #expect(
                value.string == "*" ? told != nil : told == value.string,
                "\(name): \(told ?? "none") of \(said)"
            )
        }
    }

    /// Returns whether a value has the members of another, and all elements of its lists in place.
    static func holds(_ value: JSONValue, _ wanted: JSONValue) -> Bool {
        if let members = wanted.object {
            return members.allSatisfy { key, wanted in
                // A member that must be absent is `null` in the table.
                wanted.isNull
                    ? value[key]?.isNull ?? true : value[key].map { holds($0, wanted) } ?? false
            }
        }
        if let elements = wanted.array {
            guard let given = value.array, given.count == elements.count else { return false }
            return zip(given, elements).allSatisfy { holds($0, $1) }
        }
        if let text = wanted.string, text == "*" { return true }
        return value == wanted
    }

    static func value(at path: String, in value: JSONValue?) -> JSONValue? {
        path.split(separator: ".").reduce(value) { value, name in
            Int(name).flatMap { value?[$0] } ?? value?[String(name)]
        }
    }
}

/// An app with the objects of a surface's rows, and the devices that a push may reach.
protocol FormBench: Sendable {
    var surface: String { get }
    var base: String { get }
    var simulator: SimulatorControl { get }
    /// Makes the objects of the next row, which are removed after it.
    func seed() async throws -> FormSeed
    /// Returns the headers that replace the row's.
    func headers(of form: ClientForm, _ seed: FormSeed) throws -> [String: String]
    func clear(_ seed: FormSeed) async throws
}

struct FormSeed: Sendable {
    var values: [String: String]
    /// The devices by the names that rows use.
    var devices: [String: String]
}

extension FormBench {
    /// Sends all rows of the table, one after the other.
    func play() async throws {
        let lines = ClientForm.lines(of: surface)
        #expect(!lines.isEmpty, "no rows of \(surface)")
        for (index, line) in lines.enumerated() {
            let seed = try await seed()
            let form = try ClientForm(index + 1, line, filling: seed.values)
            let answer = try await form.send(to: base, headers: headers(of: form, seed))
            form.check(answer)
            if (200..<300).contains(answer.status) { try await listen(form, seed) }
            try await clear(seed)
        }
    }

    /// Compares the notifications of the devices with the row.
    private func listen(_ form: ClientForm, _ seed: FormSeed) async throws {
        guard let rings = form.row["rings"]?.array?.compactMap(\.string) else { return }
        for (name, token) in seed.devices.sorted(by: { $0.key < $1.key }) {
            guard rings.contains(name) else { continue }
            let received = try await simulator.waitFor(1, for: token)
            #expect(received.count == 1, "\(form.testDescription): \(name)")
            guard let wanted = form.row["gets"]?[name], let got = received.first else { continue }
            if let body = wanted["body"] {
                #expect(
                    ClientForm.holds(got.body, body),
                    "\(form.testDescription): \(name) got \(got.body.text), not \(body.text)"
                )
            }
            for (header, value) in wanted["headers"]?.object ?? [:] {
                #expect(
                    got.header(header) == value.string,
                    "\(form.testDescription): \(name) got \(header) \(got.header(header) ?? "none")"
                )
            }
        }
        // All devices of a push are sent to at about the same time, so a notification that is still
        // missing is late only if it must not come.
        for (name, token) in seed.devices where !rings.contains(name) {
            let received = try await simulator.received(for: token)
            #expect(received.isEmpty, "\(form.testDescription): \(name) was not meant")
        }
    }
}
