import Cryptography
import HTTPTransport
import JSON
import PushCore
import Testing

@testable import PushProviders

@Suite("APNs provider token", .timeLimit(.minutes(1))) struct APNsTokens {
    @Test("A token is used for 50 minutes, then a new one is signed")
    func lifetime() {
        var rule = APNsTokenPolicy()
        #expect(rule.decision(at: 1000) == .sign)
        rule.signed("a", at: 1000)
        for age: Int64 in [0, 60, 1200, 2999] {
            #expect(rule.decision(at: 1000 + age) == .use("a"))
        }
        #expect(rule.decision(at: 1000 + 3000) == .sign)
        rule.signed("b", at: 4000)
        #expect(rule.decision(at: 4001) == .use("b"))
    }

    @Test("An expired token is replaced at once, but no more than once in 20 minutes")
    func expired() {
        var rule = APNsTokenPolicy()
        rule.signed("a", at: 0)
        rule.expired("a", at: 10)
        #expect(rule.decision(at: 10) == .sign)
        rule.signed("b", at: 10)
        // These are answers to the other requests that had the old one.
        rule.expired("a", at: 11)
        #expect(rule.decision(at: 11) == .use("b"))
        // With a wrong clock the new one is called expired too.
        rule.expired("b", at: 12)
        #expect(rule.decision(at: 12) == .use("b"))
        rule.expired("b", at: 10 + 1200)
        #expect(rule.decision(at: 10 + 1200) == .sign)
    }

    @Test("No token is signed for 20 minutes after TooManyProviderTokenUpdates")
    func tooManyUpdates() {
        var rule = APNsTokenPolicy()
        rule.signed("a", at: 0)
        rule.tooManyUpdates(at: 2900)
        #expect(rule.decision(at: 3100) == .use("a"))
        rule.expired("a", at: 3200)
        #expect(rule.decision(at: 3200) == .use("a"))
        #expect(rule.decision(at: 2900 + 1200) == .sign)
    }

    @Test("A clock that was set back signs a new token instead of sending a time in the future")
    func clockSetBack() {
        var rule = APNsTokenPolicy()
        rule.signed("a", at: 10_000)
        #expect(rule.decision(at: 9990) == .use("a"))
        #expect(rule.decision(at: 5000) == .sign)
    }

    @Test("A token has the claims that Apple requires, and its signature is valid")
    func claims() throws {
        let key = try SigningKey.generateP256()
        let source = APNsTokenSource(key: key, keyID: "KEY1234567", teamID: "TEAM123456") {
            Instant(seconds: 1_700_000_000)
        }
        let token = try source.token()
        #expect(try source.token() == token)
        #expect(source.signatures == 1)
        let (header, claims) = try JWT.verify(token) { _ in key.verifyingKey }
        #expect(header["alg"] == "ES256" && header["kid"] == "KEY1234567")
        #expect(claims == ["iss": "TEAM123456", "iat": 1_700_000_000])
    }
}

