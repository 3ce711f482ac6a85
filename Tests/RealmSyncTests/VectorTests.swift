import JSON
import RealmSync
import Testing

/// The bytes of the official client, value by value.
@Suite(.timeLimit(.minutes(1)))
struct VectorTests {
    /// The JSON that is stored for a value of a vector; `nil` if the object is refused.
    private static func stored(_ field: String, _ value: JSONValue) -> JSONValue? {
        switch (field, value) {
        case ("t", _):
            value["s"]?.integer == -1 ? "1969-12-31T23:59:58.500Z" : "2023-11-14T22:13:20.123Z"
        case ("d", .string), ("dec", "NaN"), ("dec", "Infinity"), ("dec", "-Infinity"): nil
        default: value
        }
    }

    @Test("Each recorded field and value becomes its JSON")
    func fields() throws {
        let vectors = try recorded("vectors.json").filter { $0["kind"] == "object" }
        #expect(vectors.count == 43)
        for (number, vector) in vectors.enumerated() {
            let field = try #require(vector["field"]?.string)
            let value = try #require(vector["value"])
            let objects = try decode(hex: try #require(vector["hex"]?.string)).all
            let object = try #require(objects.first)
            #expect(objects.count == 1 && object.className == "V")
            let id = "00000000000000000000" + String(format(number + 1))
            #expect(object.document["_id"] == .string(id))
            if let stored = Self.stored(field, value) {
                #expect(object.fault == nil)
                #expect(object.document[field] == stored, "\(vector.text)")
                #expect(object.document.count == 2)
            } else {
                #expect(object.fault == .notFinite && object.pointer == "/\(field)")
            }
        }
    }

    private func format(_ number: Int) -> String {
        let hex = String(number, radix: 16)
        return String(repeating: "0", count: 4 - hex.count) + hex
    }

    @Test("Each recorded kind of key is read, and named in a refusal")
    func keys() throws {
        let keys = try recorded("vectors.json").filter { $0["kind"] == "key" }
        var found: [String: RealmObject] = [:]
        for vector in keys {
            let object = try #require(try decode(hex: vector["hex"]?.string ?? "").all.first)
            found[object.className] = object
        }
        #expect(found["KS"]?.key == .string("kü"))
        #expect(found["KS"]?.document == ["_id": "realm/KS/string/kü", "_key": "kü"])
        #expect(found["KI"]?.document == ["_id": "realm/KI/int/-5", "_key": -5])
        #expect(found["KU"]?.document == ["_id": "3b241101-e2bb-4255-8caf-4136c566a962"])
        #expect(found["KN"]?.fault == .nullKey && found["KN"]?.document == [:])
    }

    @Test("The recorded schema declares each class with its kind")
    func schema() throws {
        let vector = try #require(try recorded("vectors.json").first { $0["kind"] == "schema" })
        let objects = try decode(hex: try #require(vector["hex"]?.string))
        #expect(objects.count == 0)
        #expect(objects.tables.map(\.name) == ["KI", "KN", "KS", "KU", "P", "V"])
        #expect(objects.tables.filter { $0.kind == .embedded }.map(\.name) == ["P"])
        #expect(objects.tables.count { $0.kind == .asymmetric } == 5)
    }

    @Test("The recorded dialogue gets the recorded answers, except for the random numbers")
    func dialogue() throws {
        var connection = try makeConnection()
        var answers: [[UInt8]] = []
        var uploads: [RealmUpload] = []
        var ident: [Substring] = []
        for turn in try recorded("dialogue.json") {
            var message = bytes(hex: turn["hex"]?.string ?? "")
            if turn["dir"] == "server" {
                if answers.isEmpty, let upload = uploads.popLast() {
                    let stored = try upload.changesets().map { RealmStored($0, refused: []) }
                    answers = connection.stored([(upload.ticket, stored)]).messages
                }
                let answer = text(try #require(answers.first)).split(separator: " ")
                let expected = text(message).split(separator: " ")
                answers.removeFirst()
                if answer.first == "ident" { ident = answer }
                let random =
                    answer.first == "ident" ? [2, 3] : answer.first == "download" ? [5] : []
                #expect(answer.count == expected.count)
                for place in answer.indices where !random.contains(place) {
                    #expect(answer[place] == expected[place])
                }
                continue
            }
            if message.starts(with: Array("ident ".utf8)) {
                // The client repeats the identity that this server has chosen.
                message = Array("ident 1 \(ident[2]) \(ident[3].dropLast()) 0 0 0 0 0 2\n{}".utf8)
            }
            let output = connection.receive(message)
            #expect(output.end == nil && answers.isEmpty)
            answers = output.messages
            uploads += output.upload.map { [$0] } ?? []
        }
        #expect(answers.isEmpty && uploads.isEmpty)
    }

    @Test("The recorded object is decoded from the recorded upload")
    func recordedObject() throws {
        var connection = try makeConnection()
        connection.begin()
        let turn = try #require(
            try recorded("dialogue.json").map { bytes(hex: $0["hex"]?.string ?? "") }
                .first { $0.starts(with: Array("upload 1 0 385".utf8)) }
        )
        let upload = try #require(connection.receive(turn).upload)
        let changesets = try upload.changesets()
        #expect(changesets.map(\.version) == [5, 7])
        let schema = try changesets[0].decoded()
        #expect(schema.tables.map(\.name) == ["WeatherSensor"])
        let object = try #require(try changesets[1].decoded().all.first)
        #expect(
            object.document.text
                == #"{"_id":"507f1f77bcf86cd799439011","deviceId":"WX1278UIT","#
                + #""temperatureInFahrenheit":66.7,"barometricPressureInHg":29.65,"windSpeedInMph":-2}"#
        )
    }
}
