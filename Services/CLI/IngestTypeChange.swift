import IngestStorage
import JSON
import JSONSchema
import PushCore
import PushEvents
import ServiceKit
import Settings

/// The change that an `ingest type put` makes. Pure: no clock, no I/O.
struct IngestTypeChange {
    let app: String
    let name: String
    let schema: ObjectSchema
    /// The stored type; `nil` if it is new.
    let current: StoredIngestType?
    let retentionDays: Int?
    let subject: String?

    /// Whether the schema differs from the stored version.
    var isNewVersion: Bool { current?.schema != schema.document }

    var isChange: Bool {
        guard let current else { return true }
        return isNewVersion || current.retentionDays != retentionDays
            || !(current.subjects.first ?? "").isSame(as: subject ?? "")
    }

    var nextVersion: Int { (current?.version ?? 0) + (isNewVersion ? 1 : 0) }

    func version(of type: StoredIngestType?) -> Int { type?.version ?? 0 }

    var columns: [(name: String, type: IngestColumnType)] { schema.columns }

    var new: NewIngestType {
        NewIngestType(
            app: app,
            name: name,
            // A schema with its members in another order is not another version.
            schema: isNewVersion ? schema.document : current?.schema ?? schema.document,
            columns: columns,
            retentionDays: retentionDays,
            subject: subject
        )
    }

    /// Returns an error with the first place where the schema rejects values that the stored
    /// version accepts; `nil` if there is no such place.
    func narrowing() throws(CommandFailure) -> SchemaError? {
        guard let current, let document = current.schema, isNewVersion else { return nil }
        return try content("version \(current.version) of \(name) cannot be read by this version: ")
        {
            try ObjectSchema(document.bytes, type: name, isStored: true).narrowing(in: schema)
        }
    }

    func sentence(isDryRun: Bool) -> String {
        guard let current else {
            return "\(isDryRun ? "would declare" : "declared") \(name) of \(app), version 1"
        }
        if isNewVersion {
            let done = isDryRun ? "would widen" : "widened"
            return "\(done) \(name) of \(app) to version \(nextVersion)"
        }
        guard isChange else { return "\(name) of \(app): version \(current.version) already" }
        let done = isDryRun ? "would change" : "changed"
        return "\(done) \(name) of \(app), still version \(current.version)"
    }
}

/// The retention option of a type: whole days.
enum RetentionOption {
    static let maximumDays = 36_500

    /// - Returns: `nil` for `none`: for ever.
    static func days(_ text: String) throws(ArgumentsError) -> Int? {
        if text == "none" { return nil }
        let day = Duration.seconds(86_400)
        guard let duration = parseDuration(text), duration >= day,
            duration <= day * maximumDays
        else { throw refusal }
        let days = Int(duration / day)
        guard day * days == duration else { throw refusal }
        return days
    }

    private static var refusal: ArgumentsError {
        ArgumentsError("--retention takes whole days, 1d to \(maximumDays)d, or none")
    }
}

extension ObjectSchema {
    /// The view's columns for the schema's properties, without the columns that every type has.
    var columns: [(name: String, type: IngestColumnType)] {
        properties.filter { !$0.name.isSame(as: "_id") }.map { ($0.name, $0.column.stored) }
    }
}

extension SchemaColumn {
    var stored: IngestColumnType {
        switch self {
        case .text: .text
        case .integer: .bigint
        case .number: .double
        case .boolean: .boolean
        case .time: .timestamptz
        case .json: .jsonb
        }
    }
}

extension StoredIngestType {
    var isBuiltIn: Bool { app == nil }

    var versionText: String { isBuiltIn ? "built in" : String(version) }
    var retentionText: String { retentionDays.map { "\($0)d" } ?? "for ever" }
    var subjectText: String { subjects.isEmpty ? "-" : subjects.joined(separator: ", ") }
    var table: String { "ingest_objects_\(number)" }

    /// Returns the columns of the newest version.
    func columns() throws(CommandFailure) -> [(name: String, type: IngestColumnType)] {
        guard let schema else { return BuiltInIngestType(rawValue: name)?.columns ?? [] }
        return try content("its schema cannot be read: ") {
            try ObjectSchema(schema.bytes, type: name, isStored: true).columns
        }
    }

    func json(view: String, _ topics: KafkaTopics) -> JSONObject {
        [
            "type": .string(name), "builtIn": .bool(isBuiltIn), "version": JSONValue(version),
            "view": .string(view), "table": .string(table),
            "kafkaTopic": .string(topics.ingest(name)),
            "retentionDays": retentionDays.map { JSONValue($0) } ?? .null,
            "subjects": .array(subjects.map { .string($0) }),
            "createdAt": .string(createdAt.iso8601), "updatedAt": .string(updatedAt.iso8601),
        ]
    }
}
