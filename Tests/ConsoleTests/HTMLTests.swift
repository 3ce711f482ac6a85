import Testing

@testable import Console

@Suite("Markup that escapes by construction")
struct HTMLTests {
    @Test(
        "Text never becomes markup",
        arguments: [
            ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
            ("a & b", "a &amp; b"), ("\"'", "&quot;&#39;"), ("\u{0}\u{1b}", "\u{FFFD}\u{FFFD}"),
            ("a\nb\tc", "a\nb\tc"), ("日本語 😀", "日本語 😀"), ("&lt;", "&amp;lt;"),
        ]
    )
    func escapes(text: String, escaped: String) {
        let html: HTML = "<p title=\"\(text)\">\(text)</p>"
        #expect(html.markup == "<p title=\"\(escaped)\">\(escaped)</p>")
        #expect(HTML(text: text).markup == escaped)
    }

    @Test("Markup is not escaped again")
    func nests() {
        let inner: HTML = "<b>\("<")</b>"
        let outer: HTML = "<p>\(inner)\([inner, inner])\(HTML?.none)\(7)</p>"
        #expect(outer.markup == "<p><b>&lt;</b><b>&lt;</b><b>&lt;</b>7</p>")
    }

    @Test("An attribute without a value is written only if it is set")
    func attributes() {
        let html: HTML = "<input\("checked", if: true)\("required", if: false)>"
        #expect(html.markup == "<input checked>")
    }

    @Test("An address escapes its segments and values, and stays in the console")
    func addresses() {
        let address = Address("my app", "a/b", query: ["q": "x&y=\"<", "none": nil])
        #expect(address.text == "/console/my%20app/a%2Fb?q=x%26y%3D%22%3C")
        let html: HTML = "<a href=\"\(address)\">"
        #expect(html.markup == "<a href=\"/console/my%20app/a%2Fb?q=x%26y%3D%22%3C\">")
    }

    @Test(
        "Only an address of the console is taken as the next page",
        arguments: [
            ("/console", true), ("/console/bells/pushes?status=done", true),
            ("/consoles", false), ("//evil.example/console", false),
            ("https://evil.example/console", false), ("/console//evil.example", false),
            ("/console/../v1", false), ("/console/\\evil", false), ("/console/ x", false),
            ("javascript:alert(1)", false), ("", false), ("/console/\"><script>", false),
        ]
    )
    func next(path: String, isTaken: Bool) {
        #expect((Address(within: path) != nil) == isTaken)
    }

    @Test("A value of a CSV file is never run as a formula, and quotes are doubled")
    func csv() {
        #expect(CSV.line(["a", "b\"c", "=1+1"]) == "\"a\",\"b\"\"c\",\"'=1+1\"\r\n")
    }
}
