import JSON
import PushCore
import Testing

@testable import PushStorage

@Suite("The form in which the ledger stores a delivery", .timeLimit(.minutes(1)))
struct LedgerFormTests {
    private let now = Instant(seconds: 1_800_000_000)

    private func record(
        _ decision: DeliveryEnd.Decision?,
        reason: String? = nil
    ) -> DeliveryRecord {
        let delivery = Delivery(
            key: DeliveryKey(day: now.day, pushID: "p", target: "a"),
            app: "shop",
            installationID: "a",
            device: DeviceTarget(provider: .apns, token: "t", environment: .production),
            lane: 1,
            attempts: 0,
            unanswered: 0,
            createdAt: now
        )
        return DeliveryRecord(
            delivery,
            decision.map {
                DeliveryEnd($0, reason: reason, attempts: 1, unanswered: 0, at: now)
            }
        )
    }

    @Test("A chunk has only delivered members without a reason (rule 69)")
    func members() {
        let shard = ClaimedShard(pushID: "p", shard: 0, app: "shop", createdAt: now)
        func form(_ decision: DeliveryEnd.Decision?, _ reason: String? = nil) -> LedgerForm {
            PushLedger.form(of: record(decision, reason: reason), in: shard)
        }
        #expect(form(.settle(.delivered)) == .chunk)
        #expect(form(.settle(.delivered), "as it was") == .rows)
        for outcome in Outcome.allCases where outcome != .delivered {
            #expect(form(.settle(outcome)) == .rows)
        }
        #expect(form(.settleAndDisable(since: nil)) == .rows)
        #expect(form(.retry(at: now)) == .rows && form(.release(at: now)) == .rows)
        #expect(form(nil) == .rows, "in flight")
    }

    @Test("Members of a device-local push are rows, so that one that moved is found (rule 30)")
    func deviceLocal() {
        var shard = ClaimedShard(pushID: "p", shard: 0, app: "shop", createdAt: now)
        shard.zones = ZoneFilter(names: ["Europe/Berlin"], isExclusion: false)
        #expect(PushLedger.form(of: record(.settle(.delivered)), in: shard) == .rows)
    }

    @Test("A row stays a row, however it ends")
    func rows() {
        #expect(PushLedger.form(of: record(.settle(.delivered)), in: nil) == .updateRow)
        #expect(PushLedger.form(of: record(.retry(at: now)), in: nil) == .updateRow)
    }

    @Test("A push of the fast path is one row once all ended, its own row if HTTP accepted it")
    func pushes() throws {
        let object: JSONObject = ["installations": ["a"], "data": ["alert": "x"]]
        let request = try PushRequest.parse(object, now: now)
        func form(_ ends: [DeliveryEnd.Decision?], hasRow: Bool = false) -> LedgerForm {
            PushLedger.form(
                of: SentPush(
                    push: NewPush(
                        id: "p",
                        app: "shop",
                        eventSource: "s",
                        eventID: "e",
                        object: object,
                        request: request,
                        expiresAt: nil
                    ),
                    createdAt: now,
                    hasRow: hasRow,
                    deliveries: ends.map { record($0) }
                )
            )
        }
        #expect(form([.settle(.delivered), .settle(.failed)]) == .row)
        #expect(form([.settle(.delivered)], hasRow: true) == .packed)
        #expect(form([.settle(.delivered), nil], hasRow: true) == .rows)
        #expect(form([.settle(.delivered), nil]) == .rows)
        #expect(form([.settle(.delivered), .retry(at: now)]) == .rows)
        #expect(form([]) == .row, "to nobody")
    }
}
