import IngestStorage
import Kafka
import PushCore
import PushEvents
import Storage
import StorageAdmin

extension Command {
    static let migrate = Command(
        "migrate",
        "Apply schema migrations and create missing Kafka topics",
        options: []
    ) { _, context in
        // Read first, so that an invalid variable leaves nothing half done.
        let (kafka, partitions) = (try context.kafka(), try context.partitions())
        let database = try context.bareDatabase()
        let applied = try await database.migrate()
        if applied.isEmpty {
            Terminal.printLine("schema: at version \(PushDatabase.schemaVersion) already")
        } else {
            let list = applied.map(String.init).joined(separator: ", ")
            Terminal.printLine("schema: applied \(list)")
        }
        // Creates the partitions of the next days, so that the first push finds its partition.
        _ = try await database.maintenance.maintain(hostTime: .now())
        _ = try await database.ingestUpkeep.rotatePartitions(hostTime: .now())
        try await database.ingestTypes.makeBuiltInViews()
        let topics = try context.topics()
        let declared = try await database.ingestTypes.names().map(topics.ingest)
        let names = topics.all + declared.filter { !topics.all.contains($0) }
        let created = try await KafkaAdmin.ensureTopics(
            names.map { (name: $0, partitions: partitions) },
            kafka,
            on: context.loop
        )
        Terminal.printLine(
            created.isEmpty
                ? "topics: all \(names.count) are there already"
                : "topics: created \(created.joined(separator: ", "))"
        )
        return 0
    }
}
