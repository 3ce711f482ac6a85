import Cryptography
import EventLoop
import HTTPServer
import JSON
import Observability
import PushCore
import Support
import Testing

@testable import PushProviders

/// Counters by name, usable from any thread.
private final class Counts: @unchecked Sendable {
    private let lock = Lock()
    private var counts: [String: Int] = [:]

    /// Adds one and returns the count before.
    @discardableResult
    func add(_ name: String) -> Int {
        lock.withLock {
            defer { counts[name, default: 0] += 1 }
            return counts[name, default: 0]
        }
    }

    subscript(name: String) -> Int { lock.withLock { counts[name, default: 0] } }
}

@Suite("APNs client", .timeLimit(.minutes(1))) struct APNsClients {
    private static func secret() throws -> (JSONObject, SigningKey) {
        let key = try SigningKey.generateP256()
        let credential = try APNsCredential(
            validatingKey: try key.privateKeyPEM(),
            keyID: "KEY1234567",
            teamID: "TEAM123456",
            topic: "com.example"
        )
        return (credential.secret, key)
    }

    private let key = ProviderClients.Key(
        app: "shop",
        provider: .apns,
        environment: .production,
        name: "com.example"
    )

    private func bearers(_ server: LocalServer) -> Set<String> {
        Set(server.received.compactMap { $0.header("authorization") })
    }

    @Test("One token serves every connection of a key, in both environments and after a change")
    func oneToken() async throws {
        let (secret, signingKey) = try Self.secret()
        try await Bench.run { _ in
            .empty(200)
        } _: { bench in
            var sandbox = key
            sandbox.environment = .sandbox
            let batch = try deliveries(.apns, (0..<50).map { "ab\($0)" })
            let uses: [(ProviderClients.Key, Int64)] = [(key, 1), (sandbox, 1), (key, 2)]
            for (key, version) in uses {
                let answers = try await bench.send(key, secret, batch, version: version)
                #expect(answers.allSatisfy { $0.outcome == .accepted })
            }
            #expect(bench.server.received.count == 150)
            let bearers = bearers(bench.server)
            #expect(bearers.count == 1)
            let token = try #require(bearers.first).dropFirst("bearer ".count)
            _ = try JWT.verify(String(token)) { _ in signingKey.verifyingKey }
            let paths = Set(bench.server.received.map(\.path))
            #expect(paths.count == 50 && paths.contains("/3/device/ab7"))
            #expect(bench.server.received.allSatisfy { $0.protocolVersion == .http2 })
        }
    }

    @Test("Pushes that differ only in their headers each have their own")
    func ownHeaders() async throws {
        let (secret, _) = try Self.secret()
        try await Bench.run { _ in
            .empty(200)
        } _: { bench in
            var batch = try deliveries(.apns, (0..<6).map { "ab\($0)" })
            for index in batch.indices {
                for place in batch[index].payload.headers.indices
                where batch[index].payload.headers[place].name == "apns-collapse-id" {
                    batch[index].payload.headers[place].value = "c\(index / 2)"
                }
                batch[index].expiration = index < 3 ? nil : 1_700_000_000 + Int64(index)
            }
            let answers = try await bench.send(key, secret, batch)
            #expect(answers.allSatisfy { $0.outcome == .accepted })
            #expect(bench.server.received.count == 6)
            for request in bench.server.received {
                let index = try #require(Int(request.path.suffix(1)))
                #expect(request.header("apns-id") == "id-ab\(index)")
                #expect(request.header("apns-collapse-id") == "c\(index / 2)")
                let expiration = index < 3 ? nil : "\(1_700_000_000 + index)"
                #expect(request.header("apns-expiration") == expiration)
            }
        }
    }

    @Test("An ExpiredProviderToken leads to a new token, a new connection and one repeat")
    func expiredToken() async throws {
        let (secret, _) = try Self.secret()
        let counts = Counts()
        let wedged = Counts()
        try await Bench.run { request in
            // The first connection rejects any token.
            let isFirst = counts.add("requests") == 0
            if isFirst { wedged.add("\(request.connectionID)") }
            guard wedged["\(request.connectionID)"] > 0 else { return .empty(200) }
            return .json(["reason": "ExpiredProviderToken"], status: 403)
        } _: { bench in
            let batch = try deliveries(.apns, (0..<20).map { "ab\($0)" })
            let answers = try await bench.send(key, secret, batch)
            #expect(answers.allSatisfy { $0.outcome == .accepted })
            // ES256 signatures are random, so a new token is another string.
            #expect(bearers(bench.server).count == 2)
        }
    }

    @Test("A token that is called expired repeatedly is not signed again each time")
    func alwaysExpired() async throws {
        let (secret, _) = try Self.secret()
        try await Bench.run { _ in
            .json(["reason": "ExpiredProviderToken"], status: 403)
        } _: { bench in
            let batch = try deliveries(.apns, (0..<20).map { "ab\($0)" })
            for _ in 0..<3 {
                let answers = try await bench.send(key, secret, batch)
                #expect(answers.allSatisfy { $0.outcome == .notSent })
            }
            #expect(bearers(bench.server).count == 2)
        }
    }

    @Test("Each delivery gets the answer for its own token")
    func answers() async throws {
        let (secret, _) = try Self.secret()
        try await Bench.run { request in
            switch request.pathSegments.last {
            case "dead":
                .json(["reason": "Unregistered", "timestamp": 5], status: 410)
            case "bad": .json(["reason": "BadDeviceToken"], status: 400)
            default: HTTPServerResponse(status: 200, headers: ["apns-id": "X"])
            }
        } _: { bench in
            var batch = try deliveries(.apns, ["ok", "dead", "bad", "bad", "../../x", ""])
            batch[3].target.environmentIsExplicit = true
            let answers = try await bench.send(key, secret, batch)
            #expect(
                answers.map(\.outcome) == [
                    .accepted, .unregistered(since: 5000), .rejected, .unregistered(since: nil),
                    .rejected, .rejected,
                ]
            )
            #expect(answers[0].providerMessageID == "X")
            #expect(bench.server.received.count == 4)
        }
    }

    @Test("An unreachable provider leaves deliveries unsent")
    func away() async throws {
        let (secret, _) = try Self.secret()
        let loop = try EventLoop(name: "client")
        var configuration = ProviderConfiguration()
        // Nothing listens on port 1.
        configuration.apnsProductionURL = "https://127.0.0.1:1"
        let directory = try ProviderClients(configuration, on: loop)
        let answers = Answers()
        let batch = try deliveries(.apns, ["ab"])
        try await loop.onLoop { [key] in
            try directory.client(for: key, version: 1) { secret }
                .send(batch) { answers.add($0, $1) }
        }
        let answer = try await eventually("an answer") { answers.all(1) }
        #expect(answer.map(\.outcome) == [.notSent])
        try await loop.onLoop { directory.close() }
        await loop.stop()
    }

    @Test(
        "Closing answers everything: sent deliveries are in doubt, and waiting ones were not sent"
    )
    func closing() async throws {
        let (secret, _) = try Self.secret()
        try await Bench.run { _ in
            HTTPServerResponse(status: 200, ending: { _ in })
        } _: { bench in
            let answers = Answers()
            let batch = try deliveries(.apns, (0..<1500).map { "ab\($0)" })
            try await bench.loop.onLoop { [key] in
                try bench.directory.client(for: key, version: 1) { secret }
                    .send(batch) { answers.add($0, $1) }
            }
            _ = try await eventually("a request") {
                bench.server.received.isEmpty ? nil : ()
            }
            try await bench.loop.onLoop { bench.directory.close() }
            let all = try await eventually("all answers") { answers.all(1500) }
            #expect(Set(all.map(\.outcome)) == [.noAnswer, .notSent])
            #expect(answers.indices.count == 1500)
        }
    }

    @Test("A client is reused until its credential changes, and a bad credential names its field")
    func directory() async throws {
        let (secret, _) = try Self.secret()
        try await Bench.run { _ in
            .empty(200)
        } _: { bench in
            try await bench.loop.onLoop { [key] in
                let first = try bench.directory.client(for: key, version: 1) { secret }
                let again = try bench.directory.client(for: key, version: 1) { [:] }
                #expect(first === again)
                let changed = try bench.directory.client(for: key, version: 2) { secret }
                #expect(first !== changed)
                #expect(throws: CredentialError("key", "is missing")) {
                    try bench.directory.client(for: key, version: 3) { [:] }
                }
            }
        }
    }
}

