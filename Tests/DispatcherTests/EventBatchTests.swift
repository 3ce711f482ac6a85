import JSON
import PushCore
import PushEvents
import Support
import Testing

@testable import Dispatcher

@Suite("Batches of records", .timeLimit(.minutes(1)))
struct EventBatchTests {
    private let now = Instant(seconds: 1_700_000_000)

    /// A hash that is good enough to tell these inputs apart.
    private let digest: Digest = { bytes in
        var state: UInt64 = 14_695_981_039_346_656_037
        var output: [UInt8] = []
        for round in UInt8(0)..<4 {
            for byte in bytes + [round] {
                state = (state ^ UInt64(byte)) &* 1_099_511_628_211
            }
            for shift in 0..<8 { output.append(UInt8(truncatingIfNeeded: state >> (shift * 8))) }
        }
        return output
    }

    private func record(_ value: String, offset: Int64 = 0) -> IncomingRecord {
        IncomingRecord(
            topic: "push.requests",
            partition: 3,
            offset: offset,
            key: nil,
            value: Array(value.utf8)
        )
    }

    private func batch(_ values: [String]) -> EventBatch {
        EventBatch(
            values.enumerated().map { record($1, offset: Int64($0)) },
            now: now,
            digest: digest
        )
    }

    @Test(
        "A record with equivalent keys costs as much as another of its size, and gives one result"
    )
    func equivalentKeys() {
        func event(_ keys: [String]) -> String {
            let data = JSONObject(keys.map { ($0, "x") }).text
            return "{\"app\":\"shop\",\"channels\":[\"news\"],\"data\":\(data)}"
        }
        let dear = event(HostileText.keys(1500))
        let cheap = event(HostileText.benignKeys(1500))
        #expect(dear.utf8.count == cheap.utf8.count)
        let ratio = HostileText.costRatio(of: { _ = batch([dear]) }, to: { _ = batch([cheap]) })
        #expect(ratio < 20)
    }

    @Test("Two equivalent forms of an identity are two identities, and each gets its push")
    func equivalentNames() {
        let batch = batch([
            "{\"app\":\"shop\",\"identities\":[\"caf\u{e9}\",\"cafe\u{301}\",\"caf\u{e9}\"],\"data\":{\"alert\":\"x\"}}"
        ])
        #expect(batch.usable.first?.namedDevices == 2)
    }

