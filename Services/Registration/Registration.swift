import Door
import EventLoop
import HTTPServer
import Kafka
import Observability
import Outbox
import PushStorage
import ServiceKit

/// Devices register here, and backends ask for pushes.
///
/// Flow: `LeanCloudSurface`, `AzureSurface`, `ParseSurface` → `PushDatabase` (installations; pushes
/// with their outbox row) → `OutboxRelay` → Kafka's `push.requests`; `CognitoSurface` → `PushDatabase`
/// (datasets, with the outbox row of each change) → `OutboxRelay` → Kafka's `dataset.changes`.
@main
struct Registration {
    static func main() async {
        await runService(
            "registration",
            about: "devices, channels and identities; accepts pushes and reports on them",
            variables: RegistrationConfiguration.variables,
            loops: .perCore,
            reading: RegistrationConfiguration.init,
            parts: makeParts
        )
    }
}

/// Each loop answers for its connections from rooms of its own; the relay lives on the first.
func makeParts(
    _ configuration: RegistrationConfiguration,
    in runtime: ServiceRuntime
) throws -> [any ServicePart] {
    let rooms = LoopRooms.make(
        configuration.database,
        keys: configuration.masterKeys,
        limits: configuration.limits,
        in: runtime
    )
    let sessions = SyncSessionCounts(rooms[0].database, on: runtime.mainLoop, log: runtime.log)
    let server = try SurfaceServer(configuration.http, rooms, in: runtime) { rooms in
        surfaces(on: rooms.database, configuration, sessions, runtime)
    }
    let producer = try KafkaProducer(
        configuration.kafka,
        deliveryTimeout: OutboxRelay.deliveryTimeout,
        on: runtime.mainLoop,
        log: runtime.log,
        metrics: runtime.metrics
    )
    let relay = OutboxRelay(
        from: rooms[0].database,
        to: producer,
        on: runtime.mainLoop,
        log: runtime.log,
        metrics: runtime.metrics
    )
    return rooms.flatMap(\.parts)
        + [sessions, server, Part("producer", run: { try await producer.run() }), relay]
}

/// One value of each a loop, over that loop's database.
func surfaces(
    on database: PushDatabase,
    _ configuration: RegistrationConfiguration,
    _ sessions: SyncSessionCounts,
    _ runtime: ServiceRuntime
) -> [any Surface] {
    let saved = runtime.metrics.counter(.installationsSaved)
    let objects = ObjectOperations(database: database, saved: saved)
    let pushes = PushOperations(acceptance: PushAcceptance(database, topics: configuration.topics))
    return [
        LeanCloudSurface(database: database, objects: objects, pushes: pushes),
        ParseSurface(objects: objects, pushes: pushes, log: runtime.log),
        AzureSurface(database: database, pushes: pushes, saved: saved),
        CognitoSurface(
            database: database,
            tokens: CognitoTokens(keys: configuration.masterKeys),
            sessions: sessions,
            topics: configuration.topics
        ),
        OwnSurface(database: database, hasOperations: !runtime.operations.isApart),
    ]
}