@Suite("FCM client", .timeLimit(.minutes(1))) struct FCMClients {
    private let key = ProviderClients.Key(app: "shop", provider: .fcm)

    private func secret(_ server: LocalServer) throws -> JSONObject {
        [
            "type": "service_account", "project_id": "demo",
            "private_key": .string(try SigningKey.generateRSA(bits: 2048).privateKeyPEM()),
            "client_email": "push@demo", "token_uri": .string(server.origin + "/token"),
        ]
    }

    @Test("A batch fetches only one access token")
    func singleFlight() async throws {
        try await Bench.run { request in
            request.path == "/token"
                ? .json(["access_token": "t1", "expires_in": 3600])
                : .json(["name": "projects/demo/messages/1"])
        } _: { bench in
            let batch = try deliveries(.fcm, (0..<100).map { "token-\($0)" })
            let answers = try await bench.send(key, try secret(bench.server), batch)
            #expect(answers.allSatisfy { $0.outcome == .accepted })
            #expect(answers[7].providerMessageID == "projects/demo/messages/1")
            let paths = bench.server.received.map(\.path)
            #expect(paths.filter { $0 == "/token" }.count == 1)
            #expect(paths.filter { $0 == "/v1/projects/demo/messages:send" }.count == 100)
            let sent = bench.server.received.filter { $0.path != "/token" }
            #expect(sent.allSatisfy { $0.header("authorization") == "Bearer t1" })
            let tokens = sent.compactMap {
                (try? JSONValue.parse($0.body))?["message"]?["token"]?.string
            }
            #expect(Set(tokens) == Set((0..<100).map { "token-\($0)" }))
        }
    }

    @Test("A 401 renews the access token once and sends again")
    func renewal() async throws {
        let counts = Counts()
        try await Bench.run { request in
            guard request.path != "/token" else {
                let number = counts.add("tokens")
                return .json(["access_token": .string("t\(number)"), "expires_in": 3600])
            }
            return request.header("authorization") == "Bearer t0"
                ? .json(["error": ["status": "UNAUTHENTICATED"]], status: 401)
                : .json(["name": "n"])
        } _: { bench in
            let secret = try secret(bench.server)
            let batch = try deliveries(.fcm, (0..<20).map { "token-\($0)" })
            let answers = try await bench.send(key, secret, batch)
            #expect(answers.allSatisfy { $0.outcome == .accepted })
            #expect(counts["tokens"] == 2)
        }
    }

    @Test("A 401 after the renewal is the credential's fault")
    func stillUnauthenticated() async throws {
        let counts = Counts()
        try await Bench.run { request in
            guard request.path != "/token" else {
                counts.add("tokens")
                return .json(["access_token": "t", "expires_in": 3600])
            }
            return .empty(401)
        } _: { bench in
            let secret = try secret(bench.server)
            for _ in 0..<3 {
                let answers = try await bench.send(key, secret, try deliveries(.fcm, ["a", "b"]))
                #expect(answers.allSatisfy { $0.outcome == .misconfigured && $0.status == 401 })
            }
            #expect(counts["tokens"] == 2)
        }
    }

    @Test("A revoked key fails all deliveries after one request")
    func revoked() async throws {
        try await Bench.run { _ in
            .json(["error": "invalid_grant"], status: 400)
        } _: { bench in
            let secret = try secret(bench.server)
            for _ in 0..<2 {
                let batch = try deliveries(.fcm, (0..<50).map { "token-\($0)" })
                let answers = try await bench.send(key, secret, batch)
                #expect(answers.allSatisfy { $0.outcome == .misconfigured })
                #expect(answers[0].reason == "token endpoint: invalid_grant")
            }
            #expect(bench.server.received.count == 1)
        }
    }
}