    @Test("An announcement that every platform rejects is a dead letter, whatever its source")
    func announcements() {
        func announcement(_ version: Int, _ text: String) -> IncomingRecord {
            var record = record(
                """
                {"id":"config/firebase/\(version)","source":"carillon/config","app":"shop","topic":"PUSH_RC",
                "data":{"CONFIG_STATE":"\(text)"}}
                """
            )
            record.topic = "PUSH_RC"
            return record
        }
        let long = String(repeating: "x", count: 6000)
        let batch = EventBatch(
            [(8, "STALE"), (8, "STALE"), (9, long), (10, #"\u0000"#)].map(announcement),
            now: now,
            digest: digest
        )
        #expect(batch.usable.map(\.event.request.repeatsOverwrite) == [true])
        #expect(batch.repeats == 1)
        #expect(batch.unusable.map(\.reason.reason) == [.tooLarge, .invalidRequest])
    }

    @Test("A NUL anywhere in a record makes it a dead letter, not a database error")
    func nul() {
        let records = [
            #"{"app":"shop","channels":["news"],"data":{"alert":"a\u0000b"}}"#,
            #"{"app":"shop","channels":["news"],"data":{"a\u0000b":1}}"#,
            #"{"app":"shop","channels":["news"],"data":{"a":[{"b":["\u0000"]}]}}"#,
            #"{"app":"shop","channels":["news"],"data":{"a":1},"later":"\u0000"}"#,
        ]
        let batch = batch(records)
        #expect(batch.usable.isEmpty)
        #expect(batch.unusable.count == records.count)
        #expect(batch.unusable.allSatisfy { $0.reason.detail.contains("NUL") })
    }

    @Test("The same event twice in one batch is one push")
    func repeats() {
        let event = #"{"id":"a","source":"s","app":"shop","data":{"alert":"x"}}"#
        let other = #"{"id":"a","source":"t","app":"shop","data":{"alert":"x"}}"#
        let batch = batch([event, event, other, event])
        #expect(batch.usable.map(\.event.source) == ["s", "t"])
        #expect(batch.repeats == 2)
        #expect(batch.unusable.isEmpty)
    }

    @Test("Content too large for every platform of the request is refused")
    func sizes() {
        func event(_ size: Int, _ rest: String = "", source: String = "s") -> String {
            let text = String(repeating: "x", count: size)
            return #"{"id":"\#(size)\#(rest.count)","source":"\#(source)","app":"shop"\#(rest),"#
                + #""data":{"alert":"\#(text)"}}"#
        }
        let apns = #","tokens":[{"platform":"apns","token":"ab"}]"#
        let both =
            #","tokens":[{"platform":"apns","token":"ab"},{"platform":"wns","token":"#
            + #""https://db5.notify.windows.com/x"}]"#
        let batch = batch([
            event(9000), event(4500), event(4500, apns), event(4500, both),
            event(9000, source: PushIdentity.httpSource), event(4000, apns),
        ])
        #expect(batch.unusable.map(\.record.offset) == [0, 2])
        #expect(batch.unusable.allSatisfy { $0.reason.reason == .tooLarge })
        #expect(batch.unusable[1].reason.detail.contains("of at most 4096"))
        #expect(batch.usable.count == 4)
    }

    @Test("A record without an id is identified by its position, so a redelivery is the same push")
    func withoutID() {
        let value = #"{"app":"shop","data":{"alert":"x"}}"#
        let first = batch([value, value])
        let again = batch([value, value])
        #expect(first.usable.count == 2)
        #expect(first.usable[0].pushID != first.usable[1].pushID)
        #expect(first.usable.map(\.pushID) == again.usable.map(\.pushID))
    }

    @Test("An invalid record is a dead letter with its reason, and its neighbours are processed")
    func unusable() {
        let batch = batch([
            "garbage",
            #"{"id":"a","app":"shop","channels":7,"data":{}}"#,
            #"{"id":"b","app":"shop","data":{"alert":"x"}}"#,
            #"{"id":"c","data":{"alert":"x"}}"#,
        ])
        #expect(
            batch.unusable.map(\.reason.reason) == [.invalidJSON, .invalidRequest, .missingApp]
        )
        #expect(batch.unusable[1].reason.detail.contains("channels"))
        #expect(batch.unusable[0].record.value == Array("garbage".utf8))
        #expect(batch.usable.map(\.event.eventID) == ["b"])
    }

    @Test("An event of an unknown app is rejected, and the others stay")
    func unknownApp() {
        var batch = batch([
            #"{"id":"a","app":"shop","data":{"alert":"x"}}"#,
            #"{"id":"b","app":"ghost","data":{"alert":"x"}}"#,
        ])
        #expect(batch.apps == ["shop", "ghost"])
        batch.keep(apps: ["shop"])
        #expect(batch.usable.map(\.event.app) == ["shop"])
        #expect(batch.unusable.map(\.reason.reason) == [.unknownApp])
    }

    @Test("A transaction plans no more devices than its limit, unless one push alone names more")
    func portions() {
        let many = (0..<30).map { "\"i\($0)\"" }.joined(separator: ",")
        let batch = batch([
            #"{"id":"a","app":"shop","identities":["u"],"data":{"alert":"x"}}"#,
            #"{"id":"b","app":"shop","data":{"alert":"x"}}"#,
            #"{"id":"c","app":"shop","installations":[\#(many)],"data":{"alert":"x"}}"#,
            #"{"id":"d","app":"shop","channels":["c"],"data":{"alert":"x"}}"#,
        ])
        let portions = EventBatch.portions(batch.usable, limit: 20, weight: \.namedDevices)
        #expect(portions.map { $0.map(\.event.eventID) } == [["a", "b"], ["c"], ["d"]])
        #expect(EventBatch.portions(batch.usable, limit: 1000, weight: \.namedDevices).count == 1)
        #expect(EventBatch.portions([Int](), limit: 1) { $0 }.isEmpty)
    }

    @Test("Content that leaves no space for the push id is refused if the app includes push ids")
    func pushIDs() {
        func event(_ source: String, _ count: Int) -> String {
            let alert = String(repeating: "x", count: count)
            return """
                {"app":"shop","source":"\(source)","id":"\(count)","data":{"alert":"\(alert)"},
                "tokens":[{"platform":"apns","token":"ab"}]}
                """
        }
        let values = [
            event("s", 4076), event("s", 4000), event("carillon/cli", 4075), event("s", 9),
        ]
        var batch = batch(values)
        #expect(batch.usable.count == 4 && batch.appsInDoubt == ["shop"])
        batch.checkSizes(ofAppsWithPushIDs: ["other"], topics: KafkaTopics())
        #expect(batch.usable.count == 4)
        batch.checkSizes(ofAppsWithPushIDs: ["shop"], topics: KafkaTopics())
        #expect(batch.usable.map(\.event.eventID) == ["4000", "9"])
        #expect(batch.unusable.map(\.reason.reason) == [.tooLarge, .tooLarge])
        #expect(self.batch([event("s", 9)]).appsInDoubt.isEmpty)
    }

    /// Makes events of apps, each with a number of named devices.
    private func events(_ named: [(app: String, devices: Int)]) throws -> [EventBatch.Usable] {
        let batch = batch(
            named.enumerated().map { number, event in
                let names = (0..<event.devices).map { "\"u\($0)\"" }.joined(separator: ",")
                return """
                    {"id":"e\(number)","source":"s","app":"\(event.app)","identities":[\(names)],
                    "data":{"alert":"x"}}
                    """
            }
        )
        try #require(batch.usable.count == named.count)
        return batch.usable
    }

    @Test(
        "Events that one portion holds stay in one transaction, if no other portion is before them"
    )
    func oneGroup() throws {
        let items = try events([("shop", 3), ("news", 4), ("shop", 3)])
        #expect(EventBatch.groups(items, mustWait: false, portion: 10) == [items])
        #expect(EventBatch.groups([], mustWait: true, portion: 10).isEmpty)
    }

    @Test(
        "Events that must wait, or are more than a portion, are divided by app",
        arguments: [(true, 10), (false, 9)]
    )
    func groupsOfApps(mustWait: Bool, portion: Int) throws {
        let items = try events([("shop", 3), ("news", 4), ("shop", 2), ("game", 1)])
        let groups = EventBatch.groups(items, mustWait: mustWait, portion: portion)
        // No event is lost or twice, and those of an app keep their order.
        #expect(groups == [[items[0], items[2]], [items[1]], [items[3]]])
        let ofOne = [items[0], items[2]]
        #expect(EventBatch.groups(ofOne, mustWait: true, portion: 1) == [ofOne])
    }
}
