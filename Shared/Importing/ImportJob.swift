package import InstallationStorage
import JSON
import Postgres
package import PushCore
import Storage

/// The choices of an import.
package struct ImportOptions: Sendable, Equatable {
    package var existing: ExistingRule
    /// The fields of a CSV file by column; columns that it does not have are mapped by their names.
    package var columns: [String: String]

    package init(existing: ExistingRule = .newer, columns: [String: String] = [:]) {
        (self.existing, self.columns) = (existing, columns)
    }

    var json: JSONObject {
        var object: JSONObject = ["existing": .string(existing.rawValue)]
        if !columns.isEmpty {
            object["columns"] = .object(
                JSONObject(columns.sorted { $0.key < $1.key }.map { ($0, .string($1)) })
            )
        }
        return object
    }

    init(json: JSONObject) {
        existing = json["existing"]?.string.flatMap(ExistingRule.init) ?? .newer
        columns = [:]
        for (column, field) in json["columns"]?.object ?? [:] {
            columns[column] = field.string ?? CSVMapping.skip
        }
    }
}

/// The counts of an import: `records = imported + updated + skipped + rejected`.
package struct ImportCounts: Sendable, Equatable {
    package var records = 0
    package var imported = 0
    package var updated = 0
    package var skipped = 0
    package var rejected = 0

    package init() {}

    mutating func add(_ outcome: ImportOutcome) {
        records += 1
        switch outcome {
        case .imported: imported += 1
        case .updated: updated += 1
        case .skipped: skipped += 1
        case .rejected: rejected += 1
        }
    }

    static func + (left: ImportCounts, right: ImportCounts) -> ImportCounts {
        var sum = left
        sum.records += right.records
        sum.imported += right.imported
        sum.updated += right.updated
        sum.skipped += right.skipped
        sum.rejected += right.rejected
        return sum
    }
}

/// A place in the decompressed file, between two records.
package struct ImportPosition: Sendable, Equatable {
    package var bytes = 0
    /// The line there; the first line is 1.
    package var line = 1
    /// The bytes that were read from the file, before decompression.
    package var consumed = 0
}

/// One import of one file.
package struct ImportJob: Sendable, Equatable {
    package enum State: String, Sendable, CaseIterable {
        case running, paused, finished, failed, stopped

        /// Whether the same file continues the job.
        package var isUnfinished: Bool { self != .finished }
    }

    package let id: Int
    package let app: String
    package let format: ImportFormat
    package let fileName: String
    /// `nil` for a pipe.
    package let fileBytes: Int?
    package let options: ImportOptions
    package internal(set) var state: State
    package internal(set) var failure: String?
    package internal(set) var position: ImportPosition
    package internal(set) var counts: ImportCounts
    package let author: String
    package let createdAt: Instant
    package internal(set) var updatedAt: Instant
    package internal(set) var finishedAt: Instant?

    /// The share of the file that was read, 0...1; `nil` for a pipe.
    package var share: Double? {
        guard let fileBytes else { return nil }
        if state == .finished || fileBytes == 0 { return 1 }
        return min(1, Double(position.consumed) / Double(fileBytes))
    }

    /// A job that is not stored.
    init(
        dryRunOf app: String,
        _ format: ImportFormat,
        _ file: ImportSource.Fingerprint?,
        _ options: ImportOptions
    ) {
        (id, author) = (0, "")
        (self.app, self.format, self.options) = (app, format, options)
        (fileName, fileBytes) = (file?.name ?? "-", file?.bytes)
        state = .running
        (position, counts) = (ImportPosition(), ImportCounts())
        createdAt = .now()
        updatedAt = createdAt
    }

    static let columns = """
        id, app, format, file_name, file_bytes, options, state, failure, position, line, consumed,
        records, imported, updated, skipped, rejected, author, created_at, updated_at, finished_at
        """

    init(_ row: PostgresRow) throws {
        id = try row.integer("id")
        app = try row.text("app")
        guard let format = ImportFormat(rawValue: try row.text("format")),
            let state = State(rawValue: try row.text("state"))
        else { throw ImportError(.unusable, "the import is one of a newer version") }
        (self.format, self.state) = (format, state)
        fileName = try row.text("file_name")
        fileBytes = try row.integerOrNil("file_bytes")
        options = ImportOptions(json: try row.json("options").object ?? [:])
        failure = try row.textOrNil("failure")
        position = ImportPosition(
            bytes: try row.integer("position"),
            line: try row.integer("line"),
            consumed: try row.integer("consumed")
        )
        counts = ImportCounts()
        counts.records = try row.integer("records")
        counts.imported = try row.integer("imported")
        counts.updated = try row.integer("updated")
        counts.skipped = try row.integer("skipped")
        counts.rejected = try row.integer("rejected")
        author = try row.text("author")
        createdAt = try row.instant("created_at")
        updatedAt = try row.instant("updated_at")
        finishedAt = try row.instantOrNil("finished_at")
    }
}

/// A reason of rejected lines.
package struct ImportReason: Sendable, Equatable {
    package let reason: String
    package let lines: Int
    /// The first lines, at most five.
    package let examples: [Int]
}

/// A rejected line. The record itself is not stored.
package struct ImportRejection: Sendable, Equatable {
    package let line: Int
    package let reason: String
}
