import Cryptography
import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// The official client behind a proxy that changes what it may offer, its tokens, or its way.
    @Suite(
        "Realm's client uploads in each dialect, by each sign-in, and renews its tokens",
        .runningIngest,
        .serialized,
        needsBroker,
        needsRealmClient,
        .timeLimit(.minutes(10))
    )
    struct RealmNetworkTests {
        private static let schema: JSONValue = [
            [
                "name": "WeatherSensor", "kind": "asymmetric", "pk": "_id",
                "props": ["_id": "objectId", "deviceId": "string?", "extra": "string?"],
            ]
        ]

        // MARK: Dialects

        @Test(
            "A client that is held to a dialect uploads in it, and is told what is refused",
            arguments: 6...14
        )
        func dialects(_ version: Int) async throws {
            let name = "com.mongodb.realm-query-sync#\(version)"
            try await checkDialect(["protocols": [.string(name)]], chosen: name)
        }

        @Test("The older spelling of a dialect is chosen as it is offered")
        func olderSpelling() async throws {
            // This client writes `#` in every dialect.
            let offered = (2...7).reversed().map { "com.mongodb.realm-query-sync/\($0)" }
            try await checkDialect(
                [
                    "protocols": .array(offered.map { .string($0) }),
                    "answer": "com.mongodb.realm-query-sync#7",
                ],
                chosen: "com.mongodb.realm-query-sync/7"
            )
        }

        /// Lets a client of its own open, write, be refused an object, and start again.
        private func checkDialect(_ change: JSONObject, chosen: String) async throws {
            let bench = try await IngestBench.realm()
            let (first, second, bad) = (
                IngestBench.makeID(), IngestBench.makeID(), IngestBench.makeID()
            )
            try await RealmProxy.with(bench, change) { proxy in
                try await withDeviceFolder { folder in
                    let device = try await RealmDevice.start(
                        in: folder,
                        bench,
                        through: proxy,
                        schema: Self.schema,
                        async: true
                    )
                    try await device.write([["_id": .string(first), "deviceId": "x"]])
                    try await device.write([["_id": .string(bad), "deviceId": "x", "extra": "y"]])
                    try await device.waitUpload()
                    _ = try await eventually("the app is told") {
                        device.syncErrors.contains { $0.text.contains("extra") } ? true : nil
                    }
                    device.expectUnharmed(errors: 1)
                    await device.crash()

                    let again = try await RealmDevice.start(
                        in: folder,
                        bench,
                        through: proxy,
                        login: nil,
                        schema: Self.schema
                    )
                    try await again.write([["_id": .string(second), "deviceId": "x"]])
                    try await again.waitUpload()
                    again.expectUnharmed()
                    await again.quit()
                }
                let handshakes = try await proxy.handshakes
                #expect(handshakes.count >= 2)
                for handshake in handshakes { #expect(handshake["chosen"]?.string == chosen) }
                // The responses name the host that the client asked.
                let location = try await http(
                    "GET",
                    "\(proxy.url)/api/client/v2.0/app/\(bench.app.id)/location"
                )
                #expect(location.json?["hostname"]?.string == proxy.url)
            }
            #expect(try await bench.rows("WeatherSensor", count: 2) == [first, second].sorted())
        }

        // MARK: Sign-in

        @Test("A custom token's user is the same on each device, and a wrong token harms nothing")
        func customTokens() async throws {
            let bench = try await IngestBench.realm()
            let (issuer, key) = ("https://id.example", try SigningKey.generateP256())
            let keys: JSONValue = ["keys": [try publicJWK(key, "k1")]]
            try await bench.stack.carillon(
                "login",
                "set",
                bench.app.id,
                "--issuer",
                issuer,
                "--audience",
                "phones",
                "--jwks-file",
                try bench.stack.write(keys.text, to: TestEnvironment.unique("keys-") + ".json")
            )
            func login(_ name: String, _ audience: String = "phones") throws -> JSONObject {
                let claims: JSONObject = [
                    "iss": .string(issuer), "aud": .string(audience), "sub": .string(name),
                    "exp": 4_000_000_000,
                ]
                let token = try JWT.sign(header: ["kid": "k1"], claims: claims, with: key)
                return ["provider": "jwt", "token": .string(token)]
            }
            var users: [String] = []
            var ids: [String] = []
            try await withDeviceFolder { folder in
                for (number, name) in ["ann", "ann", "bob"].enumerated() {
                    let device = try await RealmDevice.start(
                        in: "\(folder)/\(number)",
                        bench,
                        login: try login(name)
                    )
                    // The same user again, whose Realm is open.
                    users.append(try await device.logIn(try login(name)))
                    var wrong = try login(name, "others")
                    wrong["cmd"] = "login"
                    let refused = try await device.reply(to: wrong)
                    #expect(
                        refused["error"] == "login" && refused["http"] == 401,
                        "\(refused.text)"
                    )
                    ids.append(IngestBench.makeID())
                    try await device.write([IngestBench.realmReading(ids[number])])
                    try await device.waitUpload()
                    #expect(try await device.ask(["cmd": "state"])["user"] == "loggedIn")
                    device.expectUnharmed()
                    await device.quit()
                }
            }
            #expect(users[0] == users[1] && users[0] != users[2] && users[0].utf8.count == 24)
            #expect(try await bench.rows("WeatherSensor", count: 3) == ids.sorted())
        }

        // MARK: Sessions

        @Test("Two files of a user upload at once on one connection")
        func twoFiles() async throws {
            let bench = try await IngestBench.realm()
            try await RealmProxy.with(bench, ["isHeld": true]) { proxy in
                try await withDeviceFolder { folder in
                    let device = try await RealmDevice.start(in: folder, bench, through: proxy)
                    try await device.writeMany(300)
                    try await device.openFile("other")
                    try await device.writeMany(300, first: 300)
                    try await proxy.set(["isHeld": false])
                    try await device.writeMany(50, first: 600)
                    try await device.waitUpload()
                    try await device.openFile("default")
                    try await device.writeMany(50, first: 650)
                    try await device.waitUpload()
                    #expect(try await proxy.handshakes.count == 1)
                    #expect(try await proxy.openSockets == 1)
                    device.expectUnharmed()
                    await device.quit()
                }
            }
            try await bench.expectNumbered(700)
        }

        // MARK: Tokens

        private static let renewal = "POST /auth/session 201"

        @Test("A client whose stored token has expired renews it before it connects")
        func expired() async throws {
            let bench = try await IngestBench.realm()
            try await RealmProxy.with(bench, ["lifetime": -3600]) { proxy in
                try await withDeviceFolder { folder in
                    let device = try await RealmDevice.start(in: folder, bench, through: proxy)
                    try await device.writeMany(10)
                    try await device.waitUpload()
                    #expect(try await proxy.requests.filter { $0 == Self.renewal }.count == 1)
                    #expect(try await proxy.handshakes.count == 1)
                    #expect(try await device.ask(["cmd": "state"])["user"] == "loggedIn")
                    device.expectUnharmed()
                    await device.quit()
                }
            }
            try await bench.expectNumbered(10)
        }

        @Test(
            "A token that expires meanwhile is taken when its client reconnects, and renewed at a start"
        )
        func shortLived() async throws {
            let bench = try await IngestBench.realm()
            // This client takes a token for five seconds after its end.
            try await RealmProxy.with(bench, ["lifetime": -4]) { proxy in
                try await withDeviceFolder { folder in
                    let device = try await RealmDevice.start(in: folder, bench, through: proxy)
                    device.beginWriting(600, pause: 10)
                    try await Task.sleep(for: .seconds(3))
                    try await proxy.set(["cut": true])
                    try await device.waitUpload()
                    // A session that is open does not look at its token when it reconnects.
                    let chosen = try await proxy.handshakes.compactMap { $0["chosen"]?.string }
                    #expect(chosen.count == 2)
                    device.expectUnharmed()
                    await device.crash()

                    let again = try await RealmDevice.start(
                        in: folder,
                        bench,
                        through: proxy,
                        login: nil
                    )
                    try await again.writeMany(10, first: 600)
                    try await again.waitUpload()
                    #expect(try await proxy.requests.contains(Self.renewal))
                    #expect(try await again.ask(["cmd": "state"])["user"] == "loggedIn")
                    again.expectUnharmed()
                    await again.quit()
                }
            }
            try await bench.expectNumbered(610)
        }

        @Test(
            "A client whose handshake is refused with 401 in front of the service renews its token"
        )
        func refusedHandshake() async throws {
            let bench = try await IngestBench.realm()
            try await RealmProxy.with(bench) { proxy in
                try await withDeviceFolder { folder in
                    let device = try await RealmDevice.start(in: folder, bench, through: proxy)
                    try await device.writeMany(5)
                    try await device.waitUpload()
                    let before = try await proxy.requests.count
                    try await proxy.set(["refusals": 1, "status": 401, "cut": true])
                    try await device.writeMany(5, first: 5)
                    try await device.waitUpload()
                    let requests = try await proxy.requests.dropFirst(before)
                    let location = "GET /app/\(bench.app.id)/location 200"
                    #expect(requests.filter { $0 != location } == [Self.renewal])
                    #expect(try await device.ask(["cmd": "state"])["user"] == "loggedIn")
                    device.expectUnharmed()
                    await device.quit()
                }
            }
            try await bench.expectNumbered(10)
        }
    }
}
