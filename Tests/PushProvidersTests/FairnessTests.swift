import Cryptography
import HTTPServer
import JSON
import PushCore
import Support
import Testing

@testable import PushProviders

/// Apps that share a provider's connections, one of which floods it and is never answered.
@Suite("Fairness beside an app that hangs", .timeLimit(.minutes(1))) struct SharedConnections {
    private func send(
        _ provider: Platform,
        _ secrets: (slow: JSONObject, quick: JSONObject),
        tokens: (slow: [String], quick: [String]),
        hangs: @escaping @Sendable () -> Int,
        through bench: Bench,
        _ gate: Gate
    ) async throws {
        let slowKey = ProviderClients.Key(app: "slow", provider: provider)
        let quickKey = ProviderClients.Key(app: "quick", provider: provider)
        let slow = try await bench.start(
            slowKey,
            secrets.slow,
            try deliveries(provider, tokens.slow)
        )
        _ = try await eventually("some that hang") { hangs() >= 6 ? () : nil }
        // It sends as many as it likes, one after the other and at once.
        for _ in 0..<3 {
            let answers = try await bench.send(
                quickKey,
                secrets.quick,
                try deliveries(provider, tokens.quick)
            )
            #expect(answers.allSatisfy { $0.outcome == .accepted })
        }
        #expect(slow.indices.isEmpty && hangs() == 6)
        await gate.open()
        let all = try await eventually("the slow app's") { slow.all(tokens.slow.count) }
        #expect(all.allSatisfy { $0.outcome == .accepted })
    }

    @Test("FCM: a project that hangs leaves streams and queue space for another app's")
    func fcm() async throws {
        let gate = Gate()
        try await Bench.run(streams: 8) {
            $0.http2Connections = 1
        } handler: { request in
            if request.path == "/token" {
                return .json(["access_token": "t1", "expires_in": 3600])
            }
            if request.path.contains("slow") { await gate.wait() }
            return .json(["name": "projects/p/messages/1"])
        } _: { bench in
            func secret(_ project: String) throws -> JSONObject {
                [
                    "type": "service_account", "project_id": .string(project),
                    "private_key": .string(
                        try SigningKey.generateRSA(bits: 2048).privateKeyPEM()
                    ),
                    "client_email": .string("push@\(project)"),
                    "token_uri": .string(bench.server.origin + "/token"),
                ]
            }
            let server = bench.server
            try await send(
                .fcm,
                (try secret("slow"), try secret("quick")),
                tokens: ((0..<500).map { "a\($0)" }, (0..<20).map { "b\($0)" }),
                hangs: { server.received.count { $0.path.contains("slow") } },
                through: bench,
                gate
            )
        }
    }

    @Test("WNS: an app whose channels hang leaves connections for another's")
    func wns() async throws {
        let gate = Gate()
        try await Bench.run {
            $0.wnsConnections = 6
        } handler: { request in
            if !request.path.hasPrefix("/wns/") {
                return .json(["access_token": "t1", "expires_in": "86400"])
            }
            if request.path.contains("slow") { await gate.wait() }
            return HTTPServerResponse(status: 200, headers: ["X-WNS-STATUS": "received"])
        } _: { bench in
            func secret(_ name: String) throws -> JSONObject {
                try WNSCredential(validatingClientID: "ms-app://\(name)", clientSecret: "s").secret
            }
            let server = bench.server
            let channels = "\(server.origin)/wns/"
            try await send(
                .wns,
                (try secret("slow"), try secret("quick")),
                tokens: (
                    (0..<100).map { "\(channels)slow\($0)" },
                    (0..<20).map { "\(channels)quick\($0)" }
                ),
                hangs: { server.received.count { $0.path.contains("slow") } },
                through: bench,
                gate
            )
        }
    }

    @Test("Shared connections rotate among the waiting apps, and no app gets all")
    func turns() {
        final class Client {
            let queue: NotificationQueue
            var started: [QueuedNotification] = []
            init(_ share: ConnectionShare) {
                queue = NotificationQueue(limit: 100, of: share)
                queue.start = { [unowned self] in started.append($0) }
            }
        }
        let share = ConnectionShare(8)
        let clients = (0..<3).map { _ in Client(share) }
        let one = OutgoingNotification(
            notificationID: "1",
            target: DeviceTarget(provider: .wns, token: "t"),
            payload: RenderedPayload(platform: .wns, headers: [], body: [], repeatOverwrites: true)
        )
        for client in clients {
            client.queue.add(Array(repeating: one, count: 40)) { _, _ in }
        }
        #expect(clients.map(\.queue.inFlight) == [6, 2, 0])
        // The first app's connections end, and the waiting ones take turns.
        for _ in 0..<6 {
            clients[0].queue.finish(clients[0].started[0], ProviderAnswer(.accepted))
        }
        #expect(clients.allSatisfy { $0.queue.inFlight > 0 })
        #expect(clients.reduce(0) { $0 + $1.queue.inFlight } == 8)
        while let busy = clients.first(where: { $0.queue.inFlight > 0 }) {
            busy.queue.finish(busy.started[0], ProviderAnswer(.accepted))
        }
        #expect(clients.allSatisfy { $0.queue.count == 0 && $0.started.count == 40 })
    }
}