@Suite("WNS client", .timeLimit(.minutes(1))) struct WNSClients {
    private let key = ProviderClients.Key(app: "shop", provider: .wns)

    @Test(
        "Both token flows work, with the headers that WNS requires and one renewal",
        arguments: [true, false]
    )
    func send(hasTenant: Bool) async throws {
        let counts = Counts()
        try await Bench.run { request in
            if request.path.hasPrefix("/wns/") {
                return request.header("authorization") == "Bearer t0"
                    ? .empty(401)
                    : HTTPServerResponse(
                        status: 200,
                        headers: ["X-WNS-STATUS": "received", "X-WNS-Msg-ID": "M"]
                    )
            }
            let number = counts.add(request.path)
            return .json(["access_token": .string("t\(number)"), "expires_in": "86400"])
        } _: { bench in
            let credential = try WNSCredential(
                validatingClientID: "ms-app://s-1",
                clientSecret: "s",
                tenant: hasTenant ? "contoso" : nil
            )
            let batch = try deliveries(
                .wns,
                (0..<5).map { "\(bench.server.origin)/wns/\($0)?token=a%2Bb" }
            )
            let answers = try await bench.send(key, credential.secret, batch)
            #expect(answers.allSatisfy { $0.outcome == .accepted && $0.providerMessageID == "M" })
            let path = hasTenant ? "/contoso/oauth2/v2.0/token" : "/accesstoken.srf"
            #expect(counts[path] == 2)
            let sent = try #require(
                bench.server.received.last { $0.path.hasPrefix("/wns/") }
            )
            #expect(sent.protocolVersion == .http11)
            #expect(sent.rawTarget.hasSuffix("?token=a%2Bb"))
            #expect(sent.header("x-wns-type") == "wns/toast")
            #expect(sent.header("content-type") == "text/xml")
            #expect(sent.header("content-length") == "\(sent.body.count)")
        }
    }

    @Test("A channel on another host is never called and gets no token")
    func channelHosts() async throws {
        try await Bench.run { _ in
            .json(["access_token": "t", "expires_in": 86_400])
        } _: { bench in
            let credential = try WNSCredential(validatingClientID: "a", clientSecret: "s")
            let batch = try deliveries(
                .wns,
                [
                    "https://evil.example/wns/1", "\(bench.server.origin)/other",
                    "http://localhost:\(bench.server.port)/wns/1", "https://169.254.169.254/wns/",
                    "nonsense",
                ]
            )
            let answers = try await bench.send(key, credential.secret, batch)
            #expect(answers.allSatisfy { $0.outcome == .rejected })
            #expect(bench.server.received.isEmpty)
        }
    }
}
