import JSON
import Postgres
package import PushCore
import Storage

/// The stored file of an import, and what a replica has to do with it.
package struct ImportUpload: Sendable, Equatable {
    package enum Task: String, Sendable {
        case dryRun = "dry_run"
        case run
    }

    package let id: Int
    package let app: String
    package let parts: Int
    package let isWhole: Bool
    package let task: Task?
    /// Whether a replica works on the task.
    package let isClaimed: Bool
    package let startedAt: Instant?
    package let startedRecords: Int
    package let dryRun: ImportDryRun?

    static let columns = """
        import, app, parts, is_whole, task, leased_until > now() AS is_claimed, started_at,
        started_records, dry_run
        """

    init(_ row: PostgresRow) throws {
        id = try row.integer("import")
        app = try row.text("app")
        parts = try row.integer("parts")
        isWhole = try row.boolean("is_whole")
        task = try row.textOrNil("task").flatMap(Task.init(rawValue:))
        isClaimed = try row.booleanOrNil("is_claimed") ?? false
        startedAt = try row.instantOrNil("started_at")
        startedRecords = try row.integer("started_records")
        dryRun = try row.jsonOrNil("dry_run").map(ImportDryRun.init)
    }

    /// Returns the records per second since a replica began; `nil` for less than a second.
    package func rate(of job: ImportJob) -> Int? {
        guard isClaimed, let startedAt else { return nil }
        let milliseconds = job.updatedAt.milliseconds - startedAt.milliseconds
        let records = job.counts.records - startedRecords
        guard milliseconds >= 1000, records > 0 else { return nil }
        return records * 1000 / Int(milliseconds)
    }
}

/// The result of a dry run: what an import would do.
package struct ImportDryRun: Sendable, Equatable {
    package let counts: ImportCounts
    /// The most frequent reasons, at most 50.
    package let reasons: [ImportReason]
    /// Why the file cannot be read to its end.
    package let failure: String?

    private static let storedReasons = 50

    init(_ end: ImportRun.End) {
        counts = end.job.counts
        reasons = Array(end.reasons.prefix(Self.storedReasons))
        failure = end.job.failure
    }

    /// The result of a dry run that could not begin.
    init(failure: String) {
        (counts, reasons, self.failure) = (ImportCounts(), [], failure)
    }

    init(_ json: JSONValue) {
        var counts = ImportCounts()
        counts.records = json["records"]?.integer ?? 0
        counts.imported = json["imported"]?.integer ?? 0
        counts.updated = json["updated"]?.integer ?? 0
        counts.skipped = json["skipped"]?.integer ?? 0
        counts.rejected = json["rejected"]?.integer ?? 0
        self.counts = counts
        failure = json["failure"]?.string
        reasons = (json["reasons"]?.array ?? []).map { entry in
            ImportReason(
                reason: entry["reason"]?.string ?? "",
                lines: entry["lines"]?.integer ?? 0,
                examples: (entry["examples"]?.array ?? []).compactMap(\.integer)
            )
        }
    }

    var json: JSONValue {
        var object: JSONObject = [
            "records": JSONValue(counts.records), "imported": JSONValue(counts.imported),
            "updated": JSONValue(counts.updated), "skipped": JSONValue(counts.skipped),
            "rejected": JSONValue(counts.rejected),
            "reasons": .array(
                reasons.map { reason in
                    [
                        "reason": .string(reason.reason), "lines": JSONValue(reason.lines),
                        "examples": .array(reason.examples.map { JSONValue($0) }),
                    ]
                }
            ),
        ]
        if let failure { object["failure"] = .string(failure) }
        return .object(object)
    }
}
