import Compression
import Cryptography
import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// The requests of `Forms/ingest.jsonl`: rows in the form of `ClientForm`, all of one app.
    /// `version` is a release, or the commit of the source that was read. They also have:
    ///
    /// | Key | Meaning |
    /// |---|---|
    /// | `base64`, `packed` | the body's bytes; the coding in which it is sent |
    /// | `latin1` | the header whose value is sent as ISO-8859-1; the others are UTF-8 |
    /// | `allows` | headers that the response to a preflight allows |
    /// | `stores` | each object: `type`, `object` in the view, headers of its `record` on Kafka |
    /// | `letters` | for each dead letter, parts of its content and headers |
    ///
    /// Nothing else is in a view or a dead letter. `${id-1}` to `${id-9}` are object ids and
    /// `${uuid-1}` to `${uuid-9}` UUIDs, new for each row.
    @Suite("Forms of ingest clients", .runningIngest, needsBroker, .timeLimit(.minutes(5)))
    struct IngestFormTests {
        @Test("Each request of ingest's clients is accepted, stored, and answered as they read it")
        func forms() async throws {
            let bench = try await IngestBench()
            for bench in [bench, try RunningIngest.current.fence] {
                try await bench.declare(
                    "Heartbeat",
                    [
                        "type": "object", "properties": ["_id": ["type": "string"]],
                        "required": ["_id"],
                    ]
                )
            }
            var forms: [ClientForm] = []
            for (index, line) in ClientForm.lines(of: "ingest").enumerated() {
                let form = try ClientForm(index + 1, line, filling: bench.formValues())
                let answer = try await bench.send(form)
                form.check(answer)
                let allowed = answer.header("access-control-allow-headers")?.lowercased() ?? ""
                let names = allowed.split(separator: ",").map { $0.filter { $0 != " " } }
                for name in (form.row["allows"]?.array ?? []).compactMap(\.string) {
                    // To browsers, `*` is any header but this one.
                    let isAllowed =
                        names.contains(name) || name != "authorization" && names.contains("*")
                    #expect(isAllowed, "\(form.testDescription): \(name) is not in \(allowed)")
                }
                forms.append(form)
            }
            #expect(!forms.isEmpty)
            try await bench.expectStored(forms)
            try await bench.expectLetters(forms)
        }
    }
}

extension IngestBench {
    /// Returns the values of a row's placeholders.
    fileprivate func formValues() -> [String: String] {
        var values = [
            "app": app.id, "app-key": app.appKey, "basic": key["Authorization"] ?? "",
        ]
        for number in 1...9 {
            values["id-\(number)"] = Self.makeID()
            values["uuid-\(number)"] = UUID().uuidString.lowercased()
        }
        return values
    }

    /// Sends a row byte for byte: a client's headers are neither sorted nor completed.
    fileprivate func send(_ form: ClientForm) async throws -> HTTPAnswer {
        let (row, call) = (form.row, "\(form.method) \(form.target)")
        var request = Array("\(call) HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n".utf8)
        for (name, value) in row["headers"]?.object ?? [:] {
            let text = value.string ?? ""
            let isLatin1 = row["latin1"]?.string == name
            request += Array("\(name): ".utf8)
            request += isLatin1 ? text.unicodeScalars.map { UInt8($0.value) } : Array(text.utf8)
            request += Array("\r\n".utf8)
        }
        var body = try row["base64"]?.string.map { try Base64.decode($0) } ?? form.body
        if let coding = row["packed"]?.string {
            body = try #require(Compression(contentCoding: coding)).compress(body)
        }
        if row["headers"]?["Transfer-Encoding"] != nil {
            let size = String(body.count, radix: 16)
            body = Array("\(size)\r\n".utf8) + body + Array("\r\n0\r\n\r\n".utf8)
        } else if !body.isEmpty {
            request += Array("Content-Length: \(body.count)\r\n".utf8)
        }
        request += Array("\r\n".utf8) + body
        guard let port = URLComponents(string: service.url)?.port else {
            throw TestFailure("no port in \(service.url)")
        }
        let bytes = try await onThread { [request] in
            let socket = try LoopbackSocket(port: UInt16(port))
            defer { socket.close() }
            try socket.send(request)
            return try socket.receiveAll()
        }
        return try parse(bytes, of: call)
    }

    /// Compares the stored objects with those of the rows.
    fileprivate func expectStored(_ forms: [ClientForm]) async throws {
        let stored = forms.flatMap { form in
            (form.row["stores"]?.array ?? []).map { (form: form, row: $0) }
        }
        // By the end the fence's app has the new types.
        for type in Set(stored.compactMap { $0.row["type"]?.string }).sorted(by: >) {
            try await fence(type)
            var found = try await stack.database.query(
                "SELECT _object FROM \(try await view(of: type))"
            ).map { try JSONValue.parse($0) }
            let records = try await stack.kafka.records(on: stack.topic("ingest.\(type)"))
                .filter { $0.header("app") == app.id }
            for (form, row) in stored where row["type"]?.string == type {
                guard let object = row["object"],
                    let place = found.firstIndex(where: { ClientForm.holds($0, object) })
                else {
                    Issue.record("\(form.testDescription): nobody gets \(row.text)")
                    continue
                }
                let id = found.remove(at: place)["_id"]?.string
                guard let wanted = row["record"] else { continue }
                var headers: JSONObject = [:]
                for header in records.first(where: { $0.key == id })?.headers ?? [] {
                    headers[header.name] = .string(header.value)
                }
                #expect(
                    ClientForm.holds(.object(headers), wanted),
                    "\(form.testDescription): \(JSONValue.object(headers).text), not \(wanted.text)"
                )
            }
            #expect(found.isEmpty, "\(type): no row stores \(found.prefix(3).map(\.text))")
        }
    }

    /// Compares the app's dead letters with those of the rows.
    fileprivate func expectLetters(_ forms: [ClientForm]) async throws {
        var letters = try await stack.kafka.records(on: stack.topic("push.dead-letters"))
            .filter { $0.header("app") == app.id }
            .map { "\($0.value) \($0.headers.map(\.value))" }
        for form in forms {
            for letter in form.row["letters"]?.array ?? [] {
                let texts = (letter.array ?? []).compactMap(\.string)
                let place = letters.firstIndex { text in texts.allSatisfy { text.contains($0) } }
                guard let place else {
                    Issue.record("\(form.testDescription): no dead letter holds \(texts)")
                    continue
                }
                letters.remove(at: place)
            }
        }
        #expect(letters.isEmpty, "no row has the dead letters \(letters.prefix(3))")
    }
}
