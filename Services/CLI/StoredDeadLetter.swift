import Cryptography
import JSON
import Kafka
import PushCore
import PushEvents
import ServiceKit

/// A record of `push.dead-letters`. Pure: no clock, no I/O.
struct StoredDeadLetter: Equatable {
    /// The `source.topic` of a dead letter that came over HTTP is this and the route.
    private static let httpMark = "http:"

    /// The name of a dead letter: `<partition>/<offset>`.
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

    /// The destination of a replay.
    enum ReplayTarget: Equatable {
        /// Back to its original topic, unchanged.
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

    /// The partition and offset of the original record, if it came from Kafka.
    var sourcePlace: String? {
        guard !source.hasPrefix(Self.httpMark), let partition = text("source.partition"),
            let offset = text("source.offset")
        else { return nil }
        return "\(partition)/\(offset)"
    }

    /// The app that the headers name, or else the app in the record's JSON.
    var app: String? {
        if let app = text("app") ?? text("ce_app") { return app }
        return (try? JSONValue.parse(record.value ?? []))?["app"]?.string
    }

    private func text(_ name: String) -> String? {
        record.headers.last { $0.name == name }.map { String(decoding: $0.value, as: UTF8.self) }
    }

    /// Finds where a replay sends this dead letter.
    ///
    /// - Parameter topics: Carillon's topics: a replay writes to no other.
    /// - Returns: The destination; `.none` with the reason if it cannot be replayed.
    func replayTarget(_ topics: KafkaTopics) -> ReplayTarget {
        guard let value = record.value else {
            return .none(isOmitted ? "it was too large to be stored" : "it holds no value")
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
        else { return .none("it came from an unknown topic") }
        return .kafka(topic: source)
    }

    /// Whether its content was too large, and was left out. Old versions wrote no header that says so: their
    /// dead letter has no value if its content was left out, or if the record had none.
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

    /// The headers that a dead letter adds to the record's own.
    private static let added = [
        "error.reason", "error.detail", "source.topic", "source.partition", "source.offset",
        OutgoingRecord.deadLetterContentHeader,
    ]

    /// Returns the original record.
    func outgoing(to topic: String) -> KafkaOutgoing {
        KafkaOutgoing(
            topic: topic,
            key: record.key,
            value: record.value,
            headers: record.headers.filter { !Self.added.contains($0.name) }
        )
    }

    /// The request to intake.
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

    /// All members; bytes that are not text are shown as Base64.
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