@Suite("OAuth access tokens", .timeLimit(.minutes(1))) struct AccessTokens {
    let hour: Int64 = 3_600_000

    @Test("All waiting calls share one fetch, and a renewal begins while the old token is used")
    func singleFlight() {
        var rule = AccessTokenPolicy()
        #expect(rule.decision(at: 0) == .waitAndFetch)
        #expect(rule.decision(at: 1) == .wait)
        rule.fetched("a", lifetimeSeconds: 3600, at: 100)
        #expect(rule.decision(at: 100) == .use("a"))
        #expect(rule.decision(at: 100 + hour - 300_001) == .use("a"))
        #expect(rule.decision(at: 100 + hour - 300_000) == .useAndFetch("a"))
        #expect(rule.decision(at: 100 + hour - 299_999) == .use("a"))
        rule.fetched("b", lifetimeSeconds: 3600, at: hour)
        #expect(rule.decision(at: hour + 1) == .use("b"))
    }

    @Test("An expired token is waited for")
    func ended() {
        var rule = AccessTokenPolicy()
        _ = rule.decision(at: 0)
        rule.fetched("a", lifetimeSeconds: 3600, at: 0)
        #expect(rule.decision(at: hour) == .waitAndFetch)
    }

    @Test("A short-lived token is renewed at half its life, not continually")
    func shortLived() {
        var rule = AccessTokenPolicy()
        _ = rule.decision(at: 0)
        rule.fetched("a", lifetimeSeconds: 60, at: 0)
        #expect(rule.decision(at: 29_999) == .use("a"))
        #expect(rule.decision(at: 30_000) == .useAndFetch("a"))
    }

    @Test("A refused grant is not retried in a loop")
    func refused() {
        var rule = AccessTokenPolicy()
        _ = rule.decision(at: 0)
        let refusal = TokenRefusal(outcome: .misconfigured, reason: "invalid_grant")
        rule.failed(refusal, at: 0)
        #expect(rule.decision(at: 59_999) == .refuse(refusal))
        #expect(rule.decision(at: 60_000) == .waitAndFetch)
    }

    @Test("A silent endpoint is retried after 1, 2, 4 … 60 seconds, or at the time that it sets")
    func backoff() {
        var rule = AccessTokenPolicy()
        var time: Int64 = 0
        let refusal = TokenRefusal(outcome: .unavailable(retryAfter: nil), reason: "503")
        for wait: Int64 in [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000] {
            #expect(rule.decision(at: time) == .waitAndFetch)
            rule.failed(refusal, at: time)
            #expect(rule.decision(at: time + wait - 1) == .refuse(refusal))
            time += wait
        }
        #expect(rule.decision(at: time) == .waitAndFetch)
        rule.failed(
            TokenRefusal(outcome: .unavailable(retryAfter: .seconds(90)), reason: "503"),
            at: time
        )
        guard case .refuse = rule.decision(at: time + 89_999) else {
            Issue.record("asked before the time that Retry-After named")
            return
        }
        #expect(rule.decision(at: time + 90_000) == .waitAndFetch)
    }

    @Test("An endpoint's number at any edge gives a token life of a day at most")
    func endpointsNumbers() {
        let day: Int64 = 86_400_000
        for number in [Int64.min, -1, 0, 1, 86_400, 86_401, .max / 1000, .max / 1000 + 1, .max] {
            var rule = AccessTokenPolicy()
            _ = rule.decision(at: 0)
            let outcome = ProviderOutcome.unavailable(retryAfter: .seconds(number))
            rule.failed(TokenRefusal(outcome: outcome, reason: "503"), at: 0)
            #expect(rule.decision(at: day) == .waitAndFetch)
            rule.fetched("a", lifetimeSeconds: Int(number), at: day)
            #expect(rule.decision(at: day) == .use("a"))
            #expect(rule.decision(at: day * 40) == .waitAndFetch)
        }
    }

    @Test("A failed early renewal leaves the old token in use")
    func failedAhead() {
        var rule = AccessTokenPolicy()
        _ = rule.decision(at: 0)
        rule.fetched("a", lifetimeSeconds: 3600, at: 0)
        let early = hour - 200_000
        #expect(rule.decision(at: early) == .useAndFetch("a"))
        rule.failed(TokenRefusal(outcome: .notSent, reason: "connect"), at: early)
        #expect(rule.decision(at: early + 1) == .use("a"))
        #expect(rule.decision(at: early + 1000) == .useAndFetch("a"))
    }

    @Test("A token that the provider rejects is renewed, once a minute at most")
    func discarded() {
        var rule = AccessTokenPolicy()
        _ = rule.decision(at: 0)
        rule.fetched("a", lifetimeSeconds: 3600, at: 0)
        rule.discard("a", at: 10)
        #expect(rule.decision(at: 10) == .waitAndFetch)
        rule.fetched("b", lifetimeSeconds: 3600, at: 20)
        rule.discard("a", at: 21)
        rule.discard("b", at: 22)
        #expect(rule.decision(at: 22) == .use("b"))
        rule.discard("b", at: 10 + 60_000)
        #expect(rule.decision(at: 10 + 60_000) == .waitAndFetch)
    }

    @Test("Each answer of the endpoint has its result")
    func answers() throws {
        let now = Instant(seconds: 0)
        func read(_ status: Int, _ body: String) -> Result<AccessTokenGrant, TokenRefusal> {
            AccessTokenGrant.read(HTTPResponse(status: status, body: Array(body.utf8)), at: now)
        }
        #expect(
            try read(200, #"{"access_token":"t","expires_in":3599}"#).get()
                == .init(token: "t", lifetimeSeconds: 3599)
        )
        #expect(
            try read(200, #"{"access_token":"t","expires_in":"86399"}"#).get()
                == .init(token: "t", lifetimeSeconds: 86_399)
        )
        let refusals: [(Int, String, ProviderOutcome, String)] = [
            (
                400, #"{"error":"invalid_grant","error_description":"Invalid JWT"}"#,
                .misconfigured, "token endpoint: invalid_grant"
            ),
            (401, #"{"error":"invalid_client"}"#, .misconfigured, "token endpoint: invalid_client"),
            (403, "", .misconfigured, "token endpoint: status 403"),
            (503, "", .unavailable(retryAfter: nil), "token endpoint: status 503"),
            (429, "", .unavailable(retryAfter: nil), "token endpoint: status 429"),
        ]
        for (status, body, outcome, reason) in refusals {
            #expect(
                read(status, body)
                    == .failure(TokenRefusal(outcome: outcome, status: status, reason: reason))
            )
        }
        for body in [#"{"access_token":""}"#, #"{"access_token":"a\r\nb: c"}"#, "nonsense", "{}"] {
            #expect(throws: TokenRefusal.self) { try read(200, body).get() }
        }
    }
}

