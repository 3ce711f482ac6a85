import Foundation
import Testing

@testable import IngestStorage
@testable import StorageAdmin

/// `Personal` lists all personal data: no table of the schema is forgotten.
@Suite("The list of personal data", .timeLimit(.minutes(1)))
struct PersonalTests {
    private static let file = URL(filePath: #filePath)
        .deletingLastPathComponent()
        .appending(path: "../../../Shared/Storage/Schema/schema.sql")

    private static let listed =
        Personal.first + Personal.secure + Personal.reports
        + Personal.rewritten

    /// Columns that may contain the name of a person or device, or belong to an app.
    private static let columns: Set<String> = [
        "app", "identity", "identities", "installation", "installations", "installation_id",
        "object_id", "device", "device_id", "target", "targets", "who", "token", "tokens", "writer",
        "modified_by", "members", "names", "payload", "dataset", "fields",
    ]

    /// Tables with such a column that no erasure reads.
    private static let exceptions: [(reason: String, tables: Set<String>)] = [
        (
            "the app's own, set by its operator; names no user or device",
            [
                "app_fields", "app_links", "app_opens", "config_announcements", "config_heads",
                "config_pending",
                "config_tokens", "config_versions", "connection_counts", "console_logins",
                "credentials",
                "hub_templates", "import_uploads", "imports",
                "ingest_streams", "ingest_types", "logins", "retired_keys", "sync_pools",
            ]
        ),
        ("counts, and the ids of pushes to many devices", ["push_figures"]),
        ("counts by versions of software, sign-ins and codes", ["realm_figures"]),
        ("goes with its dataset, for which it is a window of seconds", ["sync_windows"]),
        ("the fence: digests of erased names under a key", ["erased_names"]),
        ("an erasure's own job, which it deletes when it ends", ["erasure_jobs"]),
        ("jobs of versions before 31; nothing is added to it", ["erasures"]),
    ]

    /// Returns the columns of each table; those of a foreign key show as the table that it refers
    /// to.
    private static func tables() throws -> [String: Set<String>] {
        var tables: [String: Set<String>] = [:]
        var table = ""
        for line in try String(contentsOf: file, encoding: .utf8).split(separator: "\n") {
            if let match = line.wholeMatch(of: /CREATE TABLE ([a-z_0-9]+) \(/) {
                table = String(match.1)
                tables[table] = []
            } else if line.hasPrefix(")") {
                table = ""
            } else if !table.isEmpty, let match = line.prefixMatch(of: #/ {4}([a-z_0-9]+) /#) {
                tables[table]?.insert(String(match.1))
            } else if !table.isEmpty, let match = line.firstMatch(of: /REFERENCES ([a-z_]+)\(/) {
                tables[table]?.insert("-> " + match.1)
            }
        }
        return tables
    }

    @Test("Every table that may name a subject is in the list, or is an exception with a reason")
    func schema() throws {
        let tables = try Self.tables()
        #expect(tables.count > 40)
        let listed = Set(Self.listed.map(\.table))
        let exceptions = Self.exceptions.reduce(into: Set<String>()) { $0.formUnion($1.tables) }
        let columns = Self.columns.union(listed.map { "-> " + $0 })
        for (table, own) in tables where !table.hasPrefix("ingest_objects_") {
            let isAsked = !own.isDisjoint(with: columns)
            let isKnown = listed.contains(table) || exceptions.contains(table)
            #expect(isAsked ? isKnown : true, "\(table) may name a subject")
            // Its records have names inside.
            let isHidden = table == "outbox"
            #expect(exceptions.contains(table) ? isAsked : true, "\(table) is no exception")
            #expect(listed.contains(table) ? isAsked || isHidden : true, "\(table) has no name")
        }
        #expect(listed.union(exceptions).subtracting(tables.keys) == [])
        #expect(listed.isDisjoint(with: exceptions))
    }

    @Test("Receipts have a number for everything in the list, and for nothing else")
    func counts() {
        let objects = Personal.ingestObjects(IngestTable(number: 1), by: ["userId"])
        let counted = Set((Self.listed + [objects]).compactMap(\.count))
        // Of the deliveries, these were pending.
        #expect(counted.union(["endedDeliveries"]) == Set(ErasureCounts.names))
        #expect(ErasureCounts.names.count == Set(ErasureCounts.names).count)
    }

    @Test("An export shows the data that an erasure deletes")
    func exports() {
        let objects = Personal.ingestObjects(IngestTable(number: 1), by: ["userId"])
        let counted = Set((Self.listed + [objects]).compactMap(\.count))
        let shown = Set(SubjectExport.List.allCases.map(\.rawValue))
        // These are inside of `syncDatasets` and `syncDevices`, without content of their own.
        let inside: Set = ["syncRecords", "syncSubscriptions", "eventKeys", "shards"]
        #expect(counted.subtracting(shown) == inside.union(["outboxRecords"]))
        #expect(shown.subtracting(counted) == [])
        let exported = Set(Self.listed.compactMap { $0.export?.list })
        let elsewhere: Set<SubjectExport.List> = [
            .installations, .ingestObjects, .deliveries, .pushes, .auditEntries,
        ]
        #expect(exported.union(elsewhere) == Set(SubjectExport.List.allCases))
        #expect(exported.isDisjoint(with: elsewhere))
    }
}
