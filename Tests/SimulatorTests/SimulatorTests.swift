import HTTPServer
import JSON
import Testing

@testable import Simulator

@Suite("Simulator: rules", .timeLimit(.minutes(1)))
struct RuleTests {
    private func book(_ text: String) throws -> RuleSet {
        var book = RuleSet()
        try book.replace(with: try JSONValue.parse(text))
        return book
    }

    private func take(
        _ book: inout RuleSet,
        _ provider: Provider = .apns,
        token: String? = "abcd",
        path: String = "/3/device/abcd",
        isPush: Bool = true,
        roll: Double = 0
    ) -> Int? {
        book.take(provider, token: token, path: path, isPush: isPush, roll: { roll })?.status
    }

    @Test("The first rule that matches wins, by provider and by token, exact or by expression")
    func matching() throws {
        var book = try book(
            """
            [{"provider": "fcm", "status": 500}, {"token": "abcd", "status": 410},
             {"token": "/^ab/", "status": 429}, {"provider": "apns", "status": 503}]
            """
        )
        #expect(take(&book) == 410)
        #expect(take(&book, token: "abcde") == 429)
        #expect(take(&book, token: "b") == 503)
        #expect(take(&book, .fcm, token: "b") == 500)
        #expect(take(&book, .wns, token: "b") == nil)
    }

    @Test("A rule ends after its number of uses, and a percentage is random")
    func limits() throws {
        var book = try book(
            #"[{"status": 500, "times": 2}, {"status": 429, "percent": 5}]"#
        )
        #expect(take(&book, roll: 99) == 500)
        #expect(take(&book, roll: 99) == 500)
        #expect(take(&book, roll: 99) == nil)
        #expect(take(&book, roll: 4.9) == 429)
        #expect(take(&book, roll: 5) == nil)
        #expect(book.listing[0]?["remaining"] == 0)
    }

