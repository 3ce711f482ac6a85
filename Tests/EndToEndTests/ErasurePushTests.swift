import Cryptography
import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Erasure of pushes by the people that they reached",
        .runningStack,
        .serialized,
        .timeLimit(.minutes(5))
    )
    struct ErasurePushTests {
        /// One person with one phone, and the names that only they have.
        private struct Person {
            let user = TestEnvironment.unique("user-")
            let device = TestEnvironment.unique("device-")
            let mail = TestEnvironment.unique("mail-") + "@example.com"
            let token = makeAPNsToken()
            var channel: String { "of-" + device }
            var owner: JSONValue {
                ["__type": "Pointer", "className": "_User", "objectId": .string(user)]
            }

            func fields(_ bench: Bench) -> JSONValue {
                [
                    "deviceType": "ios", "deviceToken": .string(token),
                    "installationId": .string(device), "apnsTopic": .string(bench.app.bundleID),
                    "apnsEnvironment": "production", "owner": owner, "email": .string(mail),
                    "channels": ["news", .string(channel)],
                ]
            }

            /// Returns selectors, each of that phone only.
            func selectors(_ id: String) -> [JSONObject] {
                [
                    ["where": ["owner": owner]], ["where": ["objectId": .string(id)]],
                    ["where": ["installationId": .string(device)]],
                    ["where": ["email": .string(mail)]],
                    ["where": ["$or": [["objectId": .string(id)], ["objectId": "nobody-here"]]]],
                    ["cql": .string("select * from _Installation where email = '\(mail)'")],
                    [
                        "cql": .string(
                            "select * from _Installation where owner = pointer('_User', '\(user)')"
                        )
                    ],
                    ["channels": [.string(channel)]], ["tags": .string("$UserId:{\(user)}")],
                    ["tags": .string(channel)], ["identities": [.string(user)]],
                    ["installations": [.string(id)]],
                    ["tokens": [["platform": "apns", "token": .string(token)]]],
                ]
            }
        }

        private func send(
            _ selector: JSONObject,
            _ more: JSONObject,
            _ bench: Bench
        ) async throws -> String {
            let event = TestEnvironment.unique("event-")
            var request: JSONObject = ["id": .string(event), "app": .string(bench.app.id)]
            for (key, value) in selector { request[key] = value }
            for (key, value) in more { request[key] = value }
            try await bench.stack.send(.object(request))
            return event
        }

        private func requests(holding text: String, _ bench: Bench) async throws -> [String] {
            try await bench.stack.database.query(
                """
                select event_id from all_pushes
                where strpos(request::text || notes::text, '\(text)') > 0 order by 1
                """
            )
        }

        @Test("A push that reached only the erased person keeps nothing, by whatever selector")
        func forms() async throws {
            let bench = try await Bench()
            let person = Person()
            let id = try await bench.register(person.fields(bench))
            _ = try await bench.registerPhone(token: makeAPNsToken(), channels: ["news"])
            let secret = TestEnvironment.unique("secret-")
            let selectors = person.selectors(id)
            for selector in selectors {
                let data: JSONObject = ["data": ["alert": .string("Dear A, \(secret)")]]
                let push = try await bench.stack.finishedPush(
                    event: try await send(selector, data, bench)
                )
                #expect(push["delivered"] == 1 && push["targeted"] == 1, "\(selector)")
            }
            let native: JSONObject = [
                "native": ["apns": ["payload": ["aps": ["alert": .string(secret)]]]],
                "collapse_id": .string(secret),
            ]
            _ = try await bench.stack.finishedPush(
                event: try await send(["where": ["email": .string(person.mail)]], native, bench)
            )
            let shared = TestEnvironment.unique("shared-")
            let all = try await send(
                ["channels": ["news"]],
                ["data": ["alert": .string(shared), "from": .string(person.user)]],
                bench
            )
            _ = try await bench.stack.finishedPush(event: all)
            let written = selectors.count + 1
            #expect(try await requests(holding: secret, bench).count == written)

            let words = [bench.app.id, "--identity", person.user]
            let export = try JSONValue.parse(
                try await bench.stack.carillon("export", words[0], words[1], words[2])
            )
            let exported = export["pushes"]?.array?.filter { $0.text.contains(secret) }
            #expect(exported?.count == written, "an export has what the erasure takes")
            let counted = try await bench.stack.carillon(
                "erase",
                words[0],
                words[1],
                words[2],
                "--dry-run",
                "--json"
            )
            let receipt = try JSONValue.parse(
                try await bench.stack.carillon("erase", words[0], words[1], words[2], "--json")
            )
            #expect(try JSONValue.parse(counted) == receipt["erased"])
            #expect(receipt["erased"]?["pushes"]?.integer == written + 1)
            for text in [secret, person.user, person.mail, person.channel, person.token, id] {
                #expect(try await requests(holding: text, bench).isEmpty, "\(text)")
            }
            #expect(try await requests(holding: shared, bench) == [all], "others got it, too")
            let again = try await run(
                Stack.executable("carillon"),
                ["erase"] + words,
                environment: bench.stack.environment
            )
            #expect(again.exit == .status(1) && again.output.isEmpty)

            // The fence of its names cannot be compared with a list of plain digests.
            let plain = try await bench.stack.database.query(
                """
                select count(*) from erased_names where app = '\(bench.app.id)'
                    and digest = sha256(convert_to('\(bench.app.id)/\(person.user)', 'UTF8'))
                """
            )
            #expect(plain == ["0"])
            let fences = try await bench.stack.database.query(
                "select count(*) > 0 from erased_names where app = '\(bench.app.id)'"
            )
            #expect(fences == ["t"])
        }

        @Test("A waiting push that names only the person loses its content and is never sent")
        func scheduled() async throws {
            let bench = try await Bench()
            let person = Person()
            let id = try await bench.register(person.fields(bench))
            let secret = TestEnvironment.unique("secret-")
            let release = Date(timeIntervalSinceNow: 12).ISO8601Format()
            let selectors: [JSONObject] = [
                ["where": ["owner": person.owner]], ["where": ["objectId": .string(id)]],
                ["where": ["$or": [["owner": person.owner], ["objectId": .string(id)]]]],
                [
                    "cql": .string(
                        "select * from _Installation where owner = pointer('_User', '\(person.user)')"
                    )
                ],
                ["tags": .string("$UserId:{\(person.user)} && news")],
                ["identities": [.string(person.user)]],
            ]
            var events: [String] = []
            for selector in selectors {
                events.append(
                    try await send(
                        selector,
                        ["push_time": .string(release), "data": ["alert": .string(secret)]],
                        bench
                    )
                )
            }
            // A push to others as well keeps its content, without the names.
            let many: JSONObject = [
                "cql": .string(
                    "select * from _Installation where channels = 'news' or"
                        + " owner = pointer('_User', '\(person.user)')"
                )
            ]
            let shared = TestEnvironment.unique("shared-")
            let later = try await send(
                many,
                ["push_time": .string(release), "data": ["alert": .string(shared)]],
                bench
            )
            _ = try await eventually("they wait") {
                let waiting = try await requests(holding: secret, bench).count
                let isShared = try await !requests(holding: shared, bench).isEmpty
                return waiting == selectors.count && isShared ? true : nil
            }
            _ = try await bench.stack.carillon("erase", bench.app.id, "--identity", person.user)
            #expect(try await requests(holding: secret, bench).isEmpty)
            #expect(try await requests(holding: person.user, bench).isEmpty)
            #expect(try await requests(holding: shared, bench) == [later])
            // A user who comes back under the name does not get pushes for the erased one.
            _ = try await bench.register(person.fields(bench))
            for event in events {
                let push = try await bench.stack.finishedPush(event: event)
                #expect(push["targeted"] == 0, "\(push)")
            }
        }
    }
}
