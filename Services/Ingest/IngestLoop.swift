import Door
import EventLoop
import HTTPServer
import Kafka
import Observability
import PushStorage
import ServiceKit

/// What one loop takes objects in with.
struct IngestLoop: Sendable {
    let intake: Intake
    let surfaces: [any Surface]
    /// They use the database, and the listener uses them.
    let parts: [any ServicePart]

    /// Records with librdkafka; what comes beyond waits in line, counted by `HeldBytes`.
    private static let maximumOutstanding = 50_000

    init(
        _ number: Int,
        _ rooms: LoopRooms,
        held: HeldBytes,
        quota: ObjectQuota,
        _ configuration: IngestConfiguration,
        _ runtime: ServiceRuntime
    ) throws {
        let loop = rooms.loop
        let types = TypeDirectory(rooms.database, on: loop, log: runtime.log)
        let producer = try KafkaProducer(
            configuration.kafka,
            maximumOutstanding: Self.maximumOutstanding,
            deliveryTimeout: Intake.deliveryTimeout,
            on: loop,
            log: runtime.log,
            metrics: runtime.metrics
        )
        let intake = Intake(
            loop: loop,
            types: types,
            producer: producer,
            topics: configuration.topics,
            held: held,
            heldBodies: HeldBytes(limit: configuration.http.maximumHeldBodyBytes),
            quota: quota,
            turns: FairTurns(on: loop),
            pool: FairPool(on: loop),
            figures: IntakeFigures(runtime.metrics),
            log: runtime.log
        )
        self.intake = intake
        surfaces = [
            NativeSurface(
                intake: intake,
                document: OpenAPIDocument.bytes(withOperations: !runtime.operations.isApart)
            ),
            SegmentSurface(intake: intake),
            CloudEventsSurface(intake: intake),
            AtlasSurface(intake: intake),
        ]
        // The service's own tasks run on its first loop.
        parts = [
            Part("types-\(number)") {
                let running = Task(executorPreference: loop) { await types.run() }
                await withTaskCancellationHandler {
                    await running.value
                } onCancel: {
                    running.cancel()
                }
            },
            Part("producer-\(number)", notReady: { producer.notReadyReason() }) {
                try await producer.run()
            },
        ]
    }
}