    @Test("Only rules that name a token endpoint's path apply to it")
    func paths() throws {
        var book = try book(#"[{"status": 500}, {"path": "/token$/", "status": 503}]"#)
        #expect(take(&book, .fcm, token: nil, path: "/token", isPush: false) == 503)
        #expect(take(&book, .fcm, token: nil, path: "/other", isPush: false) == nil)
        #expect(take(&book) == 500)
    }

    @Test(
        "An invalid rule is refused by its field, and the old rules stay",
        arguments: [
            (#"{}"#, "rules"), (#"[1]"#, "rules[0]"), (#"[{}, {"percnt": 1}]"#, "rules[1].percnt"),
            (#"[{"provider": "hms"}]"#, "rules[0].provider"),
            (#"[{"token": "/(/"}]"#, "rules[0].token"), (#"[{"token": 1}]"#, "rules[0].token"),
            (#"[{"percent": 101}]"#, "rules[0].percent"), (#"[{"status": 42}]"#, "rules[0].status"),
            (#"[{"headers": {"a b": "c"}}]"#, "rules[0].headers.a b"),
            (#"[{"headers": {"a": 1}}]"#, "rules[0].headers.a"),
            (#"[{"delayMs": [80, 20]}]"#, "rules[0].delayMs"),
            (#"[{"then": "explode"}]"#, "rules[0].then"), (#"[{"times": 0}]"#, "rules[0].times"),
            (#"[{"timestamp": "now"}]"#, "rules[0].timestamp"),
        ]
    )
    func refusals(text: String, field: String) throws {
        var book = try book(#"[{"status": 500}]"#)
        let error = #expect(throws: ControlError.self) {
            try book.replace(with: try JSONValue.parse(text))
        }
        #expect(error?.field == field)
        #expect(take(&book) == 500)
    }
}

@Suite("Simulator: received requests", .timeLimit(.minutes(1)))
struct ReceivedLogTests {
    private func received(_ token: String, status: Int? = 200) throws -> ReceivedRequest {
        var result = CheckResult()
        result.token = token
        return ReceivedRequest(
            provider: .apns,
            environment: "production",
            result: result,
            status: status,
            reason: status == nil ? "hang" : nil,
            at: "2026-11-20T21:04:05.123Z",
            request: try HTTPServerRequest(
                .post,
                "/3/device/\(token)",
                headers: ["Apns-Topic": "t"],
                body: Array(#"{"aps":{}}"#.utf8),
                connectionID: 3
            )
        )
    }

    private func tokens(_ log: ReceivedLog, after: Int) throws -> [String] {
        let listing = try JSONValue.parse(log.listing(after: after))
        return listing["received"]?.array?.compactMap { $0["token"]?.string } ?? []
    }

    @Test("An entry has the request and the response")
    func entries() throws {
        var log = ReceivedLog()
        log.append(try received("aa"))
        let listing = try JSONValue.parse(log.listing(after: 0))
        #expect(listing["next"] == 2)
        #expect(listing["dropped"] == 0)
        let entry = try #require(listing["received"]?[0])
        #expect(entry["seq"] == 1)
        #expect(entry["connection"] == 3)
        #expect(entry["headers"]?["apns-topic"] == "t")
        #expect(entry["body"] == ["aps": [:]])
        #expect(entry["status"] == 200)
        #expect(entry["certificate"] == .null)
    }

    @Test("Polling with the last next, or with the last number, neither misses nor repeats")
    func polling() throws {
        var log = ReceivedLog()
        log.append(try received("a1"))
        log.append(try received("a2"))
        let listing = try JSONValue.parse(log.listing(after: 0))
        let next = try #require(listing["next"]?.integer)
        let last = try #require(listing["received"]?[1]?["seq"]?.integer)
        log.append(try received("a3"))
        #expect(try tokens(log, after: next) == ["a3"])
        #expect(try tokens(log, after: last) == ["a3"])
        #expect(try tokens(log, after: 0) == ["a1", "a2", "a3"])
        #expect(try tokens(log, after: .max) == [])
    }

    @Test("The oldest entries are dropped and counted, by number and by size")
    func bounds() throws {
        var log = ReceivedLog(maximumCount: 3, maximumBytes: 1 << 20)
        for index in 1...2500 { log.append(try received("a\(index)")) }
        #expect(try tokens(log, after: 0) == ["a2498", "a2499", "a2500"])
        #expect(log.dropped == 2497)
        #expect(log.counts == ["apns": ["200": 2500]])
        var small = ReceivedLog(maximumCount: 100, maximumBytes: 1000)
        for index in 1...9 { small.append(try received("b\(index)")) }
        #expect(try tokens(small, after: 0).last == "b9")
        #expect(small.listing(after: 0).count < 1100)
    }

    @Test("Clearing empties log and counts, and numbers continue")
    func clearing() throws {
        var log = ReceivedLog()
        log.append(try received("a1"))
        log.append(try received("a2", status: nil))
        #expect(log.countsListing == ["apns": ["200": 1, "hang": 1]])
        let next = try #require(try JSONValue.parse(log.listing(after: 0))["next"]?.integer)
        log.clear()
        #expect(log.countsListing == [:])
        #expect(try tokens(log, after: 0) == [])
        log.append(try received("a3"))
        #expect(try tokens(log, after: next) == ["a3"])
    }
}

@Suite("Simulator: added credentials", .timeLimit(.minutes(1)))
struct CredentialSetTests {
    @Test(
        "An invalid set is refused by its field",
        arguments: [
            (#"[]"#, "credentials"), (#"{"hms": []}"#, "hms"), (#"{"apns": {}}"#, "apns"),
            (#"{"apns": [{}]}"#, "apns[0].publicKeyPem"),
            (#"{"apns": [{"publicKeyPem": "x"}]}"#, "apns[0].publicKeyPem"),
            (#"{"wns": [{"clientId": "a"}]}"#, "wns[0].clientSecret"),
        ]
    )
    func refusals(text: String, field: String) throws {
        let error = #expect(throws: ControlError.self) {
            try CredentialSet(try JSONValue.parse(text))
        }
        #expect(error?.field == field)
    }
}
