import JSON
import PushCore
import Testing

@testable import PushEvents

@Suite("Changed datasets and their pushes", .timeLimit(.minutes(1)))
struct DatasetChangedRecordTests {
    private static let pool = "us-east-1:0000aaaa"
    private static let identity = "us-east-1:0000bbbb"

    private static func record(
        _ value: String,
        _ headers: [RecordHeader] = []
    ) -> IncomingRecord {
        IncomingRecord(
            topic: "dataset.changes",
            partition: 0,
            offset: 0,
            key: nil,
            value: Array(value.utf8),
            headers: headers
        )
    }

    private static func value(_ more: String) -> String {
        #"{"identityPoolId":"\#(pool)","identityId":"\#(identity)","datasetName":"notes",\#(more)}"#
    }

    @Test("A record that is written here is read back as this service's own")
    func own() throws {
        let change = DatasetChange(
            pool: Self.pool,
            identity: Self.identity,
            dataset: "notes",
            syncCount: 7,
            device: "d",
            isOwn: true
        )
        let written = DatasetChangedRecord.record(change, of: "shop", KafkaTopics(prefix: "x-"))
        #expect(written.topic == "x-dataset.changes")
        #expect(written.queue == "shop")
        #expect(written.key == Array(Self.identity.utf8))
        let text = String(decoding: written.value ?? [], as: UTF8.self)
        let read = try DatasetChangedRecord.decode(Self.record(text, written.headers))
        #expect(read == change)
    }

    @Test(
        "Other systems may write the count as a string, and omit the device",
        arguments: [#""syncCount":7"#, #""syncCount":"7""#, #""syncCount":7,"deviceId":null"#]
    )
    func others(_ more: String) throws {
        let change = try DatasetChangedRecord.decode(Self.record(Self.value(more)))
        #expect(change.syncCount == 7 && change.device == nil && !change.isOwn)
    }

    @Test(
        "An invalid record is refused with the name of the field",
        arguments: [
            (#""syncCount":0"#, "syncCount"), (#""syncCount":-1"#, "syncCount"),
            (#""syncCount":"+7""#, "syncCount"), (#""syncCount":1.5"#, "syncCount"),
            (#""syncCount":9007199254740993"#, "syncCount"), (#""x":1"#, "syncCount"),
            (#""syncCount":1,"deviceId":5"#, "deviceId"),
            (#""syncCount":1,"deviceId":"""#, "deviceId"),
            (#""syncCount":1,"datasetName":"a b""#, "datasetName"),
            (#""syncCount":1,"identityId":"X""#, "identityId"),
            (#""syncCount":1,"identityPoolId":7"#, "identityPoolId"),
        ]
    )
    func unusable(_ more: String, _ field: String) {
        let error = #expect(throws: DeadLetterReason.self) {
            try DatasetChangedRecord.decode(Self.record(Self.value(more)))
        }
        #expect(error?.reason == .invalidRequest)
        #expect(error?.detail.hasPrefix(field) == true)
    }

    private func push(_ devices: Int, bulk: Instant? = nil) -> SyncPush {
        SyncPush(
            app: "shop",
            pool: Self.pool,
            identity: Self.identity,
            dataset: "notes",
            syncCount: 7,
            installations: (0..<devices).map { "i\($0)" },
            apnsTopic: "com.example.shop",
            bulkStartedAt: bulk
        )
    }

    private func digest(_ bytes: [UInt8]) -> [UInt8] { Array(bytes.reversed()) }

    @Test("Each platform gets the five keys where its clients read them, all as strings")
    func shapes() throws {
        let records = push(2).records(
            at: Instant(milliseconds: 0),
            KafkaTopics(),
            digest: digest
        )
        let value = try #require(records.first?.value)
        let object = try #require(try JSONValue.parse(value).object)
        let data: JSONValue = [
            "source": "cognito-sync", "identityPoolId": .string(Self.pool),
            "identityId": .string(Self.identity), "datasetName": "notes", "syncCount": "7",
        ]
        let native = try #require(object["native"])
        #expect(native["apns"]?["payload"] == ["aps": ["content-available": 1], "data": data])
        #expect(native["apns"]?["headers"]?["apns-push-type"] == "background")
        #expect(native["apns"]?["headers"]?["apns-priority"] == "5")
        #expect(native["fcm"]?["message"]?["data"] == data)
        for name in ["wns", "mpns"] {
            let body = try #require(native[name]?["body"]?.string)
            #expect(try JSONValue.parse(Array(body.utf8)) == data)
        }
        #expect(object["installations"] == ["i0", "i1"])
        #expect(object["topic"] == "com.example.shop")
        #expect(object["id"]?.string == "\(Self.pool)/\(Self.identity)/notes/7")
        #expect(object["source"]?.string == PushIdentity.syncSource)
        let request = try PushRequest.parse(object, now: Instant(milliseconds: 0))
        #expect(request.repeatsOverwrite)
        #expect(request.unknownFields.isEmpty)
    }

    @Test("Many devices need several pushes, and a bulk publish has another id than its change")
    func ids() throws {
        let records = push(2500).records(
            at: Instant(milliseconds: 0),
            KafkaTopics(),
            digest: digest
        )
        #expect(records.count == 3)
        let ids = try records.map { try JSONValue.parse($0.value ?? [])["id"]?.string }
        #expect(Set(ids).count == 3)
        #expect(push(1, bulk: Instant(milliseconds: 5)).eventID.hasSuffix("/7/5"))
    }

    @Test("Ids and names follow the service's model")
    func names() {
        for id in ["us-east-1:0a-f", "a_b:0"] { #expect(SyncID.isWellFormed(id)) }
        for id in ["", "a", "a:", ":0", "a:G", "a:A", "a:0:0", "a b:0"] {
            #expect(!SyncID.isWellFormed(id), "\(id)")
        }
        #expect(!SyncID.isWellFormed("a:" + String(repeating: "0", count: 54)))
        for name in ["a", "A_.:-9", "..."] { #expect(SyncID.isDatasetName(name)) }
        for name in ["", ".", "..", "a b", "a/b", "é", String(repeating: "a", count: 129)] {
            #expect(!SyncID.isDatasetName(name), "\(name)")
        }
    }
}
