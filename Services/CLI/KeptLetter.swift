import Cryptography
import JSON
import Kafka
import PushCore
import PushEvents
import ServiceKit

/// A record of `push.dead-letters`. Pure: no clock, no I/O.
struct KeptLetter: Equatable {
    /// What a letter of an item that came over HTTP names as its topic, before the route.
    private static let httpMark = "http:"

    /// How it is named: `<partition>/<offset>`.
    struct ID: Hashable {
        let partition: Int32
        let offset: Int64

        init(partition: Int32, offset: Int64) {
            self.partition = partition
            self.offset = offset
        }

        init?(_ text: String) {
            let parts = text.split(separator: "/", omittingEmptySubsequences: false)
            guard parts.count == 2, let partition = Int32(parts[0]), let offset = Int64(parts[1]),
                partition >= 0, offset >= 0
            else { return nil }
            self.init(partition: partition, offset: offset)
        }

        var text: String { "\(partition)/\(offset)" }
    }

    /// Where it goes when it is replayed.
    enum Way: Equatable {
        /// Back to the topic that it came from, as it was there.
        case kafka(topic: String)
        /// Through intake.
        case intake(route: String, app: String)
        case none(String)
    }

    let record: KafkaRecord

    var id: ID { ID(partition: record.partition, offset: record.offset) }
    var at: Instant? {
        record.timestampMilliseconds < 0
            ? nil : Instant(milliseconds: record.timestampMilliseconds)
    }

    var reason: String { text("error.reason") ?? "" }
    var detail: String { text("error.detail") ?? "" }
    var source: String { text("source.topic") ?? "" }
    var size: Int { record.value?.count ?? 0 }

    /// Where it was read, where that is a place on Kafka.
    var sourcePlace: String? {
        guard !source.hasPrefix(Self.httpMark), let partition = text("source.partition"),
            let offset = text("source.offset")
        else { return nil }
        return "\(partition)/\(offset)"
    }

    /// As the letter says, or what the record in it says of itself.
    var app: String? {
        if let app = text("app") ?? text("ce_app") { return app }
        return (try? JSONValue.parse(record.value ?? []))?["app"]?.string
    }

    private func text(_ name: String) -> String? {
        record.headers.last { $0.name == name }.map { String(decoding: $0.value, as: UTF8.self) }
    }

    /// - Parameter topics: Ours: a letter brings nothing to any other.
    /// - Returns: Where it goes, or why nowhere.
    func way(_ topics: KafkaTopics) -> Way {
        guard let value = record.value else {
            return .none(isOmitted ? "it was too large to be kept" : "it holds no value")
        }
        if source.hasPrefix(Self.httpMark) {
            let route = String(source.dropFirst(Self.httpMark.count))
            guard route == "/v1/batch" else { return .none("nothing takes \(source) again") }
            guard let app = text("app"), AppID.isWellFormed(app) else {
                return .none("it names no app")
            }
            guard (try? JSONValue.parse(value)) != nil else { return .none("it is not JSON") }
            return .intake(route: route, app: app)
        }
        guard topics.all.contains(where: { $0.isSame(as: source) }) || isIngest(topics),
            !source.isSame(as: topics.deadLetters)
        else { return .none("it came from none of our topics") }
        return .kafka(topic: source)
    }

    /// Whether its content was left out, by its header. Letters of versions without that header hold no value
    /// for no other cause than that, or than that there was none.
    private var isOmitted: Bool {
        if let content = text(OutgoingRecord.deadLetterContentHeader) {
            return content.isSame(as: OutgoingRecord.deadLetterContentOmitted)
        }
        return record.key == nil && !reason.isSame(as: DeadLetterReason.Reason.emptyValue.rawValue)
    }

    private func isIngest(_ topics: KafkaTopics) -> Bool {
        source.hasPrefix(topics.ingestPrefix)
            && IngestTypeName.isWellFormed(String(source.dropFirst(topics.ingestPrefix.count)))
    }

    /// What made it a letter, and is not the record's own.
    private static let added = [
        "error.reason", "error.detail", "source.topic", "source.partition", "source.offset",
        OutgoingRecord.deadLetterContentHeader,
    ]

    /// The record as it came before it was a letter.
    func outgoing(to topic: String) -> KafkaOutgoing {
        KafkaOutgoing(
            topic: topic,
            key: record.key,
            value: record.value,
            headers: record.headers.filter { !Self.added.contains($0.name) }
        )
    }

    /// What intake takes it as.
    var batch: [UInt8] {
        Array(#"{"batch":["#.utf8) + (record.value ?? []) + Array("]}".utf8)
    }

    var json: JSONObject {
        var object: JSONObject = [
            "id": .string(id.text), "reason": .string(reason), "detail": .string(detail),
            "source": .string(source), "bytes": JSONValue(size),
        ]
        object["at"] = at.map { .string($0.iso8601) }
        object["sourcePlace"] = sourcePlace.map { .string($0) }
        object["app"] = app.map { .string($0) }
        return object
    }

    /// With all that it holds; what is no text as Base64.
    var wholeJSON: JSONObject {
        var object = json
        object["key"] = Self.shown(record.key)
        object["value"] = Self.shown(record.value)
        object["headers"] = .array(
            record.headers.map { ["name": .string($0.name), "value": Self.shown($0.value)] }
        )
        return object
    }

    private static func shown(_ bytes: [UInt8]?) -> JSONValue {
        guard let bytes else { return .null }
        guard let text = String(validating: bytes, as: UTF8.self) else {
            return ["base64": .string(Base64.encode(bytes))]
        }
        return .string(text)
    }
}
