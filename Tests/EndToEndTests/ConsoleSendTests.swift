import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("A push of the console goes where its review said", .timeLimit(.minutes(3)))
    struct ConsoleSendTests {
        @Test(
            "A draft that was changed after its review is not sent, and a second press sends nothing"
        )
        func reviewed() async throws {
            try await ConsoleFixture.run { fixture in
                let app = fixture.app
                let content = try await fixture.content(of: app)
                var sender = try await fixture.operatorBrowser("sender")
                var other = try await fixture.operatorBrowser("sender", name: "other@example.com")
                let draft = "\(fixture.home)/send/\(content.draft)"
                let token = try await fixture.formToken(&sender, of: app)
                let narrow = [
                    "who": "named", "installations": content.device, "text": "for one",
                    "do": "review",
                    "token": token,
                ]
                #expect(try await sender.post(draft, narrow).status == 303)
                let old = try await Self.digest(&sender, draft)

                let wide = [
                    "who": "everyone", "text": "for all", "do": "save",
                    "token": try await fixture.formToken(&other, of: app),
                ]
                #expect(try await other.post(draft, wide).status == 303)
                let confirm = ["do": "send", "devices": "1", "token": token]
                for digest in [old, "", "x"] {
                    let fields = confirm.merging(["draft": digest]) { $1 }
                    let answer = try await sender.post(draft + "/review", fields)
                    #expect(answer.status == 422)
                    #expect(answer.text.contains("The draft was changed after this review."))
                }
                #expect(try await Self.sent(fixture) == [])

                #expect(try await sender.post(draft, narrow).status == 303)
                let new = try await Self.digest(&sender, draft)
                #expect(new == old)
                for _ in 0..<2 {
                    let fields = confirm.merging(["draft": new]) { $1 }
                    #expect(try await sender.post(draft + "/review", fields).status == 303)
                }
                let sent = try await Self.sent(fixture)
                #expect(sent.count == 1)
                #expect(sent.allSatisfy { $0.contains(content.device) && $0.contains("for one") })
            }
        }

        @Test("Counting while a person types changes no stored draft")
        func counted() async throws {
            try await ConsoleFixture.run { fixture in
                let content = try await fixture.content(of: fixture.app)
                var sender = try await fixture.operatorBrowser("sender")
                let draft = "\(fixture.home)/send/\(content.draft)"
                let token = try await fixture.formToken(&sender, of: fixture.app)
                let stored = [
                    "who": "named", "installations": content.device, "text": "stored", "do": "save",
                    "token": token,
                ]
                #expect(try await sender.post(draft, stored).status == 303)
                let typed = ["who": "everyone", "text": "typed", "do": "count", "token": token]
                let answer = try await sender.post(draft, typed)
                #expect(answer.status == 200 && answer.text.contains("1 device"))
                let page = try await sender.get("\(fixture.home)/send?draft=\(content.draft)").text
                #expect(page.contains("stored") && !page.contains("typed"))
            }
        }

        /// The digest that the review's form sends.
        private static func digest(_ browser: inout Browser, _ draft: String) async throws -> String
        {
            let page = try await browser.get(draft + "/review").text
            let found = page.firstMatch(of: #/name="draft" value="([0-9a-f]{64})"/#)
            return String(try #require(found).output.1)
        }

        /// The requests of the pushes that the console sent.
        private static func sent(_ fixture: ConsoleFixture) async throws -> [String] {
            try await fixture.stack.database.query(
                "SELECT request::text FROM all_pushes WHERE event_source = 'carillon/console'"
            )
        }
    }
}
