import HTTPServer
import JSON
import Testing

@testable import ConfigWatcher

@Suite("Client streams and fetch limits")
struct ClientTests {
    @Test("Each object is one line of its own and contains the version")
    func lines() throws {
        let news = ConfigStream.Form.lines.news(of: 8)
        #expect(
            String(decoding: news, as: UTF8.self) == "{\"latestTemplateVersionNumber\":\"8\"}\n"
        )
        #expect(ConfigStream.Form.lines.beat == Array("\n".utf8))
        let last = ConfigStream.Form.lines.closingEvent(at: 8, retryAfter: 12)
        #expect(last.last == UInt8(ascii: "\n") && !last.dropLast().contains(UInt8(ascii: "\n")))
        let object = try JSONValue.parse(last)
        #expect(object == ["latestTemplateVersionNumber": "8", "retryIntervalSeconds": 12])
    }

    @Test("Events have the version as their id")
    func events() {
        let form = ConfigStream.Form.events
        let news = String(decoding: form.news(of: 8), as: UTF8.self)
        #expect(
            news.split(separator: "\n").sorted() == [
                #"data: {"CONFIG_STATE":"STALE","CONFIG_VERSION":"8"}"#, "event: config", "id: 8",
            ]
        )
        #expect(news.hasSuffix("\n\n"))
        #expect(form.beat == Array(":\n\n".utf8))
        #expect(form.closingEvent(at: 8, retryAfter: 12) == Array("retry: 12000\n\n".utf8))
    }

    @Test(
        "A client's key comes from the query or a header, and an empty one counts as absent",
        arguments: [
            ("?key=good", nil, "good"), ("?key=good", "other", "good"), ("", "good", "good"),
            ("?key=", "good", "good"), ("?key=good", "", "good"), ("?key=", "", nil),
            ("?key=", nil, nil), ("", nil, nil),
        ] as [(String, String?, String?)]
    )
    func keys(query: String, header: String?, key: String?) throws {
        var headers: HTTPHeaders = [:]
        if let header { headers["X-Goog-Api-Key"] = header }
        let request = try HTTPServerRequest(.post, "/fetch" + query, headers: headers)
        #expect(FirebaseSurface.clientKey(of: request) == key)
    }

    @Test(
        "The last event id is in a header or the query, and an empty one hides no other",
        arguments: [
            ("", nil, nil), ("", "7", 7), ("?lastKnownVersionNumber=7", nil, 7),
            ("?lastKnownVersionNumber=7", "8", 8), ("?lastKnownVersionNumber=7", "", 7),
            ("?lastKnownVersionNumber=", "", nil), ("?lastKnownVersionNumber=0", "", 0),
        ] as [(String, String?, Int?)]
    )
    func lastEvents(query: String, header: String?, version: Int?) throws {
        var headers: HTTPHeaders = [:]
        if let header { headers["Last-Event-ID"] = header }
        let request = try HTTPServerRequest(.get, "/stream" + query, headers: headers)
        #expect(try FirebaseSurface.lastEvent(of: request) == version)
        headers["Last-Event-ID"] = "x"
        let wrong = try HTTPServerRequest(.get, "/stream" + query, headers: headers)
        #expect(throws: FirebaseError.self) { try FirebaseSurface.lastEvent(of: wrong) }
    }

    @Test("Each instance has its own number of fetches an hour")
    func fetchLimits() {
        let limits = FetchLimits()
        let now = ContinuousClock.now
        func take(
            _ fetcher: FetchLimits.Fetcher,
            _ app: String = "shop",
            limit: Int = 3,
            after passed: Duration = .zero
        ) -> Int? {
            limits.take(fetcher, of: app, limit: limit, now: now + passed)
        }
        for _ in 0..<3 { #expect(take(.instance("one")) == nil) }
        #expect(take(.instance("one")) == 1200)
        #expect(take(.instance("two")) == nil)
        #expect(take(.instance("one"), "other") == nil)
        #expect(take(.address("one")) == nil)
        #expect(take(.instance("one"), limit: 0) == nil)
        #expect(take(.instance("one"), after: .seconds(1201)) == nil)
        // The two are equal by Unicode, but not by bytes.
        for _ in 0..<3 { #expect(take(.instance("\u{e9}")) == nil) }
        #expect(take(.instance("e\u{301}")) == nil)
        let long = String(repeating: "x", count: 1000)
        for _ in 0..<3 { #expect(take(.instance(long)) == nil) }
        #expect(take(.instance(long)) != nil)
        #expect(take(.instance(long + "x")) == nil)
    }
}
