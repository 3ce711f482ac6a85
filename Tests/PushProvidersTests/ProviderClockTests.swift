import Cryptography
import HTTPServer
import JSON
import PushCore
import Support
import Testing

@testable import PushProviders

@Suite("Clock skew is not the push's fault", .timeLimit(.minutes(1)))
struct ProviderClockTests {
    private let apns = ProviderClients.Key(
        app: "shop",
        provider: .apns,
        environment: .production,
        name: "com.example"
    )

    private func apnsSecret() throws -> (JSONObject, SigningKey) {
        let key = try SigningKey.generateP256()
        let credential = try APNsCredential(
            validatingKey: try key.privateKeyPEM(),
            keyID: "KEY1234567",
            teamID: "TEAM123456",
            topic: "com.example"
        )
        return (credential.secret, key)
    }

    private func fcmSecret(_ server: LocalServer) throws -> JSONObject {
        [
            "type": "service_account", "project_id": "demo",
            "private_key": .string(try SigningKey.generateRSA(bits: 2048).privateKeyPEM()),
            "client_email": "push@demo", "token_uri": .string(server.origin + "/token"),
        ]
    }

    /// Makes the clock of a host that is ahead of Postgres by this much.
    private func clock(aheadBy seconds: Int64) -> DatabaseClock {
        let clock = DatabaseClock(wall: { Instant.now().adding(milliseconds: seconds * 1000) })
        let now = MonotonicInstant.now()
        clock.measured(.now(), asked: now, answered: now)
        return clock
    }

    @Test("The iat of a token is Postgres' time on a host an hour ahead")
    func issuedAt() async throws {
        let (secret, signingKey) = try apnsSecret()
        try await Bench.run(clock: clock(aheadBy: 3600)) { _ in
            .empty(200)
        } _: { bench in
            let before = Instant.now().seconds
            _ = try await bench.send(apns, secret, try deliveries(.apns, ["ab"]))
            let bearer = try #require(bench.server.received.first?.header("authorization"))
            let token = String(bearer.dropFirst("bearer ".count))
            let (_, claims) = try JWT.verify(token) { _ in signingKey.verifyingKey }
            let issuedAt = try #require(claims["iat"]?.integer)
            #expect((before - 1...Instant.now().seconds).contains(Int64(issuedAt)))
        }
    }

    @Test(
        "A token from the future is not counted as an attempt if our clocks differ, and is reported"
    )
    func invalid() async throws {
        let (secret, _) = try apnsSecret()
        for (seconds, outcome) in [(-3600, ProviderOutcome.notSent), (0, .misconfigured)] {
            let clock = clock(aheadBy: Int64(seconds))
            try await Bench.run(clock: clock) { _ in
                .json(["reason": "InvalidProviderToken"], status: 403)
            } _: { bench in
                let answers = try await bench.send(
                    apns,
                    secret,
                    try deliveries(.apns, (0..<20).map { "ab\($0)" })
                )
                #expect(answers.allSatisfy { $0.outcome == outcome && $0.status == 403 })
                #expect(answers.allSatisfy { $0.reason == "InvalidProviderToken" })
                #expect((clock.warning != nil) == (outcome == .notSent))
            }
        }
    }

    @Test("A new token that is called expired is not counted as an attempt, and is reported")
    func expired() async throws {
        let (secret, _) = try apnsSecret()
        let clock = clock(aheadBy: 0)
        try await Bench.run(clock: clock) { _ in
            .json(["reason": "ExpiredProviderToken"], status: 403)
        } _: { bench in
            let answers = try await bench.send(apns, secret, try deliveries(.apns, ["ab"]))
            #expect(answers.map(\.outcome) == [.notSent])
            #expect(clock.warning == "apns refuses tokens for their time: check Postgres' clock")
        }
    }

    @Test("Google's complaint about iat and exp does not fail the push, and is reported")
    func grant() async throws {
        let clock = clock(aheadBy: 0)
        try await Bench.run(clock: clock) { _ in
            .json(
                [
                    "error": "invalid_grant",
                    "error_description": .string(
                        "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable"
                            + " timeframe. Check your iat and exp values in the JWT claim."
                    ),
                ],
                status: 400
            )
        } _: { bench in
            let answers = try await bench.send(
                ProviderClients.Key(app: "shop", provider: .fcm),
                try fcmSecret(bench.server),
                try deliveries(.fcm, ["a", "b"])
            )
            #expect(answers.allSatisfy { $0.outcome == .notSent })
            #expect(
                answers[0].reason == "token endpoint: invalid_grant: iat or exp, by our clock"
            )
            #expect(clock.warning == "fcm refuses tokens for their time: check Postgres' clock")
        }
    }
}
