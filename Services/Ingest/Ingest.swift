import Door
import EventLoop
import HTTPServer
import Kafka
import Observability
import PushEvents
import PushStorage
import ServiceKit

/// Takes in what devices only send, typed objects and events, and brings it to Postgres. Nothing can be
/// read, changed or deleted here.
///
/// Flow: `NativeSurface`, `SegmentSurface`, `CloudEventsSurface`, `AtlasSurface` → `ObjectReader` →
/// `Intake` → Kafka's `ingest.<Type>` → `IngestSink` → `PushDatabase`.
@main
struct Ingest {
    static func main() async {
        await runService(
            "ingest",
            about: "one way in: objects and events of devices, to Kafka and Postgres",
            variables: IngestConfiguration.variables,
            loops: .perCore,
            reading: IngestConfiguration.init,
            parts: makeParts
        )
    }
}

/// Each loop takes in what its connections send, with a producer of its own; the sink lives on the first.
func makeParts(
    _ configuration: IngestConfiguration,
    in runtime: ServiceRuntime
) throws -> [any ServicePart] {
    let rooms = LoopRooms.make(
        configuration.database,
        keys: configuration.masterKeys,
        limits: configuration.limits,
        appsKnownFor: TypeDirectory.staleLifetime,
        in: runtime
    )
    // Bodies that are coming take one half, what is known to be an app's the other.
    let held = HeldBytes(limit: configuration.maximumHeldBytes / 2)
    var configuration = configuration
    configuration.http.maximumHeldBodyBytes = min(
        configuration.http.maximumHeldBodyBytes,
        max(ObjectLimits.bodyBytes, configuration.maximumHeldBytes / 2 / rooms.count)
    )
    let quota = ObjectQuota()
    let loops = try rooms.enumerated().map { number, rooms in
        try IngestLoop(number, rooms, held: held, quota: quota, configuration, runtime)
    }
    let server = try SurfaceServer(configuration.http, rooms, in: runtime) { rooms in
        loops.first { $0.intake.loop === rooms.loop }?.surfaces ?? []
    }
    let (database, producer) = (rooms[0].database, loops[0].intake.producer)
    let intake: [any ServicePart] = rooms.flatMap(\.parts) + loops.flatMap(\.parts) + [server]
    let keeping = IngestKeeping(
        database: database,
        retention: IngestRetention(
            keys: configuration.keyRetention,
            receipts: configuration.pushRetention
        ),
        runtime: runtime
    )
    guard configuration.runsSink else { return intake + [keeping] }
    return intake + [keeping]
        + (try sinkParts(
            configuration.kafka,
            group: configuration.groupID,
            database: database,
            producer: producer,
            topics: configuration.topics,
            runtime: runtime
        ))
}