@Suite("Notification queue of a client", .timeLimit(.minutes(1))) struct DeliveryQueues {
    private func notification(_ name: String, isUrgent: Bool = false) -> OutgoingNotification {
        OutgoingNotification(
            notificationID: name,
            target: DeviceTarget(provider: .fcm, token: name),
            payload: RenderedPayload(
                platform: .fcm,
                headers: [],
                body: [],
                repeatOverwrites: false
            ),
            isUrgent: isUrgent
        )
    }

    @Test("Urgent notifications overtake, and each kind keeps its order, also after a return")
    func lanes() {
        let queue = NotificationQueue(limit: 1)
        var started: [QueuedNotification] = []
        queue.start = { started.append($0) }
        let answers = Answers()
        queue.add(["a", "b", "c"].map { notification($0) }) { answers.add($0, $1) }
        queue.add(["x", "y"].map { notification($0, isUrgent: true) }) { answers.add($0, $1) }
        queue.requeue(started[0])
        queue.finish(started[1], ProviderAnswer(.accepted))
        queue.requeue(started[2])
        while queue.inFlight > 0 {
            queue.finish(started[started.count - 1], ProviderAnswer(.accepted))
        }
        let order = started.map(\.notification.notificationID)
        #expect(order == ["a", "x", "y", "y", "a", "b", "c"])
        #expect(answers.indices.count == 5 && queue.count == 0)
    }

    @Test("The queue keeps the order, the bound, and every index exactly once")
    func bound() {
        let queue = NotificationQueue(limit: 2)
        var started: [QueuedNotification] = []
        queue.start = { started.append($0) }
        var emptied = 0
        queue.onEmpty = { emptied += 1 }
        let answers = Answers()
        queue.add((0..<5).map { notification("\($0)") }) { answers.add($0, $1) }
        #expect(started.map(\.notification.notificationID) == ["0", "1"])
        #expect(queue.count == 5)
        queue.finish(started[1], ProviderAnswer(.accepted))
        #expect(started.map(\.notification.notificationID) == ["0", "1", "2"])
        // It returns to the front, before those that were never started.
        queue.requeue(started[0])
        #expect(started.last?.notification.notificationID == "0")
        queue.limit = 10
        #expect(started.map(\.notification.notificationID) == ["0", "1", "2", "0", "3", "4"])
        for delivery in started[2...] { queue.finish(delivery, ProviderAnswer(.accepted)) }
        #expect(answers.indices == [1, 2, 0, 3, 4])
        #expect(queue.count == 0 && emptied == 1)
    }

    @Test("Deliveries that end at once do not grow the stack")
    func immediate() {
        let queue = NotificationQueue(limit: 1)
        queue.start = { [unowned queue] in queue.finish($0, ProviderAnswer(.rejected)) }
        let answers = Answers()
        queue.add((0..<100_000).map { notification("\($0)") }) { answers.add($0, $1) }
        #expect(answers.indices.count == 100_000)
        #expect(queue.count == 0)
    }

    @Test("Notifications that were not started can be dropped")
    func drop() {
        let queue = NotificationQueue(limit: 1)
        var started: [QueuedNotification] = []
        queue.start = { started.append($0) }
        let answers = Answers()
        queue.add((0..<3).map { notification("\($0)") }) { answers.add($0, $1) }
        queue.drop(ProviderAnswer(.notSent))
        #expect(answers.indices == [1, 2])
        queue.finish(started[0], ProviderAnswer(.accepted))
        #expect(answers.indices == [1, 2, 0])
    }
}

@Suite("The remaining time of a batch", .timeLimit(.minutes(1))) struct BatchTimes {
    @Test("A batch that waited long for a token still waits half of its time for the answer")
    func half() {
        let before = ContinuousClock.now
        let batch = DeliveryBatch([], round: 0, timeout: .seconds(40)) { _, _ in }
        let after = ContinuousClock.now
        #expect(batch.timeLeft(at: after) <= .seconds(40))
        #expect(batch.timeLeft(at: before) >= .seconds(40))
        #expect(batch.timeLeft(at: before + .seconds(10)) >= .seconds(30))
        for waited in [21, 39, 40, 400] {
            #expect(batch.timeLeft(at: after + .seconds(waited)) == .seconds(20), "\(waited) s")
        }
        #expect(batch.answerTime == .seconds(20))
    }
}
