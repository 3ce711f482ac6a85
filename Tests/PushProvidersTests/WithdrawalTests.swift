import Cryptography
import EventLoop
import HTTPServer
import JSON
import Observability
import PushCore
import Support
import Testing

@testable import PushProviders

@Suite("Lanes and withdrawal of notifications", .timeLimit(.minutes(1))) struct LanesAndWithdrawal {
    private let apns = ProviderClients.Key(
        app: "shop",
        provider: .apns,
        environment: .production,
        name: "com.example"
    )
    private let fcm = ProviderClients.Key(app: "shop", provider: .fcm)
    private let wns = ProviderClients.Key(app: "shop", provider: .wns)

    private static func secret() throws -> JSONObject {
        let credential = try APNsCredential(
            validatingKey: try SigningKey.generateP256().privateKeyPEM(),
            keyID: "KEY1234567",
            teamID: "TEAM123456",
            topic: "com.example"
        )
        return credential.secret
    }

    private static func secret(_ server: LocalServer) throws -> JSONObject {
        [
            "type": "service_account", "project_id": "demo",
            "private_key": .string(try SigningKey.generateRSA(bits: 2048).privateKeyPEM()),
            "client_email": "push@demo", "token_uri": .string(server.origin + "/token"),
        ]
    }

    @Test("A notification for one device overtakes a broadcast, and waiting ones can be withdrawn")
    func lanes() async throws {
        let secret = try Self.secret()
        let gate = Gate()
        try await Bench.run(streams: 1, change: { $0.http2Connections = 1 }) { _ in
            await gate.wait()
            return .empty(200)
        } _: { bench in
            let broadcast = try await bench.start(
                apns,
                secret,
                try deliveries(.apns, (0..<30).map { "ab\($0)" })
            )
            _ = try await eventually("a request") { bench.server.received.isEmpty ? nil : () }
            var urgent = try deliveries(.apns, ["cd"])
            urgent[0].isUrgent = true
            let single = try await bench.start(apns, secret, urgent)
            await gate.open()
            _ = try await eventually("its answer") { single.all(1) }
            _ = try await eventually("all") { broadcast.all(30) }
            let order = bench.server.received.map(\.path)
            #expect(order.prefix(2) == ["/3/device/ab0", "/3/device/cd"])
        }
    }

    @Test("A withdrawn notification was not sent, and is not sent later")
    func sent() async throws {
        let secret = try Self.secret()
        let gate = Gate()
        try await Bench.run(streams: 1, change: { $0.http2Connections = 1 }) { _ in
            await gate.wait()
            return .json(["reason": "ExpiredProviderToken"], status: 403)
        } _: { bench in
            let batch = try deliveries(.apns, (0..<30).map { "ab\($0)" })
            let answers = try await bench.start(apns, secret, batch)
            _ = try await eventually("a request") { bench.server.received.isEmpty ? nil : () }
            try await bench.withdrawAll()
            #expect(answers.indices.count == 29)
            await gate.open()
            let all = try await eventually("all") { answers.all(30) }
            #expect(all.dropFirst().allSatisfy { $0.outcome == .notSent })
            #expect(all.dropFirst().allSatisfy { $0.reason == "withdrawn" })
            // A request in flight is not repeated with a new token either.
            #expect(all[0].outcome == .notSent && all[0].status == 403)
            #expect(bench.server.received.count == 1)
        }
    }

    @Test("A notification that waits for an access token is withdrawn too")
    func token() async throws {
        let gate = Gate()
        try await Bench.run { request in
            if request.path == "/token" { await gate.wait() }
            return request.path == "/token"
                ? .json(["access_token": "t1", "expires_in": 3600])
                : .json(["name": "n"])
        } _: { bench in
            let secret = try Self.secret(bench.server)
            let batch = try deliveries(.fcm, (0..<20).map { "token-\($0)" })
            let early = try await bench.start(fcm, secret, batch)
            _ = try await eventually("the call for a token") {
                bench.server.received.isEmpty ? nil : ()
            }
            try await bench.withdrawAll()
            let late = try await bench.start(fcm, secret, try deliveries(.fcm, ["late"]))
            await gate.open()
            let all = try await eventually("all") { early.all(20) }
            #expect(all.allSatisfy { $0.outcome == .notSent && $0.reason == "withdrawn" })
            let answer = try await eventually("the late one") { late.all(1) }
            #expect(answer[0].outcome == .accepted)
            #expect(bench.server.received.count == 2)
        }
    }

    @Test("A notification that waits for a connection is withdrawn")
    func connection() async throws {
        let gate = Gate()
        try await Bench.run(change: { $0.wnsConnections = 1 }) { request in
            guard request.path.hasPrefix("/wns/") else {
                return .json(["access_token": "t", "expires_in": 86_400])
            }
            await gate.wait()
            return .empty(200)
        } _: { bench in
            let credential = try WNSCredential(validatingClientID: "a", clientSecret: "s")
            let batch = try deliveries(.wns, (0..<5).map { "\(bench.server.origin)/wns/\($0)" })
            let answers = try await bench.start(wns, credential.secret, batch)
            _ = try await eventually("a request") {
                bench.server.received.contains { $0.path == "/wns/0" } ? () : nil
            }
            try await bench.withdrawAll()
            #expect(answers.indices == [1, 2, 3, 4])
            await gate.open()
            let all = try await eventually("all") { answers.all(5) }
            #expect(all.dropFirst().allSatisfy { $0.outcome == .notSent })
            #expect(all[0].outcome == .accepted)
            #expect(bench.server.received.count == 2)
        }
    }
}
