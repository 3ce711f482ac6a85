import JSON
import Testing

@testable import CLI

@Suite("Listings of commands", .timeLimit(.minutes(1)))
struct ListingTests {
    private struct Phone {
        var name: String
        var weight: Int
        var place: String?
    }

    private static let two = [
        Phone(name: "Mary", weight: 1200, place: "Oslo"), Phone(name: "Gabriel", weight: 80),
    ]

    private func listing(
        _ wakeUps: [Phone],
        titles: Bool = false,
        empty: String? = nil,
        form: Listing<Phone>.Form = .array
    ) -> Listing<Phone> {
        Listing(
            wakeUps,
            columns: [
                .text("name", title: titles ? "BELL" : "", \.name),
                .value("weight", title: titles ? "WEIGHT" : "", { JSONValue($0.weight) }) {
                    "\($0.weight) kg"
                },
                .members { wakeUp in
                    var object: JSONObject = ["isHeavy": .bool(wakeUp.weight > 1000)]
                    object["place"] = wakeUp.place.map(JSONValue.string)
                    return object
                },
                .cell(titles ? "PLACE" : "") { $0.place ?? "-" },
            ],
            empty: empty,
            form: form
        )
    }

    @Test("Without rows people get a sentence or the titles alone, and programs an empty array")
    func none() {
        let sentence = listing([], titles: true, empty: "no bell yet")
        #expect(sentence.text(isJSON: false) == "no bell yet")
        #expect(sentence.text(isJSON: true) == "[]")
        #expect(listing([], titles: true).text(isJSON: false) == "BELL  WEIGHT  PLACE")
        let lines = listing([], empty: "no bell yet", form: .lines)
        #expect(lines.text(isJSON: false) == "no bell yet")
        #expect(lines.text(isJSON: true) == "")
    }

    @Test(
        "A row is a line of cells and a JSON object, and some columns are only in one of them"
    )
    func one() {
        let one = listing([Self.two[1]])
        #expect(one.text(isJSON: false) == "Gabriel  80 kg  -")
        #expect(one.text(isJSON: true) == #"[{"name":"Gabriel","weight":80,"isHeavy":false}]"#)
        #expect(one.json == .array([.object(one.object(Self.two[1]))]))
    }

    @Test("Many rows are aligned below their titles, and are one array or one line each in JSON")
    func many() {
        let array = listing(Self.two, titles: true)
        #expect(
            array.text(isJSON: false) == """
                BELL     WEIGHT   PLACE
                Mary     1200 kg  Oslo
                Gabriel  80 kg    -
                """
        )
        let objects = [
            #"{"name":"Mary","weight":1200,"isHeavy":true,"place":"Oslo"}"#,
            #"{"name":"Gabriel","weight":80,"isHeavy":false}"#,
        ]
        #expect(array.text(isJSON: true) == "[\(objects.joined(separator: ","))]")
        let lines = listing(Self.two, form: .lines)
        #expect(lines.text(isJSON: true) == objects.joined(separator: "\n"))
        #expect(lines.text(isJSON: false) == "Mary     1200 kg  Oslo\nGabriel  80 kg    -")
    }

    @Test("Summary rows come last, and only people see them")
    func more() {
        let table = listing([Self.two[0]], titles: true).table(more: [["others", "-", "all over"]])
        #expect(
            table == """
                BELL    WEIGHT   PLACE
                Mary    1200 kg  Oslo
                others  -        all over
                """
        )
    }

    @Test("A member of a later column replaces the same member of an earlier one")
    func later() {
        let wakeUps = Listing(
            [1],
            columns: [.members { ["n": JSONValue($0), "m": 2] }, .text("n") { "no. \($0)" }]
        )
        #expect(wakeUps.text(isJSON: true) == #"[{"n":"no. 1","m":2}]"#)
    }

    @Test("A cell with control characters is one line in a table, and JSON keeps its value")
    func hostile() throws {
        let name = "a\u{1B}[2J\nb\t\u{202E}"
        let wakeUps = listing([Phone(name: name, weight: 1, place: name)], empty: "none")
        #expect(
            wakeUps.text(isJSON: false)
                == #"a\u001b[2J\u000ab\u0009\u202e  1 kg  a\u001b[2J\u000ab\u0009\u202e"#
        )
        let json = String(
            decoding: PrintableText.bytes(of: wakeUps.text(isJSON: true)),
            as: UTF8.self
        )
        #expect(!json.unicodeScalars.contains { $0.value < 0x20 || $0.value == 0x202E })
        #expect(try JSONValue.parse(json)[0]?["place"]?.string == name)
    }
}
