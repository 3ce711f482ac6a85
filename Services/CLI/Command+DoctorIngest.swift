import Kafka
import PushCore
import PushEvents
import PushStorage

/// What devices' objects need, and what is the matter with it.
extension Doctor {
    mutating func examineIngest(_ database: PushDatabase, _ cluster: KafkaCluster?) async throws {
        let before = findings.count
        let topics = try context.topics()
        let names = try await database.ingestTypes.names()
        // Those of built-in types have findings already.
        for name in names where BuiltInIngestType(rawValue: name) == nil {
            let topic = topics.ingest(name)
            guard let cluster, !cluster.topics.contains(where: { $0.name == topic }) else {
                continue
            }
            found("ingest \(name)", .failed, "its topic \(topic) is missing: run carillon migrate")
        }
        // A table of a built-in type is that of all apps.
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
                    found(name, .failed, "its view \(view) is gone: somebody dropped it")
                } else if views[type.number] == nil {
                    found(name, .failed, "it has no view: run carillon migrate")
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
        found(
            "ingest",
            .ok,
            "\(count) declared and \(BuiltInIngestType.allCases.count) built-in types"
        )
    }

    private mutating func examineTable(
        of type: StoredIngestType,
        _ app: String,
        isMissing: Bool,
        _ database: PushDatabase
    ) async throws {
        let name = "ingest \(type.isBuiltIn ? "" : app + " ")\(type.name)"
        guard !isMissing else {
            return found(name, .failed, "its table \(type.table) is missing: nothing is stored")
        }
        guard let days = type.retentionDays,
            let overdue = try await database.ingestState.overdue(in: type.table, keptDays: days)
        else { return }
        found(
            name,
            .warning,
            "its objects are kept for \(days) days, and \(overdue.count) older day(s) are there, since"
                + " \(overdue.since.iso8601): does a carillon-ingest with INGEST_SINK=on run?"
        )
    }
}
