// Dead letters, for commands and pages: what a record of `push.dead-letters` says, who may see it, and
// where a replay sends it (`StoredDeadLetter`); and the latest of them, read from Kafka when somebody
// looks (`DeadLetterLog`).
//
// Authority: none. This module only reads Kafka. Its callers produce what they replay.

import Cryptography
package import JSON
package import Kafka
package import PushCore
package import PushEvents

/// A record of `push.dead-letters`. Pure: no clock, no I/O.
package struct StoredDeadLetter: Equatable, Sendable {
    /// The `source.topic` of a dead letter that came over HTTP is this and the route.
    static let httpMark = "http:"

    /// The name of a dead letter: `<partition>/<offset>`.
    package struct ID: Hashable, Sendable {
        package let partition: Int32
        package let offset: Int64

        package init(partition: Int32, offset: Int64) {
            self.partition = partition
            self.offset = offset
        }

        package init?(_ text: String) {
            let parts = text.split(separator: "/", omittingEmptySubsequences: false)
            guard parts.count == 2, let partition = Int32(parts[0]), let offset = Int64(parts[1]),
                partition >= 0, offset >= 0
            else { return nil }
            self.init(partition: partition, offset: offset)
        }

        package var text: String { "\(partition)/\(offset)" }
    }

    /// The destination of a replay.
    package enum ReplayTarget: Equatable, Sendable {
        /// Back to its original topic, unchanged.
        case kafka(topic: String)
        /// Through intake.
        case intake(route: String, app: String)
        case none(Obstacle)
    }

    /// Why a dead letter cannot be replayed at all.
    package enum Obstacle: Equatable, Sendable, CustomStringConvertible {
        case omitted, noValue, unknownRoute(String), noApp, notJSON, unknownTopic

        package var description: String {
            switch self {
            case .omitted: "it was too large to be stored"
            case .noValue: "it holds no value"
            case .unknownRoute(let source): "nothing takes \(source) again"
            case .noApp: "it names no app"
            case .notJSON: "it is not JSON"
            case .unknownTopic: "it came from an unknown topic"
            }
        }
    }

    package let record: KafkaRecord

    package init(record: KafkaRecord) { self.record = record }

    package var id: ID { ID(partition: record.partition, offset: record.offset) }
    package var at: Instant? {
        record.timestampMilliseconds < 0
            ? nil : Instant(milliseconds: record.timestampMilliseconds)
    }

    package var reason: String { text("error.reason") ?? "" }
    package var detail: String { text("error.detail") ?? "" }
    package var source: String { text("source.topic") ?? "" }
    package var size: Int { record.value?.count ?? 0 }

    /// The partition and offset of the original record, if it came from Kafka.
    package var sourcePlace: String? {
        guard !source.hasPrefix(Self.httpMark), let partition = text("source.partition"),
            let offset = text("source.offset")
        else { return nil }
        return "\(partition)/\(offset)"
    }

    /// The app that the headers name, or else the app in the record's JSON.
    package var app: String? {
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
    package func replayTarget(_ topics: KafkaTopics) -> ReplayTarget {
        guard let value = record.value else {
            return .none(isOmitted ? .omitted : .noValue)
        }
        if source.hasPrefix(Self.httpMark) {
            let route = String(source.dropFirst(Self.httpMark.count))
            guard route == Self.segmentRoute || Self.isNativeRoute(route) else {
                return .none(.unknownRoute(source))
            }
            guard let app = text("app"), AppID.isWellFormed(app) else {
                return .none(.noApp)
            }
            guard (try? JSONValue.parse(value)) != nil else { return .none(.notJSON) }
            return .intake(route: route, app: app)
        }
        guard topics.all.contains(where: { $0.isSame(as: source) }) || isIngest(topics),
            !source.isSame(as: topics.deadLetters)
        else { return .none(.unknownTopic) }
        return .kafka(topic: source)
    }

    private static let segmentRoute = "/v1/batch"
    private static let nativeRoute = "/v1/ingest/"

    /// Whether it is the route of one type's objects.
    private static func isNativeRoute(_ route: String) -> Bool {
        route.hasPrefix(nativeRoute)
            && IngestTypeName.isWellFormed(String(route.dropFirst(nativeRoute.count)))
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
    package func outgoing(to topic: String) -> KafkaOutgoing {
        KafkaOutgoing(
            topic: topic,
            key: record.key,
            value: record.value,
            headers: ownHeaders
        )
    }

    /// The headers of the original record.
    package var ownHeaders: [KafkaHeader] {
        record.headers.filter { !Self.added.contains($0.name) }
    }

    /// The request to intake: an object of a type, or a batch of one item.
    package var intakeBody: [UInt8] {
        let value = record.value ?? []
        guard source == Self.httpMark + Self.segmentRoute else { return value }
        return Array(#"{"batch":["#.utf8) + value + Array("]}".utf8)
    }

    package var json: JSONObject {
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
    package var wholeJSON: JSONObject {
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
