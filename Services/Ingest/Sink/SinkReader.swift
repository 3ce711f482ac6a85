import Cryptography
import IngestStorage
import JSON
import Kafka
import PushCore
import PushEvents

/// Reads the fields of a record that the sink needs. The object itself is stored as received.
struct SinkReader: Sendable {
    let topics: KafkaTopics

    /// The earliest time of receipt: 2020-01-01.
    private static let earliest = Instant(milliseconds: 1_577_836_800_000)
    /// The time by which a receiver's clock may be ahead of ours.
    private static let clockDifference: Int64 = 3_600_000

    /// Returns the app and the type's name; `nil` if no app is named.
    func type(of record: KafkaRecord) -> (app: String, type: String)? {
        guard let app = header("app", record), !app.isEmpty, !app.utf8.contains(0) else {
            return nil
        }
        return (app, String(record.topic.dropFirst(topics.ingestPrefix.count)))
    }

    func unknownType(of record: KafkaRecord) -> DeadLetterReason {
        guard let (app, type) = type(of: record) else {
            return DeadLetterReason(.missingApp, "the header app is missing")
        }
        return DeadLetterReason(
            .unknownType,
            "the app \(app.prefix(64)) has no type \(type.prefix(100))"
        )
    }

    /// Returns the object of a record, to be stored.
    func object(
        of record: KafkaRecord,
        _ known: SinkTypeCache.Known,
        now: Instant
    ) throws(DeadLetterReason) -> SinkObject {
        guard let (app, name) = type(of: record),
            let type = known[SinkTypeCache.Name(app: app, type: name)]
        else { throw unknownType(of: record) }
        guard let value = record.value, !value.isEmpty else {
            throw DeadLetterReason(.emptyValue, "the record has no value")
        }
        let fields = try Self.fields(of: value, type)
        guard let id = fields.id.flatMap(IngestID.canonical) else {
            throw DeadLetterReason(.invalidID, "_id is neither a UUID nor an ObjectId")
        }
        let version = header("schema.version", record).flatMap(Int32.init) ?? 0
        return SinkObject(
            type: type.number,
            app: app,
            id: id,
            receivedAt: receivedAt(record, now: now),
            schemaVersion: max(0, Int(version)),
            object: value,
            subjects: fields.subjects,
            receipt: fields.report.receipt(of: type, app)
        )
    }

    private func header(_ name: String, _ record: KafkaRecord) -> String? {
        record.headers.first { $0.name == name }.map { String(decoding: $0.value, as: UTF8.self) }
    }

    /// Returns the time in the header, or else the record's, if it is plausible; otherwise the
    /// present.
    private func receivedAt(_ record: KafkaRecord, now: Instant) -> Instant {
        let latest = now.adding(milliseconds: Self.clockDifference)
        let told = header("received.at", record).flatMap(Instant.init(iso8601:))
        let times = [told, Instant(milliseconds: record.timestampMilliseconds)]
        return times.lazy.compactMap { $0 }.first { $0 >= Self.earliest && $0 <= latest } ?? now
    }

    // MARK: The object

    private struct Fields {
        var id: String?
        /// The names of subjects, in the order of the type's `subjects`.
        var named: [String?]
        var report = Report()

        var subjects: [String] { named.compactMap { $0 } }
    }

    /// The fields of `PushOpened` and `PushReceived`.
    private struct Report {
        var pushID: String?
        var eventID: String?
        var source: String?
        var installation: String?

        func receipt(of type: StoredIngestType, _ app: String) -> SinkReceipt? {
            let kind: ReceiptKind
            switch type.app == nil ? BuiltInIngestType(rawValue: type.name) : nil {
            case .pushOpened: kind = .opened
            case .pushReceived: kind = .received
            default: return nil
            }
            guard let target = target(app) else { return nil }
            return SinkReceipt(kind, of: target, installation: installation)
        }

        private func target(_ app: String) -> String? {
            if let pushID { return pushID.lowercased() }
            guard let eventID else { return nil }
            guard let source else { return "event/" + eventID }
            return PushIdentity.pushID(
                app: app,
                source: source,
                eventID: eventID,
                digest: { sha256($0) }
            )
        }
    }

    /// Reads the fields; the last of a repeated key counts, as in Postgres.
    private static func fields(
        of value: [UInt8],
        _ type: StoredIngestType
    ) throws(DeadLetterReason) -> Fields {
        let subjects = type.subjects
        let isReport = type.app == nil && type.name.hasPrefix("Push")
        var fields = Fields(named: Array(repeating: nil, count: subjects.count))
        let isObject: Bool
        do throws(JSONError) {
            isObject = try JSONReader.read(value) { reader throws(JSONError) in
                try reader.object { key, reader throws(JSONError) in
                    if key.isEqual(to: "_id") {
                        fields.id = try reader.string()
                        return
                    }
                    guard !subjects.isEmpty else { return }
                    let name = key.text
                    if let place = subjects.firstIndex(of: name) {
                        fields.named[place] = text(of: try reader.tree())
                        if isReport { fields.report.installation = fields.named[place] }
                    } else if isReport {
                        switch name {
                        case "pushId": fields.report.pushID = try reader.string()
                        case "eventId": fields.report.eventID = try reader.string()
                        case "source": fields.report.source = try reader.string()
                        default: break
                        }
                    }
                }
            }
        } catch {
            throw DeadLetterReason(.invalidJSON, error.description)
        }
        guard isObject else { throw DeadLetterReason(.notAnObject, "the value is not an object") }
        return fields
    }

    /// Returns a value as Postgres converts it to text.
    private static func text(of value: JSONValue) -> String? {
        value.string ?? value.integer.map(String.init)
    }
}
