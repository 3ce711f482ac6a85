import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Devices and people in the console", .serialized, .timeLimit(.minutes(3)))
    struct ConsoleDeviceTests {
        private static func register(
            _ fixture: ConsoleFixture,
            identity: String,
            token: String = makeAPNsToken()
        ) async throws -> String {
            let answer = try await http(
                "POST",
                fixture.service.url + "/1.1/installations",
                headers: fixture.app.clientHeaders,
                body: [
                    "deviceType": "ios", "deviceToken": .string(token),
                    "apnsTopic": .string(fixture.app.bundleID), "channels": ["news"],
                    "identity": .string(identity),
                ]
            )
            return try #require(answer.json?["objectId"]?.string)
        }

        @Test("The file has each device of the filter, no token, and no formula")
        func file() async throws {
            try await ConsoleFixture.run { fixture in
                var devices: [String] = []
                let tokens = [makeAPNsToken(), makeAPNsToken()]
                devices.append(
                    try await Self.register(fixture, identity: "=1+1", token: tokens[0])
                )
                devices.append(try await Self.register(fixture, identity: "b", token: tokens[1]))
                var sender = try await fixture.operatorBrowser("sender")
                let all = try await sender.get("\(fixture.home)/devices.csv?by=channel&q=news")
                #expect(all.header("content-type") == "text/csv; charset=utf-8")
                #expect(all.text.split(separator: "\r\n").count == 3)
                for device in devices { #expect(all.text.contains(device)) }
                for token in tokens { #expect(!all.text.contains(token)) }
                #expect(all.text.contains(#""'=1+1""#))
                let one = try await sender.get("\(fixture.home)/devices.csv?by=identity&q=b").text
                #expect(one.contains(devices[1]) && !one.contains(devices[0]))
                let named = try await sender.get("\(fixture.home)/devices.csv?q=\(devices[0])").text
                #expect(named.contains(devices[0]) && !named.contains(devices[1]))
                let list = try await sender.get("\(fixture.home)/devices?by=identity&q=b").text
                #expect(list.contains("/devices.csv?by=identity&amp;q=b"))
            }
        }

        @Test("Pages of a device and of a person show the latest pushes with their outcomes")
        func history() async throws {
            try await ConsoleFixture.run { fixture in
                let stack = fixture.stack
                let dispatcher = try await stack.start("carillon-dispatcher")
                let first = try await Self.register(fixture, identity: "ann/a b")
                let second = try await Self.register(fixture, identity: "ann/a b")
                let other = try await Self.register(fixture, identity: "bob")
                try await stack.send([
                    "app": .string(fixture.app.id), "id": "e1", "identities": ["ann/a b"],
                    "data": ["alert": "for Ann"],
                ])
                let push = try #require(
                    try await stack.finishedPush(event: "e1")["pushId"]?.string
                )
                var viewer = try await fixture.operatorBrowser("viewer")
                let device = try await viewer.get("\(fixture.home)/devices/\(first)").text
                #expect(device.contains("for Ann") && device.contains("/pushes/\(push)"))
                #expect(device.contains("shape delivered"))
                #expect(device.contains("/identities/ann%2Fa%20b"))
                let stranger = try await viewer.get("\(fixture.home)/devices/\(other)").text
                #expect(!stranger.contains("for Ann"))
                #expect(stranger.contains("None of them was sent to it."))
                let person = try await viewer.get("\(fixture.home)/identities/ann%2Fa%20b").text
                for id in [first, second] {
                    let link = "/explain?push=\(push)&amp;installation=\(id)"
                    #expect(person.contains(link), "\(id)")
                }
                #expect(!person.contains(other))
                let none = try await viewer.get("\(fixture.home)/identities/nobody")
                #expect(none.status == 404)
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        @Test("Devices that a provider's answer made invalid are restored, and no others")
        func restore() async throws {
            try await ConsoleFixture.run { fixture in
                let wrong = try await Self.register(fixture, identity: "a")
                let muted = try await Self.register(fixture, identity: "b")
                let old = try await Self.register(fixture, identity: "c")
                let database = fixture.stack.database
                _ = try await database.query(
                    """
                    UPDATE installations SET valid = false,
                        invalid_reason = CASE WHEN object_id = '\(muted)' THEN NULL
                            ELSE 'BadCertificate' END,
                        invalidated_at = CASE object_id WHEN '\(muted)' THEN NULL
                            WHEN '\(old)' THEN now() - interval '9 days' ELSE now() END
                    WHERE app = '\(fixture.app.id)' RETURNING object_id
                    """
                )
                var sender = try await fixture.operatorBrowser("sender")
                let address = "\(fixture.home)/devices/restore"
                let page = try await sender.get(address).text
                #expect(page.contains("BadCertificate") && page.contains("Restore 1<"))
                let token = try await fixture.formToken(&sender, of: fixture.app)
                let since = try #require(
                    PageElements(page).elements.first { $0.attributes["id"] == "since" }?
                        .attributes["value"]
                )
                for _ in 0..<2 {
                    let answer = try await sender.post(
                        address,
                        ["token": token, "since": since, "reason": "BadCertificate"]
                    )
                    #expect(answer.status == 303)
                }
                let valid = try await database.query(
                    "SELECT object_id FROM installations WHERE valid AND app = '\(fixture.app.id)'"
                )
                #expect(valid == [wrong])
                _ = try await fixture.audit(having: "POST /console/:app/devices/restore")
                // One device is restored from its own page, whenever it became invalid.
                func restore(_ device: String) async throws -> Int {
                    let path = "\(fixture.home)/devices/\(device)"
                    let page = try await sender.get(path).text
                    #expect(page.contains("\(device)/restore") == (device == old))
                    return try await sender.post(path + "/restore", ["token": token]).status
                }
                #expect(try await restore(muted) == 409)
                #expect(try await restore(wrong) == 409)
                #expect(try await restore(old) == 303)
                #expect(
                    try await database.query(
                        """
                        SELECT object_id FROM installations
                        WHERE NOT valid AND app = '\(fixture.app.id)'
                        """
                    ) == [muted]
                )
                _ = try await fixture.audit(having: "POST /console/:app/devices/:id/restore")
            }
        }
    }
}
