import Foundation
import JSON
import Support
import Testing

extension EndToEndTests.AzureTests {
    /// Registers a channel, natively or with a template, and returns the registration's id.
    private func register(
        _ hub: Hub,
        _ name: String,
        _ inner: String
    ) async throws -> String {
        let answer = try await hub.raw(
            "POST",
            "registrations",
            by: .listen,
            headers: ["Content-Type": "application/atom+xml;type=entry;charset=utf-8"],
            bytes: Array(
                """
                <entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><\(name)
                xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">\(inner)</\(name)>
                </content></entry>
                """.utf8
            )
        )
        #expect(answer.status == 200, "\(answer.text)")
        return try #require(FormValues.kept("element RegistrationId", of: answer))
    }

    private func template(_ token: String) -> String {
        "<DeviceToken>\(token)</DeviceToken>"
            + "<BodyTemplate><![CDATA[{\"aps\":{\"alert\":\"$(m)\"}}]]></BodyTemplate>"
    }

    @Test("A phone with a native registration and templates gets a push of another surface once")
    func registrationsBesideOtherSurfaces() async throws {
        let hub = try await Hub()
        let token = makeAPNsToken()
        let native = try await register(
            hub,
            "AppleRegistrationDescription",
            "<Tags>news</Tags><DeviceToken>\(token)</DeviceToken>"
        )
        for _ in 0..<2 {
            _ = try await register(hub, "AppleTemplateRegistrationDescription", template(token))
        }
        let simulator = hub.bench.simulator
        let selectors: [JSONObject] = [
            [:], ["channels": ["news"]], ["where": ["deviceType": "ios"]],
        ]
        for (index, selector) in selectors.enumerated() {
            var push = selector
            let id = TestEnvironment.unique("event-")
            push["id"] = .string(id)
            push["source"] = "e2e"
            push["app"] = .string(hub.bench.app.id)
            push["data"] = ["alert": .string("lean \(index)")]
            try await hub.bench.stack.send(.object(push))
            _ = try await hub.bench.stack.finishedPush(event: id)
            #expect(try await simulator.received(for: token).count == index + 1, "\(selector)")
        }
        // A phone that registers by LeanCloud's surface is the same phone, and the templates stay.
        let saved = try await http(
            "POST",
            "\(hub.bench.registration)/1.1/installations",
            headers: hub.bench.app.clientHeaders,
            body: ["deviceType": "ios", "deviceToken": .string(token)]
        )
        #expect(saved.status == 200)
        let sent = try await hub.send("template", #"{"m":"filled"}"#)
        _ = try await hub.details(try hub.id(sent))
        let texts = try await simulator.received(for: token).map(\.body.text)
        #expect(texts.filter { $0.contains("filled") }.count == 2)
        let kept = try await hub.raw("GET", "registrations/\(native)", by: .listen)
        #expect(kept.status == 200)
    }

    @Test("A registration is exported and erased as an installation is")
    func registrationsAreErased() async throws {
        let hub = try await Hub()
        let token = makeAPNsToken()
        let id = try await register(hub, "AppleTemplateRegistrationDescription", template(token))
        let app = hub.bench.app.id
        let exported = try await hub.bench.stack.carillon("export", app, "--installation", id)
        #expect(exported.contains(token))
        try await hub.bench.stack.carillon("erase", app, "--installation", id)
        let path = "registrations/\(id)"
        #expect(try await hub.raw("GET", path, by: .listen).status == 404)
        let list = try await hub.raw("GET", "registrations", by: .full)
        #expect(!list.text.contains(token))
    }

    @Test(
        "Azure's clients do not see a registration as an installation, or the reverse"
    )
    func twoModels() async throws {
        let hub = try await Hub()
        let token = makeAPNsToken()
        let id = try await register(
            hub,
            "AppleRegistrationDescription",
            "<DeviceToken>\(token)</DeviceToken>"
        )
        let path = "installations/\(id)"
        #expect(try await hub.raw("GET", path, by: .listen).status == 404)
        #expect(try await hub.raw("DELETE", path, by: .listen).status == 204)
        let put = try await hub.call(
            "PUT",
            path,
            by: .listen,
            body: [
                "installationId": .string(id), "platform": "apns", "pushChannel": .string(token),
            ]
        )
        #expect(put.status == 409)
        #expect(try await hub.raw("GET", "registrations/\(id)", by: .listen).status == 200)
        try await hub.register("apns", token, tags: ["later"])
        let own = try await hub.raw(
            "GET",
            "registrations",
            query: "$filter=DeviceToken+eq+%27\(token)%27",
            by: .full
        )
        let shown = try #require(FormValues.kept("element RegistrationId", of: own))
        #expect(shown.hasPrefix("i-"))
        let one = "registrations/\(shown)"
        #expect(try await hub.raw("GET", one, by: .listen).status == 401)
        #expect(try await hub.raw("GET", one, by: .full).status == 200)
        let deleted = try await hub.raw("DELETE", one, by: .full, headers: ["If-Match": "*"])
        #expect(deleted.status == 409)
    }
}
