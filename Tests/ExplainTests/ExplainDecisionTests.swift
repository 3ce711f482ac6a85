import Explain
import JSON
import PushCore
import Testing

@testable import PushStorage

/// Facts for the decision, in minutes after a fixed time: the device is saved at -60, the audience is
/// chosen at 0, the facts are read at 30.
struct ExplainFixture {
    static func at(_ minutes: Int64) -> Instant {
        Instant(milliseconds: 1_795_000_000_000 + minutes * 60_000)
    }

    var facts: ExplainFacts

    init(status: PushStatus = .done, request: JSONObject = ["channels": ["news"]]) throws {
        facts = ExplainFacts(app: "shop", installationID: "phone-1", asOf: Self.at(30))
        var installation = Installation(app: "shop", objectID: "phone-1", at: Self.at(-60))
        installation.deviceType = "ios"
        installation.platform = .apns
        installation.environment = .production
        installation.token = "aa"
        installation.tokenUpdatedAt = Self.at(-60)
        facts.device = ExplainFacts.Device(installation)
        var object = request
        if object["data"] == nil { object["data"] = ["alert": "Ring"] }
        var ledger = Ledger()
        ledger.targeted = 3
        ledger.delivered = 3
        let push = StoredPush(
            id: "6b1f0c52-0000-4000-8000-000000000001",
            app: "shop",
            eventSource: "test",
            eventID: "e1",
            request: object,
            status: status,
            notes: [:],
            lane: 1,
            ledger: ledger,
            createdAt: Self.at(0),
            updatedAt: Self.at(5)
        )
        facts.push = ExplainFacts.Push(
            push,
            request: try PushRequest.parse(object, now: Self.at(0)),
            audienceAt: Self.at(0)
        )
        facts.clauses = [ExplainFacts.ClauseVerdict("channels contains one of news", holds: true)]
    }

    mutating func device(_ change: (inout Installation) -> Void, invalidatedAt: Int64? = nil) {
        guard var device = facts.device else { return }
        change(&device.installation)
        device.invalidatedAt = invalidatedAt.map(Self.at)
        facts.device = device
    }

    mutating func deliver(
        _ state: DeliveryState,
        attempts: Int = 1,
        status: Int? = nil,
        reason: String? = nil,
        at minutes: Int64 = 2,
        provider: Platform = .apns
    ) {
        facts.delivery = ExplainFacts.Delivery(
            provider: provider,
            environment: provider == .apns ? .production : .none,
            state: state,
            attempts: attempts,
            status: status,
            reason: reason,
            updatedAt: Self.at(minutes)
        )
    }

    var explanation: Explanation { ExplainDecision.explain(facts) }
}

/// One situation: its facts, the reason, and words of the sentence.
struct ExplainCase: CustomTestStringConvertible, Sendable {
    let name: String
    let reason: Explanation.Reason
    let words: [String]
    let change: @Sendable (inout ExplainFixture) -> Void

    init(
        _ name: String,
        _ reason: Explanation.Reason,
        _ words: String...,
        change: @escaping @Sendable (inout ExplainFixture) -> Void
    ) {
        (self.name, self.reason, self.words, self.change) = (name, reason, words, change)
    }

    var testDescription: String { name }
}

