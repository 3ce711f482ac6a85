import EventLoop
import Gateway
import HTTPServer
import IngestStorage
import JSON
import Kafka
import Logins
import Observability
import PushEvents
import ServiceKit
import ServiceShell

/// Accepts objects and events from devices, and stores them in Postgres by way of Kafka. Devices
/// only send: nothing can be read, changed or deleted here.
///
/// Flow: `NativeSurface`, `SegmentSurface`, `CloudEventsSurface`, `AtlasSurface`, and `RealmSurface` with
/// its sockets → `ObjectReader` → `Intake` → Kafka's `ingest.<Type>` → `IngestSink` → `PushDatabase`.
@main
struct Ingest: HTTPServiceProgram {
    typealias Own = IngestConfiguration

    static let name = "ingest"
    static let about = "one way in: objects and events of devices, to Kafka and Postgres"
    static let port = 8083
    /// Each sending device holds one connection.
    static let maximumConnections = 65_536
    static let appsKnownFor = IngestTypeCache.staleLifetime

    /// The records that librdkafka holds. Further records wait in a queue, and `HeldBytes` counts
    /// them.
    private static let maximumOutstanding = 50_000

    static func main() async { await run() }

    /// Each loop accepts what its connections send, with its own producer; the sink runs on the first loop.
    static func contents(of service: HTTPService<Ingest>) throws -> HTTPServiceContents {
        let own = service.configuration.own
        // One half is for bodies that are being received, the other for the data of authenticated
        // apps.
        let heldBodyBytes = min(
            service.configuration.http.maximumHeldBodyBytes,
            max(ObjectLimits.bodyBytes, own.maximumHeldBytes / 2 / service.loops.count)
        )
        let held = HeldBytes(limit: own.maximumHeldBytes / 2)
        let quota = ObjectQuota()
        let loops = try service.loops.map { loop in
            try intake(loop, held: held, heldBodyBytes: heldBodyBytes, quota, service)
        }
        let realm = SharedRealm(own.realm, service.runtime.metrics)
        let keeping = ingestKeeping(
            service.database,
            IngestRetention(keys: own.keyRetention, receipts: own.pushRetention),
            in: service.runtime
        )
        let source = own.runsSink ? try sinkSource(of: service) : nil
        let sink = source.map { sinkParts(of: service, $0, loops[0].producer) }
        var contents = HTTPServiceContents(
            openAPI: openAPI,
            loops: zip(service.loops, loops).map { loopContents($0, $1, realm, service) },
            jobs: [keeping, realmReport(realm, service.database, in: service.runtime)]
                + (sink ?? []),
            consumers: source.map { [$0.consumer] } ?? []
        )
        contents.maximumHeldBodyBytes = heldBodyBytes
        return contents
    }

    private static func intake(
        _ own: ServiceLoop,
        held: HeldBytes,
        heldBodyBytes: Int,
        _ quota: ObjectQuota,
        _ service: HTTPService<Ingest>
    ) throws -> Intake {
        let (loop, runtime) = (own.loop, service.runtime)
        let common = service.configuration.common
        return Intake(
            loop: loop,
            types: IngestTypeCache(own.database, on: loop, log: runtime.log),
            producer: try KafkaProducer(
                common.kafka,
                maximumOutstanding: maximumOutstanding,
                deliveryTimeout: Intake.deliveryTimeout,
                on: loop,
                log: runtime.log,
                metrics: runtime.metrics
            ),
            topics: common.topics,
            held: held,
            heldBodies: HeldBytes(limit: heldBodyBytes),
            quota: quota,
            turns: FairTurns(on: loop),
            pool: FairPool(on: loop),
            metrics: IngestMetrics(runtime.metrics),
            log: runtime.log
        )
    }

    private static func loopContents(
        _ own: ServiceLoop,
        _ intake: Intake,
        _ realm: SharedRealm,
        _ service: HTTPService<Ingest>
    ) -> LoopContents {
        let (types, producer) = (intake.types, intake.producer)
        let logins = LoginCache(
            own.database,
            JWKSSource(service.configuration.own.jwks, on: own.loop),
            on: own.loop,
            log: intake.log,
            metrics: service.runtime.metrics
        )
        return LoopContents(
            [
                NativeSurface(intake: intake), SegmentSurface(intake: intake),
                CloudEventsSurface(intake: intake), AtlasSurface(intake: intake),
                realm.surface(intake, logins, own.database),
            ],
            parts: [
                own.part("types") { await types.run() },
                ClosurePart("logins-\(own.number)", run: { try await logins.run() }),
                ClosurePart("producer-\(own.number)", notReady: { producer.notReadyReason() }) {
                    try await producer.run()
                },
            ]
        )
    }

    private static let openAPI = OpenAPI(
        "Carillon ingest",
        "One way in: objects and events of devices.",
        securitySchemes: joined(
            [
                "appKey": [
                    "type": "http", "scheme": "basic",
                    "description": "The app key as user, without a password",
                ],
                "apiKey": ["type": "apiKey", "in": "header", "name": "apiKey"],
            ],
            RealmDescription.securitySchemes
        ),
        schemas: joined(NativeSurface.schemas, RealmDescription.schemas)
    )

    private static func joined(_ first: JSONObject, _ second: JSONObject) -> JSONObject {
        second.reduce(into: first) { $0[$1.key] = $1.value }
    }
}
