import Door
import EventLoop
import HTTPServer
import Kafka
import Logins
import Observability
import Outbox
import PushEvents
import PushStorage
import ServiceKit

/// Keeps content for one identity, rings its devices with nothing but an id, and hands the content to
/// whoever proves to be that identity.
///
/// Flow: `SecureSurface` → `SecureDoor` (who calls) → `PushDatabase` (content, push and outbox row in one
/// transaction) → `OutboxRelay` → Kafka's `push.requests`. Readers are answered from the database, and
/// told to `push.outcomes`. `SecureKeeping` deletes what is over.
@main
struct SecurePayloadService {
    static func main() async {
        await runService(
            "secure-payload",
            about: "secure payloads: content that only its identity can fetch, rung for by an id",
            variables: SecurePayloadConfiguration.variables,
            loops: .perCore,
            reading: SecurePayloadConfiguration.init,
            parts: makeParts
        )
    }
}

/// Each loop answers for its connections from rooms of its own; the relay lives on the first. What is
/// counted and remembered of secrets is the process's.
func makeParts(
    _ configuration: SecurePayloadConfiguration,
    in runtime: ServiceRuntime
) throws -> [any ServicePart] {
    let rooms = LoopRooms.make(
        configuration.database,
        keys: configuration.masterKeys,
        limits: configuration.limits,
        in: runtime
    )
    let shared = SharedGround(configuration, runtime)
    let loops = rooms.enumerated().map { number, rooms in
        SecureLoop(number, rooms, shared, configuration, runtime)
    }
    let server = try SurfaceServer(configuration.http, rooms, in: runtime) { rooms in
        loops.filter { $0.loop === rooms.loop }.map(\.surface)
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
    let keeping = SecureKeeping(
        database: rooms[0].database,
        figures: shared.figures,
        retention: configuration.retention,
        keyRetention: configuration.keyRetention,
        runtime: runtime
    )
    let answering = rooms.flatMap(\.parts) + loops.flatMap(\.parts) + [shared.checks]
    let telling = Part("producer", run: { try await producer.run() })
    return answering + [server, telling, relay, keeping]
}

/// What the loops share: of secrets there is one queue and one memory, however many loops ask.
struct SharedGround: Sendable {
    let checks: SecretChecks
    let remembered = RememberedSecrets()
    let limits: ReaderLimits
    let figures: SecureFigures

    init(_ configuration: SecurePayloadConfiguration, _ runtime: ServiceRuntime) {
        checks = SecretChecks(
            threads: SecretChecks.threads(ofProcessors: EventLoop.usableCores),
            metrics: runtime.metrics
        )
        limits = ReaderLimits(failuresPerIdentity: configuration.failuresPerIdentity)
        figures = SecureFigures(runtime.metrics)
    }
}

/// What one loop has for its callers.
struct SecureLoop: Sendable {
    let loop: EventLoop
    let surface: any Surface
    /// They use the database, and the listener uses them.
    let parts: [any ServicePart]

    init(
        _ number: Int,
        _ rooms: LoopRooms,
        _ shared: SharedGround,
        _ configuration: SecurePayloadConfiguration,
        _ runtime: ServiceRuntime
    ) {
        let (loop, database) = (rooms.loop, rooms.database)
        let logins = LoginDirectory(
            database,
            JWKSSource(configuration.jwks, on: loop),
            on: loop,
            log: runtime.log,
            metrics: runtime.metrics
        )
        self.loop = loop
        surface = SecureSurface(
            loop: loop,
            database: database,
            door: SecureDoor(
                database: database,
                logins: logins,
                checks: shared.checks,
                remembered: shared.remembered,
                limits: shared.limits,
                log: runtime.log
            ),
            keys: configuration.masterKeys,
            topics: configuration.topics,
            checks: shared.checks,
            limits: shared.limits,
            figures: shared.figures,
            log: runtime.log,
            readGrace: configuration.readGrace,
            document: OpenAPIDocument.bytes(withOperations: !runtime.operations.isApart)
        )
        parts = [Part("logins-\(number)", run: { try await logins.run() })]
    }
}