extension ExplainCase {
    /// The ten reasons, and the states around them.
    static let cases: [ExplainCase] = [
        Self("saved after the audience was chosen", .notInAudienceThen, "It would be now") {
            $0.device { $0.updatedAt = ExplainFixture.at(5) }
        },
        Self("registered after the audience was chosen", .notInAudienceThen, "It would be now") {
            $0.device { $0.createdAt = ExplainFixture.at(1) }
        },
        Self("rejected before", .tokenInvalid, "before this push", "APNs: Unregistered") {
            $0.device(
                {
                    $0.isValid = false
                    $0.invalidReason = "Unregistered"
                },
                invalidatedAt: -10
            )
        },
        Self("rejected by this push", .tokenInvalid, "rejected this push", "Unregistered") {
            $0.deliver(.failed, status: 410, reason: "Unregistered")
        },
        Self("muted", .muted, "muted it at 2026-11-18") {
            $0.device({ $0.isValid = false }, invalidatedAt: -10)
        },
        Self("muted at an unknown time", .muted, "not stored") {
            $0.device { $0.isValid = false }
        },
        Self("named and muted", .muted, "muted") {
            $0.device { $0.isValid = false }
            $0.deliver(.suppressed, attempts: 0, reason: "the installation is invalid")
        },
        Self("sent to production", .wrongEnvironment, "production", "belongs to sandbox") {
            $0.deliver(.failed, status: 400, reason: "BadDeviceToken")
        },
        Self("wrong environment before", .wrongEnvironment, "BadDeviceToken", "sandbox") {
            $0.device(
                {
                    $0.isValid = false
                    $0.invalidReason = "BadDeviceToken"
                },
                invalidatedAt: -10
            )
        },
        Self("expired", .expired, "4 min after the push had expired") {
            $0.deliver(.expired, attempts: 0, reason: "expired before it was sent", at: 6)
            $0.facts.delivery?.expiresAt = ExplainFixture.at(2)
        },
        Self("too large", .tooLarge, "4131 bytes", "APNs is 4096") {
            $0.deliver(
                .failed,
                attempts: 0,
                reason: "the payload is too large: 4131 bytes of at most 4096"
            )
        },
        Self("too large for the provider", .tooLarge, "PayloadTooLarge") {
            $0.deliver(.failed, status: 413, reason: "PayloadTooLarge")
        },
        Self("deleted after planning", .suppressed, "deleted after planning") {
            $0.facts.device = nil
            $0.facts.shard = ExplainFacts.Shard(
                isMember: true,
                isPassed: true,
                isFinished: true,
                dueAt: ExplainFixture.at(1)
            )
        },
        Self("invalid after planning", .suppressed, "became invalid at") {
            $0.device(
                {
                    $0.isValid = false
                    $0.invalidReason = "Unregistered"
                },
                invalidatedAt: 3
            )
            $0.facts.shard = ExplainFacts.Shard(
                isMember: nil,
                isPassed: true,
                isFinished: true,
                dueAt: ExplainFixture.at(1)
            )
        },
        Self("erased", .suppressed, "suppressed: erased") {
            $0.deliver(.suppressed, attempts: 0, reason: "erased")
        },
        Self("breaker of a row", .breaker, "APNs has not accepted", "503") {
            $0.deliver(.pending, attempts: 0, reason: LocalWait.breaker.rawValue)
            $0.facts.delivery?.dueAt = ExplainFixture.at(31)
            $0.facts.trouble = ExplainFacts.Trouble(
                count: 60,
                since: ExplainFixture.at(1),
                status: 503,
                reason: nil,
                dueAt: ExplainFixture.at(31)
            )
        },
        Self("breaker of a shard", .breaker, "has not accepted", "no answer") {
            $0.facts.shard = ExplainFacts.Shard(
                isMember: nil,
                isPassed: false,
                isFinished: false,
                dueAt: ExplainFixture.at(31)
            )
            $0.facts.trouble = ExplainFacts.Trouble(
                count: 1,
                since: ExplainFixture.at(1),
                status: nil,
                reason: nil,
                dueAt: ExplainFixture.at(31)
            )
        },
        Self("cancelled before its turn", .cancelled, "cli:mira cancelled the push at") {
            $0.facts.push?.stored.status = .cancelled
            $0.facts.cancelled = ExplainFacts.Deed(actor: "cli:mira", at: ExplainFixture.at(1))
        },
        Self("cancelled row", .cancelled, "cancelled the push") {
            $0.facts.push?.stored.status = .cancelled
            $0.deliver(.suppressed, attempts: 0, reason: "cancelled")
        },
        Self("accepted and nothing since", .neverConnected, "APNs accepted it", "nothing since") {
            $0.deliver(.delivered, status: 200)
        },
        Self("stored by the provider", .neverConnected, "stores it until") {
            $0.deliver(.delivered, status: 200)
            $0.facts.delivery?.expiresAt = ExplainFixture.at(60)
        },
        Self("waits at a node", .neverConnected, "has not connected") {
            $0.deliver(.delivered, provider: .connection)
            $0.facts.message = ExplainFacts.Message(
                storedAt: ExplainFixture.at(2),
                expiresAt: ExplainFixture.at(100)
            )
        },
        Self("displaced at a node", .neverConnected, "never fetched it") {
            $0.deliver(.delivered, provider: .connection)
        },
    ]

