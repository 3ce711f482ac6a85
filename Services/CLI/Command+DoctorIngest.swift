import IngestStorage
import Kafka
import PushCore
import PushEvents
import Storage

/// The checks of the topics, tables and views for devices' objects.
extension Doctor {
    mutating func examineIngest(_ database: PushDatabase, _ cluster: KafkaCluster?) async throws {
        let before = findings.count
        let topics = try context.topics()
        let names = try await database.ingestTypes.names()
        // Missing topics of built-in types already have findings.
        for name in names where BuiltInIngestType(rawValue: name) == nil {
            let topic = topics.ingest(name)
            guard let cluster, !cluster.topics.contains(where: { $0.name == topic }) else {
                continue
            }
            fail("ingest \(name)", "its topic \(topic) is missing: run carillon migrate")
        }
        // All apps share the table of a built-in type.
        var known: Set<Int> = []
        for app in try await database.apps.list() where !app.isClosed {
            let types = try await database.ingestTypes.list(of: app.id)
            let views = try await database.ingestState.views(of: app.id)
            let missing = try await database.ingestState.missing(
                among: Set(views.values).union(types.map(\.table))
            )
            for type in types {
                let name = "ingest \(app.id) \(type.name)"
                if let view = views[type.number], missing.contains(view) {
                    fail(name, "its view \(view) does not exist: it was dropped")
                } else if views[type.number] == nil {
                    fail(name, "it has no view: run carillon migrate")
                }
                guard known.insert(type.number).inserted else { continue }
                try await examineTable(
                    of: type,
                    app.id,
                    isMissing: missing.contains(type.table),
                    database
                )
            }
        }
        guard findings.count == before else { return }
        let count = names.count { BuiltInIngestType(rawValue: $0) == nil }
        ok("ingest", "\(count) declared and \(BuiltInIngestType.allCases.count) built-in types")
    }

    private mutating func examineTable(
        of type: StoredIngestType,
        _ app: String,
        isMissing: Bool,
        _ database: PushDatabase
    ) async throws {
        let name = "ingest \(type.isBuiltIn ? "" : app + " ")\(type.name)"
        guard !isMissing else {
            return fail(name, "its table \(type.table) is missing: nothing is stored")
        }
        guard let days = type.retentionDays,
            let overdue = try await database.ingestState.overdue(in: type.table, keptDays: days)
        else { return }
        warn(
            name,
            "its objects are stored for \(days) days, and \(overdue.count) older day(s) are there, since"
                + " \(overdue.since.iso8601): does a carillon-ingest with INGEST_SINK=on run?"
        )
    }
}
