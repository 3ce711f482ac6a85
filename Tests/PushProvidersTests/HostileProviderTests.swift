import Cryptography
import EventLoop
import Foundation
import HTTPServer
import JSON
import PushCore
import Support
import Testing

@testable import PushProviders

@Suite("Hostile providers", .timeLimit(.minutes(2))) struct HostileProviders {
    private static func apnsSecret(_ topic: String) throws -> JSONObject {
        try APNsCredential(
            validatingKey: try SigningKey.generateP256().privateKeyPEM(),
            keyID: "KEY1234567",
            teamID: "TEAM123456",
            topic: topic
        ).secret
    }

    private static func apnsKey(
        _ app: String,
        _ environment: PushEnvironment = .production
    ) -> ProviderClients.Key {
        ProviderClients.Key(
            app: app,
            provider: .apns,
            environment: environment,
            name: "com.example"
        )
    }

    /// An answer and the outcome that it must have.
    private struct Case: Sendable {
        var response: HTTPServerResponse
        var outcomes: [ProviderOutcome]
    }

    private static let longest = Duration.seconds(86_400)
    private static let past: Int64 = 1_700_000_000_000

    private static let cases: [Case] = {
        func gone(_ timestamp: String) -> HTTPServerResponse {
            let body = "{\"reason\": \"Unregistered\", \"timestamp\": \(timestamp)}"
            return HTTPServerResponse(status: 410, body: Array(body.utf8))
        }
        func busy(_ retryAfter: String) -> HTTPServerResponse {
            HTTPServerResponse(status: 429, headers: ["retry-after": retryAfter])
        }
        let noTimes = [
            "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-1", "0",
            "1e308", "-1e308", "1e999", "1700000000000000000", "253402300799999", "0.5", "null",
            "\"1700000000000\"", "[]", "{}",
        ]
        var cases = noTimes.map {
            Case(response: gone($0), outcomes: [.unregistered(since: nil)])
        }
        cases.append(
            Case(response: gone("\(past)"), outcomes: [.unregistered(since: past)])
        )
        let waits: [(String, Duration?)] = [
            ("-1", nil), ("1e300", nil), ("0x10", nil), ("nan", nil), ("５", nil), ("", nil),
            ("0", .zero), ("7", .seconds(7)), ("86401", longest),
            ("9223372036854775807", longest), ("99999999999999999999999999", longest),
            ("Fri, 31 Dec 9999 23:59:59 GMT", longest), ("Fri, 31 Dec 99999 23:59:59 GMT", nil),
            ("Mon, 01 Jan 0001 00:00:00 GMT", .zero), ("Sun, 06 Nov 1994 08:49:37 GMT", .zero),
        ]
        cases += waits.map {
            Case(response: busy($0.0), outcomes: [.unavailable(retryAfter: $0.1)])
        }
        let bodies: [[UInt8]] = [
            [], [0], Array("null".utf8), Array("{".utf8), [0xFF, 0xFE],
            Array(String(repeating: "[", count: 100_000).utf8),
            Array(("{\"reason\":" + String(repeating: "{\"a\":", count: 50_000)).utf8),
            Array("{\"reason\": \"e\(String(repeating: "\u{301}", count: 60_000))\"}".utf8),
        ]
        cases += bodies.map {
            Case(response: HTTPServerResponse(status: 400, body: $0), outcomes: [.rejected])
        }
        cases.append(
            Case(
                response: HTTPServerResponse(
                    status: 400,
                    body: [UInt8](repeating: 0x20, count: 400_000)
                ),
                outcomes: [.noAnswer]
            )
        )
        return cases
    }()

    @Test("Timestamps, waits and bodies at every edge give one outcome each, without a crash")
    func answers() async throws {
        let secret = try Self.apnsSecret("com.example")
        let cases = Self.cases
        try await Bench.run { request in
            let name = request.path.dropFirst("/3/device/ab".count)
            return cases[Int(name) ?? 0].response
        } _: { bench in
            let batch = try deliveries(.apns, cases.indices.map { "ab\($0)" })
            let answers = try await bench.send(Self.apnsKey("shop"), secret, batch)
            for (answer, expected) in zip(answers, cases) {
                #expect(
                    expected.outcomes.contains(answer.outcome),
                    "\(expected.response.headers) \(expected.response.body.prefix(60))"
                )
                #expect(answer.reason?.utf8.count ?? 0 <= 200)
            }
        }
    }

    @Test("APNs without streams leaves its deliveries unsent and does not delay other connections")
    func noStreams() async throws {
        let secret = try Self.apnsSecret("com.example")
        try await FramePeer.run { connection, event in
            if case .opened = event { connection.write(.settings((3, 0))) }
        } _: { peer, _ in
            let both =
                FileManager.default.temporaryDirectory.path + "/"
                + TestEnvironment.unique("both-") + ".pem"
            defer { try? FileManager.default.removeItem(atPath: both) }
            try await Bench.run {
                $0.apnsProductionURL = peer.origin
                let files = [$0.caFile ?? "", peer.caFile]
                let texts = files.compactMap { try? String(contentsOfFile: $0, encoding: .utf8) }
                try? texts.joined(separator: "\n").write(
                    toFile: both,
                    atomically: true,
                    encoding: .utf8
                )
                $0.caFile = both
            } handler: { _ in
                .empty(200)
            } _: { bench in
                let start = ContinuousClock.now
                let stalled = try await bench.start(
                    Self.apnsKey("stalled"),
                    secret,
                    try deliveries(.apns, (0..<50).map { "ab\($0)" })
                )
                var rounds = 0
                while stalled.all(50) == nil {
                    let answers = try await bench.send(
                        Self.apnsKey("quick", .sandbox),
                        secret,
                        try deliveries(.apns, ["ab1", "ab2"])
                    )
                    #expect(answers.allSatisfy { $0.outcome == .accepted })
                    rounds += 1
                    await bench.loop.pause(.milliseconds(200))
                }
                let all = try #require(stalled.all(50))
                #expect(all.allSatisfy { $0.outcome == .notSent })
                #expect(rounds > 3 && .now - start < .seconds(15))
                #expect((1...4).contains(peer.connections))
            }
        }
    }

    @Test("The time for an answer counts from the hand-over, including the wait for a token")
    func tokenWait() async throws {
        let gate = Gate()
        try await Bench.run {
            $0.requestTimeout = .seconds(4)
        } handler: { request in
            if request.path == "/token" {
                await gate.wait()
                return .json(["access_token": "t1", "expires_in": 3600])
            }
            return HTTPServerResponse(status: 200, ending: { _ in })
        } _: { bench in
            let secret: JSONObject = [
                "type": "service_account", "project_id": "p", "client_email": "push@p",
                "private_key": .string(try SigningKey.generateRSA(bits: 2048).privateKeyPEM()),
                "token_uri": .string(bench.server.origin + "/token"),
            ]
            let start = ContinuousClock.now
            let key = ProviderClients.Key(app: "a", provider: .fcm)
            let answers = try await bench.start(key, secret, try deliveries(.fcm, ["t"]))
            await bench.loop.pause(.milliseconds(2400))
            await gate.open()
            let all = try await eventually("an answer") { answers.all(1) }
            // A slow machine may not have made the connection by then.
            #expect(all.allSatisfy { [.noAnswer, .notSent].contains($0.outcome) })
            #expect(.now - start < .seconds(6))
        }
    }

    @Test("A delivery that waits in the queue beyond its deadline is not sent")
    func line() {
        let queue = NotificationQueue(limit: 1, timeout: .zero)
        var started = 0
        queue.start = { _ in started += 1 }
        let answers = Answers()
        queue.add([Self.one, Self.one]) { answers.add($0, $1) }
        #expect(started == 0 && queue.count == 0)
        #expect(answers.all(2)?.allSatisfy { $0.outcome == .notSent } == true)
    }

    private static let one = OutgoingNotification(
        notificationID: "1",
        target: DeviceTarget(provider: .wns, token: "t"),
        payload: RenderedPayload(platform: .wns, headers: [], body: [], repeatOverwrites: true)
    )

    @Test("A delivery waits in a moving queue, and one that leaves it late still has time")
    func movingLine() async throws {
        let queue = NotificationQueue(limit: 1, timeout: .seconds(1))
        var started: [QueuedNotification] = []
        queue.start = { started.append($0) }
        let answers = Answers()
        queue.add([Self.one, Self.one]) { answers.add($0, $1) }
        try await Task.sleep(for: .milliseconds(1100))
        for turn in 0..<2 {
            try #require(started.count == turn + 1)
            queue.finish(started[turn], ProviderAnswer(.accepted, status: 201))
        }
        #expect(answers.all(2)?.allSatisfy { $0.outcome == .accepted } == true)
    }

    @Test("A provider's text is cut by bytes, whatever its characters")
    func words() {
        for text in ["e" + String(repeating: "\u{301}", count: 1000), "é", "\u{1F600}"] {
            let long = String(repeating: text, count: 300)
            let answer = ProviderAnswer(.rejected, reason: long, providerMessageID: long)
            let (reason, id) = (answer.reason ?? "", answer.providerMessageID ?? "")
            #expect((197...200).contains(reason.utf8.count) && (297...300).contains(id.utf8.count))
            #expect(long.utf8.starts(with: reason.utf8) && long.utf8.starts(with: id.utf8))
        }
    }
}

extension EventLoop {
    fileprivate nonisolated func pause(_ time: Duration) async {
        await withCheckedContinuation { continuation in
            execute { self.schedule(after: time) { continuation.resume() } }
        }
    }
}
