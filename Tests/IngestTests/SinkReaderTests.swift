import Cryptography
import IngestStorage
import Kafka
import PushCore
import PushEvents
import Testing

@testable import Ingest

@Suite("Parsing of records by the sink")
struct SinkReaderTests {
    private static let reader = SinkReader(topics: KafkaTopics(prefix: "eu."))
    private static let now = Instant(milliseconds: 1_790_000_000_000)
    private static let id = "0b5d4b1c-9d7e-4c55-8a43-1d8f6f6f2f10"

    private static func type(_ name: String, app: String?, _ subjects: [String]) -> StoredIngestType
    {
        StoredIngestType(
            number: app == nil ? 7 : 101,
            app: app,
            name: name,
            version: 1,
            schema: nil,
            retentionDays: nil,
            subjects: subjects,
            createdAt: now,
            updatedAt: now
        )
    }

    private static let known: SinkTypeCache.Known = [
        SinkTypeCache.Name(app: "shop", type: "Ride"): type("Ride", app: "shop", ["rider"]),
        SinkTypeCache.Name(app: "shop", type: "PushOpened"): type(
            "PushOpened",
            app: nil,
            ["installationId"]
        ),
    ]

    private static func read(
        _ value: String?,
        of type: String = "Ride",
        timestamp: Int64 = -1,
        _ headers: [String: String] = [:]
    ) throws(DeadLetterReason) -> SinkObject {
        var headers = headers
        if headers["app"] == nil { headers["app"] = "shop" }
        return try reader.object(
            of: KafkaRecord(
                topic: "eu.ingest." + type,
                partition: 0,
                offset: 0,
                timestampMilliseconds: timestamp,
                key: nil,
                value: value.map { Array($0.utf8) },
                headers: headers.map { KafkaHeader(name: $0.key, value: $0.value) }
            ),
            known,
            now: now
        )
    }

    @Test("The object stays unchanged, with its id, its subject and its headers beside it")
    func object() throws {
        let text = #"{"_id":"0B5D4B1C-9D7E-4C55-8A43-1D8F6F6F2F10", "rider":"x","rider":17}"#
        let object = try Self.read(
            text,
            ["schema.version": "3", "received.at": "2026-09-21T14:13:20.000Z"]
        )
        #expect(object.id == Self.id && object.object == Array(text.utf8))
        #expect(object.type == 101 && object.app == "shop" && object.schemaVersion == 3)
        #expect(object.subjects == ["17"] && object.receipt == nil)
        #expect(object.receivedAt == Instant(iso8601: "2026-09-21T14:13:20.000Z"))
    }

    @Test("An invalid time is replaced by the record's, or the current one")
    func times() throws {
        let text = #"{"_id":"\#(Self.id)"}"#
        for header in ["", "yesterday", "1970-01-01T00:00:00Z", "2100-01-01T00:00:00Z"] {
            let headers = ["received.at": header, "schema.version": "-1"]
            #expect(try Self.read(text, headers).receivedAt == Self.now)
            #expect(try Self.read(text, headers).schemaVersion == 0)
            let time = Self.now.milliseconds - 5000
            #expect(
                try Self.read(text, timestamp: time, headers).receivedAt.milliseconds == time
            )
        }
    }

    @Test("A record that cannot be an object of its type is a dead letter with the reason")
    func refused() {
        for (value, type, headers, reason) in [
            (nil, "Ride", [:], DeadLetterReason.Reason.emptyValue),
            ("{", "Ride", [:], .invalidJSON),
            ("[]", "Ride", [:], .notAnObject),
            ("{}", "Ride", [:], .invalidID),
            (#"{"_id":5}"#, "Ride", [:], .invalidID),
            (#"{"_id":"5"}"#, "Ride", [:], .invalidID),
            ("{}", "ride", [:], .unknownType),
            ("{}", "Ride", ["app": "other"], .unknownType),
            ("{}", "Ride", ["app": ""], .missingApp),
        ] as [(String?, String, [String: String], DeadLetterReason.Reason)] {
            let error = #expect(throws: DeadLetterReason.self) {
                try Self.read(value, of: type, headers)
            }
            #expect(error?.reason == reason)
        }
    }

    @Test("A report names its push by its id, by its event, or by both parts of the id")
    func reports() throws {
        func receipt(_ fields: String) throws -> SinkReceipt? {
            try Self.read(#"{"_id":"\#(Self.id)",\#(fields)}"#, of: "PushOpened").receipt
        }
        #expect(
            try receipt(#""pushId":"0B5D4B1C-9D7E-4C55-8A43-1D8F6F6F2F10","installationId":"i""#)
                == SinkReceipt(.opened, of: Self.id, installation: "i")
        )
        #expect(
            try receipt(#""eventId":"e""#) == SinkReceipt(.opened, of: "event/e", installation: nil)
        )
        let derived = PushIdentity.pushID(
            app: "shop",
            source: "s",
            eventID: "e",
            digest: { sha256($0) }
        )
        #expect(try receipt(#""eventId":"e","source":"s""#)?.target == derived)
        #expect(try receipt(#""action":"x""#) == nil)
    }
}
