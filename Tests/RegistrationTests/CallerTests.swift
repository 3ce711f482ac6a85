import Apps
import Gateway
import JSON
import PushCore
import Testing

@testable import Registration

@Suite("Queries that an app key may make by a push", .timeLimit(.minutes(1)))
struct CallerTests {
    private func caller(_ rights: CallerRights, _ settings: String...) throws -> Caller {
        var stored: JSONObject = [:]
        for text in settings + ["client-push=on"] {
            for (name, value) in try AppSettings.change(text) { stored[name] = value }
        }
        let app = CachedApp(
            id: "shop",
            appKey: "app",
            masterKey: "master",
            settings: AppSettings(stored)
        )
        return Caller(app: app, rights: rights)
    }

    /// Returns why a push to this audience is refused; `nil` if it is accepted.
    private func refusal(_ audience: String, of caller: Caller) throws -> ObjectError? {
        var body = try JSONValue.parse(audience).object ?? [:]
        body["data"] = ["alert": "Ding"]
        let request = try PushRequest.parse(body, now: .now())
        do {
            try caller.requireQueryAllowed(request.audience)
            return nil
        } catch {
            return error
        }
    }

    private static let hidden = [
        #"{"where":{"user":{"$inQuery":{"className":"_User","where":{"email":{"$regex":"^a"}}}}}}"#,
        #"{"where":{"owner":{"$inQuery":{"mobilePhoneNumber":"1"}}}}"#,
        #"{"where":{"owner":{"$notInQuery":{"className":"_User","where":{"email":"a"}}}}}"#,
        #"{"channels":["a"],"where":{"$or":[{"n":1},{"owner":{"$inQuery":{"email":"a"}}}]}}"#,
        """
        {"where":{"mail":{"$select":{"key":"email","query":{"className":"_User",
        "where":{"city":"x"}}}}}}
        """,
    ]

    @Test("Only the master key may query hidden fields, whatever the app's settings")
    func hiddenFieldsAreRefused() throws {
        let clients = [try caller(.client), try caller(.client, "client-find=on")]
        for audience in Self.hidden {
            for client in clients {
                let error = try refusal(audience, of: client)
                #expect(error?.status == 403 && error?.code == 119, "\(audience)")
            }
            #expect(try refusal(audience, of: caller(.master)) == nil, "\(audience)")
        }
    }

    @Test("Sub-queries need permission to find objects, and a sender's own SDK queries do not")
    func ordinaryFieldsAreAsked() throws {
        let query = #"{"where":{"owner":{"$inQuery":{"className":"_User","where":{"city":"x"}}}}}"#
        #expect(try refusal(query, of: caller(.client))?.code == 119)
        #expect(try refusal(query, of: caller(.client, "client-find=on")) == nil)
        for audience in [
            #"{}"#, #"{"channels":["a","b"]}"#, #"{"installations":["one"]}"#,
            #"{"where":{"installationId":"one"}}"#, #"{"where":{"n":{"$gt":1},"city":"x"}}"#,
            #"{"cql":"select * from _Installation where n > 1"}"#, #"{"tags":"a && !b"}"#,
        ] {
            #expect(try refusal(audience, of: caller(.client)) == nil, "\(audience)")
        }
    }
}