    static let others: [ExplainCase] = [
        Self("misses a condition", .notInAudience, "channels contains", "not changed since") {
            $0.facts.clauses[0].holds = false
        },
        Self("misses a condition now", .notInAudience, "is not stored") {
            $0.facts.clauses[0].holds = false
            $0.device { $0.updatedAt = ExplainFixture.at(3) }
        },
        Self("inactive", .inactive, "60 days") {
            $0.device(
                {
                    $0.isValid = false
                    $0.invalidReason = "silent"
                },
                invalidatedAt: -10
            )
        },
        Self("registration expired", .registrationExpired, "expired") {
            $0.device(
                {
                    $0.isValid = false
                    $0.invalidReason = "expirationTime"
                },
                invalidatedAt: -10
            )
        },
        Self("no token", .noToken, "no token") { $0.device { $0.token = nil } },
        Self("switched off", .switchedOff, "switched off") {
            $0.deliver(.suppressed, attempts: 0, reason: "connections off", provider: .connection)
        },
        Self("deleted", .installationUnknown, "deleted at", "master-key") {
            $0.facts.device = nil
            $0.facts.push?.stored.finishedAt = ExplainFixture.at(5)
            $0.facts.deleted = ExplainFacts.Deed(actor: "master-key", at: ExplainFixture.at(9))
        },
        Self("deleted during sending", .suppressed, "deleted at", "before its turn") {
            $0.facts.device = nil
            $0.facts.deleted = ExplainFacts.Deed(actor: "master-key", at: ExplainFixture.at(9))
        },
        Self("never known", .installationUnknown, "no such installation") {
            $0.facts.device = nil
        },
        Self("queued", .accepting, "accepted") { $0.facts.push?.stored.status = .queued },
        Self("scheduled", .scheduled, "waits for its time, 2026") {
            $0.facts.push?.stored.status = .scheduled
            $0.facts.push?.stored.releaseAt = ExplainFixture.at(600)
        },
        Self("planning", .planning, "being chosen") { $0.facts.push?.stored.status = .planning },
        Self("failed as a whole", .pushFailed, "too slow") {
            $0.facts.push?.stored.status = .failed
            $0.facts.push?.stored.error = "too slow"
        },
        Self("its turn has not come", .waiting, "due at about") {
            $0.facts.push?.stored.status = .sending
            $0.facts.shard = ExplainFacts.Shard(
                isMember: nil,
                isPassed: false,
                isFinished: false,
                dueAt: ExplainFixture.at(29)
            )
        },
        Self("being sent", .sending, "being sent") {
            $0.deliver(.pending, attempts: 0)
            $0.facts.delivery?.isOwned = true
        },
        Self("retried", .retrying, "Attempt 2", "ServiceUnavailable") {
            $0.deliver(.pending, attempts: 2, status: 503, reason: "ServiceUnavailable")
        },
        Self("no credential", .noCredential, "no credential for this provider") {
            $0.deliver(.failed, attempts: 0, reason: LocalFailure.noCredential.rawValue)
        },
        Self("wrong topic", .wrongTopic, "another app") {
            $0.deliver(.failed, status: 400, reason: "DeviceTokenNotForTopic")
        },
        Self("wrong sender", .wrongSender, "Firebase project") {
            $0.deliver(.failed, status: 403, reason: "SENDER_ID_MISMATCH", provider: .fcm)
        },
        Self("bad credential", .credentialRefused, "InvalidProviderToken") {
            $0.deliver(.failed, status: 403, reason: "InvalidProviderToken")
        },
        Self("rejected", .rejected, "BadPriority") {
            $0.deliver(.failed, status: 400, reason: "BadPriority")
        },
        Self("dead by FCM's general code", .tokenInvalid, "INVALID_ARGUMENT") {
            $0.deliver(.failed, status: 400, reason: "INVALID_ARGUMENT", provider: .fcm)
            $0.device {
                $0.isValid = false
                $0.invalidReason = "INVALID_ARGUMENT"
            }
        },
        Self("no answer", .inDoubt, "no answer came") { $0.deliver(.inDoubt) },
        Self("accepted, active since", .accepted, "was active since") {
            $0.deliver(.delivered, status: 200)
            $0.facts.lastReport = ExplainFixture.at(10)
        },
        Self("received", .received, "received it at") {
            $0.deliver(.delivered)
            $0.facts.receipts = [ExplainFacts.Receipt(.received, at: ExplainFixture.at(3))]
        },
        Self("opened", .opened, "opened on the device at") {
            $0.deliver(.inDoubt)
            $0.facts.receipts = [
                ExplainFacts.Receipt(.received, at: ExplainFixture.at(3)),
                ExplainFacts.Receipt(.opened, at: ExplainFixture.at(4)),
            ]
        },
        Self("older than the retention", .forgotten, "no longer stored") {
            $0.facts.push?.hasDeliveries = false
        },
        Self("unexplained", .unknown, "meets every condition") { _ in },
        Self("without a push, reachable", .reachable, "Nothing that Carillon knows") {
            $0.facts.push = nil
        },
        Self("without a push, muted", .muted, "muted") {
            $0.facts.push = nil
            $0.device({ $0.isValid = false }, invalidatedAt: -10)
        },
        Self("without a push, no credential", .noCredential, "no APNs credential") {
            $0.facts.push = nil
            $0.facts.credentialProblem = .noCredentialOfTopic
        },
        Self("without a push, templates only", .templatesOnly, "template") {
            $0.facts.push = nil
            $0.device { $0.isTemplateOnly = true }
        },
        Self("without a push, messages wait", .neverConnected, "has not connected") {
            $0.facts.push = nil
            $0.facts.message = ExplainFacts.Message(
                storedAt: ExplainFixture.at(2),
                expiresAt: ExplainFixture.at(100)
            )
        },
        Self("without a push, breaker", .breaker, "They are due") {
            $0.facts.push = nil
            $0.facts.trouble = ExplainFacts.Trouble(
                count: 60,
                since: ExplainFixture.at(1),
                status: 503,
                reason: nil,
                dueAt: ExplainFixture.at(31)
            )
        },
    ]
}

