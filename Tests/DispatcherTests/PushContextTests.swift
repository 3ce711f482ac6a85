import JSON
import PushCore
import PushProviders
import Storage
import Testing

@testable import Dispatcher

@DispatchLoop
@Suite("Push context, shared by the deliveries of one push", .timeLimit(.minutes(1)))
struct PushContextTests {
    private func context(_ data: JSONObject?) -> PushContext {
        PushContext(
            pushID: "p",
            eventID: "e",
            source: "s",
            request: data.map { PushRequest(audience: .installations(.init()), data: $0) }
        )
    }

    @Test("A device gets its language, or the plain text if its language has no text")
    func languages() throws {
        let context = context(["alert": "plain", "alert-fr": "bonjour"])
        func text(_ locale: String?) throws -> String {
            String(
                decoding: try context.payload(
                    .apns,
                    locale: locale,
                    includesPushID: false,
                    at: .now()
                )
                .body,
                as: UTF8.self
            )
        }
        for _ in 0..<2 {
            #expect(try text("fr_CA") == #"{"aps":{"alert":"bonjour"}}"#)
            #expect(try text("en") == #"{"aps":{"alert":"plain"}}"#)
            #expect(try text(nil) == #"{"aps":{"alert":"plain"}}"#)
        }
    }

    @Test("Text that is too long in one language does not stop another language")
    func tooLong() throws {
        let long = JSONValue.string(String(repeating: "x", count: 5000))
        let context = context(["alert": "plain", "alert-fr": long])
        #expect(throws: RenderingError.self) {
            try context.payload(.apns, locale: "fr", includesPushID: false, at: .now())
        }
        _ = try context.payload(.apns, locale: "en", includesPushID: false, at: .now())
    }

    @Test("A device's own values are used for it alone")
    func values() throws {
        let context = context(["alert": "Hi {{name|you}}"])
        for (name, text) in [("Ann", "Hi Ann"), ("Bob", "Hi Bob"), ("", "Hi you")] {
            let body = try context.payload(
                .apns,
                values: ["name": .string(name)],
                includesPushID: false,
                at: .now()
            ).body
            #expect(try JSONValue.parse(body)["aps"]?["alert"]?.string == text)
        }
    }

    @Test("The cache of finished pushes has a budget in bytes, also with 300 large ones")
    func remembered() async throws {
        struct Weak {
            weak var context: PushContext?
        }
        let uri = "postgres://127.0.0.1:1/nobody"
        let database = PushDatabase(DatabaseConfiguration(uri: uri), on: DispatchLoop.loop)
        let contexts = PushContextCache(database: database)
        var all: [Weak] = []
        for number in 0..<300 {
            // A tree of small values takes more memory than its text.
            let rows: [JSONValue] = (0..<20_000).map { .string("\($0)") }
            let context = PushContext(
                pushID: "p\(number)",
                eventID: "e",
                source: "s",
                request: PushRequest(
                    audience: .installations(.init()),
                    data: ["alert": "x", "rows": .array(rows)]
                )
            )
            contexts.remember(context)
            all.append(Weak(context: context))
        }
        let kept = all.count { $0.context != nil }
        #expect((20...140).contains(kept))
        // The most recently used ones stay.
        #expect(all.suffix(kept).allSatisfy { $0.context != nil })
        #expect((1...PushContextCache.budgetBytes).contains(contexts.weightBytes))
        await database.close()
    }

    @Test("A context in use is found however many came after it, so that its pace is shared")
    func inUse() async throws {
        let uri = "postgres://127.0.0.1:1/nobody"
        let database = PushDatabase(DatabaseConfiguration(uri: uri), on: DispatchLoop.loop)
        let contexts = PushContextCache(database: database)
        let used = context(["alert": "x"])
        contexts.remember(used)
        let rows: [JSONValue] = (0..<200_000).map { .string("\($0)") }
        for number in 0..<20 {
            contexts.remember(
                PushContext(
                    pushID: "p\(number)",
                    eventID: "e",
                    source: "s",
                    request: PushRequest(
                        audience: .installations(.init()),
                        data: ["rows": .array(rows)]
                    )
                )
            )
        }
        // The lookup needs no query, as there is no database.
        let found = try await contexts.load([used.pushID])
        #expect(found[used.pushID] === used)
        await database.close()
    }

    @Test(
        "A payload has the push id if the app wants it now, but not for secure, sync or config pushes"
    )
    func includesPushID() throws {
        let request = PushRequest(audience: .installations(.init()), data: ["alert": "x"])
        func told(_ context: PushContext, _ includesPushID: Bool) throws -> String? {
            let body = try context.payload(.apns, includesPushID: includesPushID, at: .now()).body
            return try JSONValue.parse(body)["pushId"]?.string
        }
        let own = context(["alert": "x"])
        for _ in 0..<2 {
            #expect(try told(own, true) == "p")
            #expect(try told(own, false) == nil)
        }
        for source in ["carillon/secure", "carillon/sync", "carillon/config"] {
            let ring = PushContext(pushID: "p", eventID: "e", source: source, request: request)
            #expect(try told(ring, true) == nil)
        }
    }

    @Test("A push without a record renders nothing")
    func noRecord() {
        #expect(throws: RenderingError.self) {
            try context(nil).payload(.apns, includesPushID: false, at: .now())
        }
    }
}
