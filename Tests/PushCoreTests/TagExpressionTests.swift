import JSON
import PushCore
import Testing

@Suite("Tag expressions")
struct TagExpressionTests {
    @Test(
        "! binds before &&, that before ||, and parentheses group",
        arguments: [
            ("a", TagExpression.tag("a")),
            (" follows_mets ", .tag("follows_mets")),
            ("a||b&&c", .any([.tag("a"), .all([.tag("b"), .tag("c")])])),
            ("(a || b) && c", .all([.any([.tag("a"), .tag("b")]), .tag("c")])),
            ("!a && b", .all([.not(.tag("a")), .tag("b")])),
            ("!(a && b)", .not(.all([.tag("a"), .tag("b")]))),
            ("((a))", .tag("a")),
            ("!!a", .not(.not(.tag("a")))),
            ("user:me@x.org-1#2", .tag("user:me@x.org-1#2")),
            ("undefined", .tag("undefined")),
            ("$InstallationId:{abc} && t1", .all([.installation("abc"), .tag("t1")])),
            ("$InstallationId:abc", .installation("abc")),
            ("$UserId:{user 42}", .user("user 42")),
            ("!$userid:u", .not(.user("u"))),
        ]
    )
    func reads(_ text: String, _ expected: TagExpression) throws {
        #expect(try TagExpression.parse(text) == expected)
    }

    @Test(
        "An invalid expression is refused with the position",
        arguments: [
            ("", 1), ("   ", 4), ("a b", 3), ("a &", 3), ("a && ", 6), ("a & b", 3), ("(a", 1),
            ("a)", 2), ("a || && b", 6), ("!", 2), ("()", 2), ("a,b", 2), ("$Other:{x}", 1),
            ("a && $UserId:{x", 6), ("$UserId:{}", 1), ("$InstallationId", 1),
        ]
    )
    func refuses(_ text: String, _ position: Int) {
        let error = #expect(throws: TagExpressionError.self) { try TagExpression.parse(text) }
        #expect(error?.position == position, "\(text): \(error?.description ?? "")")
    }

    @Test("An expression has up to 20 tags if joined by || alone, else 6")
    func bounds() throws {
        func tags(_ count: Int) -> [String] { (1...count).map { "t\($0)" } }
        _ = try TagExpression.parse(tags(20).joined(separator: "||"))
        _ = try TagExpression.parse(tags(6).joined(separator: " && "))
        for text in [
            tags(21).joined(separator: "||"), tags(7).joined(separator: " && "),
            tags(6).joined(separator: " || ") + " || !t7",
            String(repeating: "(", count: 40) + "a" + String(repeating: ")", count: 40),
            String(repeating: "a", count: 121),
        ] {
            #expect(throws: TagExpressionError.self) { try TagExpression.parse(text) }
        }
    }

    @Test(
        "A device's tags are its channels, its id and its user's, and with a template its tags too"
    )
    func condition() throws {
        let expression = try TagExpression.parse("a && !$UserId:{u}")
        #expect(
            expression.condition()
                == .all([
                    .field(WherePath(segments: ["channels"]), .equal(.string("a"))),
                    .none([.field(.identity, .equal(.string("u")))]),
                ])
        )
        let extra = WherePath(segments: ["x", "tags"])
        #expect(
            try TagExpression.parse("a").condition(also: extra)
                == .any([
                    .field(WherePath(segments: ["channels"]), .equal(.string("a"))),
                    .field(extra, .equal(.string("a"))),
                ])
        )
    }
}

@Suite("Pushes for tags, platforms and templates")
struct HubRequestTests {
    private func condition(_ object: JSONObject) throws -> Where? {
        guard
            case .installations(let selectors) = try PushRequest.parse(object, now: .now())
                .audience
        else { return nil }
        return selectors.condition
    }

    @Test("Tags and platforms narrow each other")
    func platforms() throws {
        let provider = Where.field(.provider, .among([.string("apns"), .string("fcm")]))
        let tag = Where.field(.channels, .equal(.string("a")))
        let data: JSONValue = ["alert": "x"]
        #expect(try condition(["data": data, "platforms": ["apns", "fcm"]]) == provider)
        #expect(
            try condition(["data": data, "tags": "a", "platforms": ["apns", "fcm"]])
                == .all([tag, provider])
        )
    }

    @Test("A template selects the devices that have it, by their tags and the template's own")
    func template() throws {
        let holds = Where.field(
            WherePath(segments: ["_azure", "templateNames"]),
            .equal(.string("t.1"))
        )
        let own = Where.field(
            WherePath(segments: ["_azure", "templates", "t$1", "tags"]),
            .equal(.string("a"))
        )
        let template: JSONValue = ["name": "t.1", "properties": ["K": "v"]]
        #expect(try condition(["template": template]) == holds)
        #expect(
            try condition(["template": template, "tags": "a"])
                == .all([holds, .any([.field(.channels, .equal(.string("a"))), own])])
        )
    }

    @Test(
        "An invalid value is refused by its name",
        arguments: [
            ("platforms", ["data": [:], "platforms": ["amiga"]]),
            ("tags", ["data": [:], "tags": "a &&"]), ("tags", ["data": [:], "tags": .null]),
            ("template", ["data": [:], "template": ["name": "t"]]),
            ("template.name", ["template": ["name": "a b"]]),
            ("template.properties.k", ["template": ["name": "t", "properties": ["k": 1]]]),
        ] as [(String, JSONObject)]
    )
    func refused(_ field: String, _ object: JSONObject) {
        let error = #expect(throws: PushRequestError.self) {
            try PushRequest.parse(object, now: .now())
        }
        #expect(error?.field.hasPrefix(field) == true, "\(error?.description ?? "")")
    }
}
