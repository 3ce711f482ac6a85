import JSON
import RemoteConfig
import Testing
import XML

@Suite(.timeLimit(.minutes(1)))
struct DefaultsFormatTests {
    private let defaults = [
        (key: "welcome", value: "a <b> & 'c' \"d\"\r\n\tä😀"), (key: "empty", value: ""),
        (key: "a<b", value: "]]>"), (key: "control", value: "\u{1}\u{FFFF}"),
    ]

    @Test func json() throws {
        let file = DefaultsFormat.json.render(defaults)
        let read = try JSONValue.parse(file)
        for (key, value) in defaults { #expect(read[key] == .string(value)) }
        #expect(read.object?.keys == defaults.map(\.key))
    }

    @Test func xml() throws {
        let root = try XMLElement.parse(DefaultsFormat.xml.render(defaults))
        #expect(root.name == "defaultsMap")
        let read = root.children.map { entry in
            #expect(entry.name == "entry")
            return [entry.child("key")?.text, entry.child("value")?.text]
        }
        #expect(read.prefix(3).elementsEqual(defaults.prefix(3).map { [$0.key, $0.value] }))
        // XML cannot represent these.
        #expect(read.last == ["control", "\u{FFFD}\u{FFFD}"])
    }

    @Test func plist() throws {
        let text = String(decoding: DefaultsFormat.plist.render(defaults), as: UTF8.self)
        #expect(text.contains("<!DOCTYPE plist PUBLIC"))
        // Our XML parser refuses a document type.
        let lines = text.split(separator: "\n").filter { !$0.hasPrefix("<!DOCTYPE") }
        let root = try XMLElement.parse(Array(lines.joined(separator: "\n").utf8))
        #expect(root.name == "plist")
        let dict = try #require(root.child("dict"))
        #expect(dict.children.map(\.name) == defaults.flatMap { _ in ["key", "string"] })
        #expect(dict.children.first { $0.name == "string" }?.text == defaults[0].value)
    }

    @Test func ofNothing() throws {
        #expect(String(decoding: DefaultsFormat.json.render([]), as: UTF8.self) == "{}")
        #expect(try XMLElement.parse(DefaultsFormat.xml.render([])).children.isEmpty)
    }
}
