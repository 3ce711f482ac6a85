import Testing
import XML

@Suite("XML", .timeLimit(.minutes(1)))
struct XMLTests {
    private func parse(_ text: String, depth: Int = 64, bytes: Int = 1 << 20) throws -> XMLElement {
        try XMLElement.parse(Array(text.utf8), maximumDepth: depth, maximumBytes: bytes)
    }

    @Test("A toast is read with names, attributes, children, and text with XML's own entities")
    func toast() throws {
        let root = try parse(
            """
            <?xml version="1.0" encoding="utf-8"?>
            <toast launch="a&quot;b"><visual><binding template="ToastGeneric">\
            <text>Mets &amp; <![CDATA[<Giants>]]> &#8211; é</text><text/></binding></visual></toast>
            """
        )
        #expect(root.name == "toast")
        #expect(root.attribute("launch") == "a\"b")
        let binding = try #require(root.child("visual")?.child("binding"))
        #expect(binding.children.map(\.text) == ["Mets & <Giants> – é", ""])
    }

    @Test("Prefixes are resolved to their namespaces")
    func namespaces() throws {
        let root = try parse(
            "<wp:Notification xmlns:wp=\"WPNotification\"><wp:Toast/></wp:Notification>"
        )
        #expect(root.name == "Notification")
        #expect(root.namespace == "WPNotification")
        #expect(root.child("Toast")?.namespace == "WPNotification")
        #expect(throws: XMLError.self) { try parse("<wp:Notification/>") }
    }

    @Test("A document type is refused, so no entity is expanded and nothing is fetched")
    func documentTypes() {
        for text in [
            "<!DOCTYPE a><a/>", "<!DOCTYPE a SYSTEM \"http://127.0.0.1/x.dtd\"><a/>",
            "<!DOCTYPE a [<!ENTITY b \"cc\">]><a>&b;</a>",
            "<!DOCTYPE a [<!ENTITY b SYSTEM \"file:///etc/passwd\">]><a>&b;</a>",
        ] {
            let error = #expect(throws: XMLError.self) { try parse(text) }
            #expect(error?.problem == "a document type declaration is not taken")
        }
        #expect(throws: XMLError.self) { try parse("<a>&b;</a>") }
    }

    @Test(
        "Malformed XML is refused",
        arguments: [
            "", " ", "a", "<a>", "<a></b>", "<a/><b/>", "<a b></a>", "<a>&</a>", "<a>\u{1}</a>",
        ]
    )
    func malformed(text: String) {
        #expect(throws: XMLError.self) { try parse(text) }
    }

    @Test("Invalid UTF-8 is refused")
    func invalidUTF8() {
        #expect(throws: XMLError.self) {
            try XMLElement.parse([0x3C, 0x61, 0x3E, 0xFF, 0x3C, 0x2F, 0x61, 0x3E])
        }
    }

    @Test("Depth and size are bounded")
    func bounds() throws {
        _ = try parse("<a><a><a/></a></a>", depth: 3)
        #expect(throws: XMLError(line: 1, problem: "nested too deeply")) {
            try parse("<a><a><a/></a></a>", depth: 2)
        }
        #expect(throws: XMLError(line: 1, problem: "longer than 3 bytes")) {
            try parse("<a/>", bytes: 3)
        }
    }
}