@Suite("The decision why a device got a push, or why not")
struct ExplainDecisionTests {
    @Test(
        "Each situation has its reason, its sentence and a next step",
        arguments: ExplainCase.cases + ExplainCase.others
    )
    func reasons(situation: ExplainCase) throws {
        var fixture = try ExplainFixture()
        situation.change(&fixture)
        let explanation = fixture.explanation
        #expect(explanation.reason == situation.reason)
        for words in situation.words {
            #expect(explanation.sentence.text.contains(words), "\(explanation.sentence.text)")
        }
        #expect(explanation.steps.map(\.question) == Explanation.Step.Question.allCases)
        #expect(!explanation.nextStep.text.isEmpty)
        for phrase in [explanation.sentence, explanation.nextStep] + explanation.notes {
            #expect(!phrase.text.contains("{"), "a value is missing: \(phrase.text)")
        }
        // Where the push stopped, no later step counts as passed.
        let states = explanation.steps.map(\.state)
        if let stop = states.firstIndex(of: .stopped) {
            #expect(states[..<stop].allSatisfy { $0 == .passed })
            #expect(states[(stop + 1)...].allSatisfy { $0 == .notReached })
        } else {
            #expect(explanation.reason.isArrival)
        }
    }

    @Test("Every reason occurs in these tests, except that of a dry run and of a topic")
    func complete() {
        let tested = Set((ExplainCase.cases + ExplainCase.others).map(\.reason))
        let missing = Explanation.Reason.allCases.filter { !tested.contains($0) }
        #expect(missing == [.dryRun, .topicMessage])
    }

    @Test("A dry run and a message to a topic are named")
    func others() throws {
        var dry = try ExplainFixture(request: ["channels": ["news"], "dry_run": true])
        #expect(dry.explanation.reason == .dryRun)
        dry.facts.push?.request?.isDryRun = false
        dry.deliver(.delivered, provider: .fcm)
        dry.facts.delivery?.isToTopic = true
        #expect(dry.explanation.reason == .topicMessage)
    }

    @Test("A present value is the one of then only if the device has not changed since")
    func tenses() throws {
        var fixture = try ExplainFixture()
        fixture.facts.clauses = [
            ExplainFacts.ClauseVerdict("city is Oslo", holds: true, value: "Oslo"),
            ExplainFacts.ClauseVerdict("it is in a query", holds: true, isForeign: true),
        ]
        func thens() -> [Bool?] { fixture.explanation.clauses.map(\.then) }
        // Reachable, existed, the field, and the other object.
        #expect(thens() == [true, true, true, nil])
        fixture.device { $0.updatedAt = ExplainFixture.at(1) }
        #expect(thens() == [nil, true, nil, nil])
        fixture.device { $0.createdAt = ExplainFixture.at(1) }
        #expect(thens() == [nil, false, nil, nil])
        // A delivery proves that it was selected.
        fixture.deliver(.delivered)
        #expect(thens().allSatisfy { $0 == true } == false)
        #expect(thens()[2...] == [true, true])
    }

