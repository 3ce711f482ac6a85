import Foundation
import PushCore
import Testing

@testable import Console

@Suite("Words, numbers and times in the reader's language")
struct WordsTests {
    /// The sources of a module, joined. Lines that a backslash continues are one line.
    private static func sources(_ module: String) throws -> String {
        let folder = URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "../../Shared/\(module)").standardizedFileURL
        let files = try #require(FileManager.default.enumerator(atPath: folder.path()))
        var text = ""
        for case let name as String in files where name.hasSuffix(".swift") {
            text += try String(contentsOf: folder.appending(path: name), encoding: .utf8)
        }
        return text.replacing(#/ *\\\n */#, with: " ")
    }

    private static func matches(_ pattern: Regex<(Substring, Substring)>, _ text: String) -> Set<
        String
    > {
        Set(text.matches(of: pattern).map { String($0.output.1) })
    }

    /// The texts of all pages: the first argument of `t(…)` and `t.html(…)`, `other:` of a text with a
    /// count, and the headings of the menu.
    private static func pageTexts() throws -> Set<String> {
        let source = try sources("Console")
        return matches(#/[^A-Za-z_]t(?:\.html)?\(\s*"((?:[^"\\]|\\.)*)"/#, source)
            .union(matches(#/other: "((?:[^"\\]|\\.)*)"/#, source))
            .union(matches(#/\("([A-Z][a-z]+)", \[\./#, source))
    }

    private static func placeholders(_ text: String) -> Set<String> {
        Set(text.matches(of: #/\{([a-z]+)\}/#).map { String($0.output.1) })
    }

    @Test("Every text has a translation with the same placeholders", arguments: Language.allCases)
    func translations(language: Language) throws {
        let texts = try Self.pageTexts()
        #expect(texts.count > 200)
        guard language != .english else { return }
        let table = try #require(Language.tables[language])
        #expect(texts.subtracting(table.keys).sorted() == [])
        // Explanations are made elsewhere: their sentences, and whatever else they say.
        let explanations = try Self.sources("Explain")
        let sentences = Self.matches(#/"([A-Z{][^"\\\n]* [^"\\\n]*\.)"/#, explanations)
        #expect(sentences.count > 50)
        #expect(sentences.subtracting(table.keys).sorted() == [])
        let unused = table.keys.filter { !texts.contains($0) && !explanations.contains($0) }
        #expect(unused.sorted() == [], "no page says this any more")
        for (text, forms) in table {
            #expect(!forms.isEmpty && !forms.contains(""), "\(text)")
            for form in forms {
                #expect(Self.placeholders(form) == Self.placeholders(text), "\(text): \(form)")
            }
        }
    }

    @Test("A count chooses the form of its language")
    func counts() {
        func said(_ language: Language, _ count: Int) -> String {
            Words(language).count(count, one: "{count} device", other: "{count} devices")
        }
        #expect(said(.english, 1) == "1 device")
        #expect(said(.english, 0) == "0 devices")
        #expect(said(.english, 1_003_940) == "1,003,940 devices")
        #expect(said(.portuguese, 0) == "0 dispositivo")
        #expect(said(.portuguese, 1_003_940) == "1.003.940 dispositivos")
        #expect(said(.chinese, 2) == "2 台设备")
    }

    @Test("A share is 100% only if it is all, and a small one is not 0%")
    func shares() {
        let t = Words(.english)
        #expect(t.share(1, of: 1) == "100%")
        #expect(t.share(999_999, of: 1_000_000) == "99.9%")
        #expect(t.share(1, of: 1_000_000) == "< 0.1%")
        #expect(t.share(0, of: 5) == "0%")
        #expect(t.share(1, of: 3) == "33.3%")
        #expect(t.share(1, of: 0) == "")
        #expect(Words(.portuguese).share(1, of: 3) == "33,3%")
    }

    @Test("A time of another day has its date")
    func times() throws {
        let now = try #require(Instant(iso8601: "2026-11-28T14:02:09Z"))
        let t = Words(.english, now: now)
        #expect(t.moment(now) == "14:02:09 UTC")
        #expect(t.moment(now.adding(milliseconds: -86_400_000)) == "2026-11-27 14:02 UTC")
        #expect(t.span(until: now.adding(milliseconds: 12 * 86_400_000)) == "in 12 days")
        #expect(t.span(until: now.adding(milliseconds: 60_000)) == "in 1 minute")
    }

    @Test(
        "The browser's first supported language is chosen",
        arguments: [
            (nil, Language.english), ("", .english), ("de", .english), ("zh-CN,zh;q=0.9", .chinese),
            ("de, pt;q=0.5, en;q=0.4", .portuguese), ("en;q=0, pt-PT", .portuguese),
            ("pt;q=oops", .english), (String(repeating: "x,", count: 100_000), .english),
        ] as [(String?, Language)]
    )
    func languages(header: String?, language: Language) {
        #expect(Language(accepting: header) == language)
    }

    @Test("Values are inserted as text, and never read for placeholders again")
    func values() {
        let t = Words(.english)
        #expect(
            t("No push has the id {id}.", ["id": "{id}<b>"]) == "No push has the id {id}<b>."
        )
        let html = t.html("Updated {time} UTC", ["time": HTML(text: "<")])
        #expect(html.markup == "Updated &lt; UTC")
    }
}
