import ConfigStorage
import EventLoop
import Kafka
import Observability
import PushCore
import PushEvents
import ServiceKit
import ServiceShell
import Storage

/// Reads the versions that other systems published to `config.published`, and records which of them
/// are to be announced. A version that was published here was recorded by its publish. It is
/// recognized by `RecordHeader.origin`, and skipped.
///
/// - Returns: A consumer that finishes a record once it is recorded in Postgres, was announced before, or is
///   a dead letter.
func configIntake(
    _ consumer: KafkaConsumer,
    _ producer: KafkaProducer,
    _ database: PushDatabase,
    _ topics: KafkaTopics,
    in runtime: ServiceRuntime
) -> RecordConsumer {
    let notes = PublishedVersions(database, runtime)
    return RecordConsumer(
        "config-intake",
        of: consumer,
        deadLetters: DeadLetterWriter(producer, topics: topics, in: runtime),
        retry: RecordRetry(cannot: "published versions cannot be noted", in: runtime),
        decode: ConfigPublishedRecord.decode,
        store: notes.note
    )
}

/// Records the versions that other systems published.
private actor PublishedVersions {
    private nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    private let database: PushDatabase
    private let heardOf: Counter
    /// The origin in the records of versions that were published here, by any replica.
    private var origin: [UInt8]?

    init(_ database: PushDatabase, _ runtime: ServiceRuntime) {
        loop = runtime.mainLoop
        self.database = database
        heardOf = runtime.metrics.counter(.configPublishedRecords)
    }

    /// - Returns: The records that can never be announced.
    func note(
        _ all: [(record: IncomingRecord, value: ConfigPublishedRecord)]
    ) async throws -> [DeadLetterWriter.Unusable] {
        let origin = try await ownOrigin()
        let read = all.filter { item in
            !item.record.headers.contains { $0.name == RecordHeader.origin && $0.value == origin }
        }
        guard !read.isEmpty else { return [] }
        let names = Set(read.map(\.value.project))
        let apps = try await database.apps.known(among: names)
        let linked = try await database.appLinks.apps(
            .fcmProject,
            names: names.subtracting(apps).sorted()
        )
        var unusable: [DeadLetterWriter.Unusable] = []
        var heard: [(record: IncomingRecord, config: PublishedConfig)] = []
        for (record, published) in read {
            let app =
                apps.contains(published.project)
                ? published.project : linked.first { $0.name == published.project }?.app
            guard let app else {
                unusable.append((record, .unknownApp(published.project)))
                continue
            }
            // Clients do not fetch server templates, so these are not announced.
            guard published.namespace == ConfigPublishedRecord.clientNamespace else { continue }
            let config = PublishedConfig(
                app: app,
                namespace: published.namespace,
                version: published.version,
                updateType: published.updateType
            )
            heard.append((record, config))
        }
        let usable = try await database.configAnnouncements.note(heard.map(\.config))
        for (item, isUsable) in zip(heard, usable) where !isUsable {
            let reason = DeadLetterReason(
                .invalidRequest,
                "version \(item.config.version) is above the current one of the app's template"
            )
            unusable.append((item.record, reason))
        }
        heardOf.add(read.count)
        return unusable
    }

    private func ownOrigin() async throws -> [UInt8] {
        if let origin { return origin }
        let read = Array((try await database.config.origin() ?? "").utf8)
        origin = read
        return read
    }
}