    @Test("A token that died after the audience was chosen was valid then")
    func validThen() throws {
        var fixture = try ExplainFixture()
        fixture.device(
            {
                $0.isValid = false
                $0.invalidReason = "Unregistered"
            },
            invalidatedAt: 3
        )
        let clause = try #require(fixture.explanation.clauses.first)
        #expect(clause.now == false && clause.then == true)
    }

    @Test("Causes on the device are ranked, each with a reason")
    func causes() throws {
        func ranks(_ fixture: ExplainFixture) -> [String: Explanation.Cause.Rank] {
            Dictionary(
                fixture.explanation.causes.map { (String($0.cause.text.prefix(16)), $0.rank) }
            ) { first, _ in first }
        }
        var fixture = try ExplainFixture()
        fixture.deliver(.delivered, status: 200)
        var found = ranks(fixture)
        #expect(found["It is switched o"] == .likely)
        #expect(found["The token is of "] == .unlikely)
        #expect(found["It came, and the"] == .likely)
        fixture.facts.lastReport = ExplainFixture.at(10)
        fixture.facts.settings.sendsPushIDs = true
        found = ranks(fixture)
        #expect(found["It is switched o"] == .unlikely)
        #expect(found["The system does "] == .likely)
        #expect(found["It came, and the"] == .possible)
        let order = fixture.explanation.causes.map(\.rank)
        #expect(order == order.sorted())
        #expect(fixture.explanation.causes.allSatisfy { !$0.why.text.isEmpty })

        var silent = try ExplainFixture(request: [
            "channels": ["news"], "data": ["content-available": 1], "collapse_id": "c",
        ])
        silent.deliver(.delivered, status: 200)
        #expect(ranks(silent)["The system withh"] == .likely)
        #expect(ranks(silent)["A later push wit"] == .possible)
        silent.deliver(.failed, status: 410, reason: "Unregistered")
        #expect(silent.explanation.causes.isEmpty)
    }

    @Test("Attempts are in order, with the last answer from the row, and their gaps are named")
    func attempts() throws {
        var fixture = try ExplainFixture()
        fixture.deliver(.delivered, attempts: 3, status: 200)
        fixture.facts.delivery?.earlier = [
            Explanation.Attempt(
                number: 1,
                provider: .apns,
                status: 503,
                reason: "ServiceUnavailable",
                at: ExplainFixture.at(1)
            )
        ]
        let explanation = fixture.explanation
        #expect(explanation.attempts.map(\.number) == [1, 3])
        #expect(explanation.attempts.map(\.status) == [503, 200])
        let facts = explanation.steps[3].facts
        #expect(facts.contains { $0.tense == .notStored && $0.label.text.contains("earlier") })
    }

    @Test("JSON contains content only for callers that may see it, and never a token")
    func json() throws {
        var fixture = try ExplainFixture()
        fixture.deliver(.delivered, status: 200)
        fixture.facts.payload = Explanation.Payload(
            platform: .apns,
            locale: "fr",
            bytes: 12,
            body: #"{"aps":"secret"}"#
        )
        fixture.device { $0.token = "5ec7e7" }
        let shown = fixture.explanation.json(showingContent: true)
        #expect(shown["payload"]?["content"]?.string == #"{"aps":"secret"}"#)
        #expect(shown["reason"] == "neverConnected")
        #expect(shown["sentence"]?["template"]?.string?.contains("{provider}") == true)
        let hidden = JSONValue.object(fixture.explanation.json(showingContent: false)).text
        #expect(!hidden.contains("secret") && hidden.contains(#""bytes":12"#))
        #expect(!JSONValue.object(shown).text.contains("5ec7e7"))
    }

    @Test("A phrase fills its values, and formats times and periods")
    func phrases() {
        let phrase = Phrase(
            "{a} at {t}, {d} later, {missing}",
            [
                "a": .count(2), "t": .time(Instant(milliseconds: 0)),
                "d": .milliseconds(252_000),
            ]
        )
        #expect(phrase.text == "2 at 1970-01-01 00:00:00 UTC, 4 min 12 s later, {missing}")
        #expect(Phrase.Value.milliseconds(90_000_000).text == "1 d 1 h")
        #expect(Phrase.Value.milliseconds(12).text == "12 ms")
        #expect(phrase.json["t"] == "1970-01-01T00:00:00.000Z")
    }
}
