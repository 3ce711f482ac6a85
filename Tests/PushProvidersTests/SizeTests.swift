import JSON
import PushCore
import PushProviders
import Testing

@Suite("Content that is too large for every platform of a request", .timeLimit(.minutes(1)))
struct SizeTests {
    private func excess(_ object: JSONObject) throws -> RenderingError? {
        let request = try PushRequest.parse(object, now: Instant(seconds: 1_700_000_000))
        return request.tooLargeEverywhere(bytes: JSONValue.object(object).text.utf8.count)
    }

    private func text(_ size: Int) -> JSONValue { .string(String(repeating: "x", count: size)) }

    @Test("Content is refused only if it exceeds the limit of every platform that gets it")
    func everywhere() throws {
        #expect(try excess(["data": ["alert": text(300)]]) == nil)
        #expect(try excess(["data": ["alert": text(3000)]]) == nil)
        // This is within the 5,000 bytes of WNS.
        #expect(try excess(["data": ["alert": text(4500)]]) == nil)
        #expect(try excess(["data": ["alert": text(6000)]]) != nil)
        #expect(try excess(["data": ["alert": text(6000), "ios": ["alert": "short"]]]) == nil)
        #expect(try excess(["data": ["ios": ["alert": text(5000)]]]) != nil)
    }

    @Test("Tokens decide the platforms")
    func tokens() throws {
        let phone: JSONValue = [["platform": "apns", "token": "ab"]]
        let error = try excess(["tokens": phone, "data": ["alert": text(4500)]])
        guard case .tooLarge(let bytes, 4096)? = error else {
            Issue.record("\(String(describing: error))")
            return
        }
        #expect(bytes > 4500)
        #expect(try excess(["tokens": phone, "data": ["alert": text(4000)]]) == nil)
    }

    @Test("One language that fits is enough, and what each device adds does not count")
    func languages() throws {
        #expect(try excess(["data": ["alert": text(9000), "alert-fr": "court"]]) == nil)
        #expect(try excess(["data": ["alert": text(9000), "alert-fr": text(8000)]]) != nil)
        let fallback = String(repeating: "x", count: 250)
        let filled = (0..<30).map { "{{name\($0)|\(fallback)}}" }.joined()
        #expect(try excess(["data": ["alert": .string(filled)]]) == nil)
    }

    @Test("A rendering is needed only if the bytes do not decide, with growing numbers counted")
    func doubts() throws {
        func isDoubtful(_ object: JSONObject) throws -> Bool {
            let request = try PushRequest.parse(object, now: Instant(seconds: 1_700_000_000))
            return request.isOfDoubtfulSize(bytes: JSONValue.object(object).text.utf8.count)
        }
        #expect(try !isDoubtful(["data": ["alert": text(3000)]]))
        #expect(try isDoubtful(["data": ["alert": text(3600)]]))
        let numbers = JSONValue.array(Array(repeating: 1e15, count: 200))
        #expect(try isDoubtful(["data": ["alert": "x", "numbers": numbers]]))
        let windows: JSONValue = [
            ["platform": "wns", "token": "https://db5.notify.windows.com/?token=a"]
        ]
        #expect(try isDoubtful(["tokens": windows, "data": ["alert": text(600)]]))
        #expect(try !isDoubtful(["tokens": windows, "data": ["alert": text(300)]]))
    }

    @Test("A push with more than four languages, or with values of each device, is not checked")
    func bounded() throws {
        var data: JSONObject = ["alert": text(9000)]
        for locale in ["fr", "de", "es", "it"] { data["alert-\(locale)"] = text(9000) }
        #expect(try excess(["data": .object(data)]) != nil)
        data["alert-pt"] = text(9000)
        #expect(try excess(["data": .object(data)]) == nil)
        let send: JSONObject = ["template": ["name": "t", "properties": ["a": text(9000)]]]
        #expect(try excess(send) == nil)
    }
}
