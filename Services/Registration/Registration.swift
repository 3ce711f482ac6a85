import Apps
import Cryptography
import Door
import EventLoop
import HTTPServer
import Kafka
import Observability
import Outbox
import PushCore
import PushStorage
import ServiceKit

/// Devices register here, and backends ask for pushes.
///
/// Flow: `LeanCloudSurface`, `AzureSurface` → `PushDatabase` (installations; pushes with their outbox row) →
/// `OutboxRelay` → Kafka's `push.requests`.
@main
struct Registration {
    static func main() async {
        await runService(
            "registration",
            about: "devices, channels and identities; accepts pushes and reports on them",
            variables: RegistrationConfiguration.help,
            loops: .perCore,
            reading: RegistrationConfiguration.init,
            parts: makeParts
        )
    }
}

/// A loop answers for its connections with a database and an app directory of its own; the relay
/// lives on the first.
func makeParts(
    _ configuration: RegistrationConfiguration,
    in runtime: ServiceRuntime
) throws -> [any ServicePart] {
    let databases = runtime.loops.map { loop in
        PushDatabase(
            configuration.database,
            on: loop,
            log: runtime.log,
            metrics: runtime.metrics
        )
    }
    let producer = try KafkaProducer(
        configuration.kafka,
        deliveryTimeout: OutboxRelay.deliveryTimeout,
        on: runtime.mainLoop,
        log: runtime.log,
        metrics: runtime.metrics
    )
    let relay = OutboxRelay(
        from: databases[0],
        to: producer,
        on: runtime.mainLoop,
        log: runtime.log,
        metrics: runtime.metrics
    )
    let appLimits = AppLimits()
    let directories = zip(runtime.loops, databases).map { loop, database in
        AppDirectory(database, keys: configuration.masterKeys, on: loop)
    }
    let trails = zip(runtime.loops, databases).enumerated().map { number, pair in
        AuditTrail(
            "audit-\(number)",
            pair.1,
            on: pair.0,
            log: runtime.log,
            metrics: runtime.metrics
        )
    }
    let server = try HTTPServer(
        configuration.http,
        loops: runtime.loops,
        log: runtime.log,
        metrics: runtime.metrics
    ) { loop in
        let number = runtime.loops.firstIndex { $0 === loop } ?? 0
        let (database, apps) = (databases[number], directories[number])
        let door = RequestGuard(
            apps,
            configuration.limits,
            appLimits: appLimits,
            audit: trails[number],
            metrics: runtime.metrics
        )
        let saved = runtime.metrics.counter(.installationsSaved)
        let objects = ObjectOperations(database: database, saved: saved)
        let pushes = PushOperations(
            acceptance: PushAcceptance(database, topics: configuration.topics)
        )
        var router = makeRouter(
            LeanCloudSurface(database: database, door: door, objects: objects, pushes: pushes),
            AzureSurface(
                database: database,
                door: door,
                pushes: pushes,
                saved: saved
            ),
            OwnSurface(
                database: database,
                door: door,
                hasOperations: !runtime.operations.isApart
            ),
            runtime
        )
        ParseSurface(door: door, objects: objects, pushes: pushes).addRoutes(to: &router)
        if number == 0 { tellRoutes(of: router, to: runtime.log) }
        return router
    }
    var parts: [any ServicePart] = []
    for (number, database) in databases.enumerated() {
        parts.append(
            Part(
                "database-\(number)",
                notReady: { database.notReadyReason() },
                endedBy: SchemaTooNew.self
            ) { try await database.run() }
        )
    }
    for (number, apps) in directories.enumerated() {
        parts.append(Part("apps-\(number)", run: { try await apps.run() }))
    }
    parts += trails
    // What is answered needs the database, and leaves its trail, so the listener stops before them.
    parts.append(
        Part("http", notReady: { server.notReadyReason() }, run: { try await server.run() })
    )
    parts.append(Part("producer", run: { try await producer.run() }))
    parts.append(relay)
    return parts
}

/// All that can be asked here, for whoever checks who may ask it; Parse's surface finds its routes
/// itself.
private func tellRoutes(of router: Router, to log: Log) {
    let parse = ParseRoute.all.map(\.action)
    for action in router.routes.map({ "\($0.method.rawValue) \($0.pattern)" }) + parse {
        log.debug("route", [.httpRoute: .string(action)])
    }
}

/// All surfaces of the service. What none of them owns is answered by problem details.
func makeRouter(
    _ surface: LeanCloudSurface,
    _ azure: AzureSurface,
    _ own: OwnSurface,
    _ runtime: ServiceRuntime
) -> Router {
    var router = Router()
    router.log = runtime.log
    // Nothing is inflated before its sender has been let in.
    router.givesBodiesAsSent = true
    // No app is called so: what stands behind these names is another surface's.
    router.reservedFirstSegments = AppID.reserved
    surface.addRoutes(to: &router)
    azure.addRoutes(to: &router)
    own.addRoutes(to: &router)
    router.addOperationsRoutes(runtime)
    let (notFound, methodNotAllowed) = (router.notFound, router.methodNotAllowed)
    let errorResponse = router.errorResponse
    router.notFound = { request in
        if AzureSurface.owns(request.pathSegments) {
            return AzureSurface.response(
                to: AzureError(status: 404, "There is nothing at this path."),
                request
            )
        }
        guard LeanCloudSurface.owns(request.path) else { return notFound(request) }
        return withCORS(
            LeanCloudSurface.nothing(at: request.path).leanCloudResponse
        )
    }
    let nothing = router.notFound
    router.methodNotAllowed = { request, allowed in
        if AzureSurface.owns(request.pathSegments) {
            return AzureSurface.response(
                to: AzureError(status: 405, "This path does not take this method."),
                request
            )
        }
        guard LeanCloudSurface.owns(request.path) else { return methodNotAllowed(request, allowed) }
        // Browsers may ask about any path; that alone does not make it one of ours.
        guard allowed != [.options] else { return nothing(request) }
        return withCORS(
            LeanCloudError.wrongMethod.leanCloudResponse
        )
    }
    router.errorResponse = { error, request in
        if AzureSurface.owns(request.pathSegments) {
            return AzureSurface.response(to: error, request)
        }
        guard LeanCloudSurface.owns(request.path) else { return errorResponse(error, request) }
        let response =
            LeanCloudSurface.response(to: error)
            ?? ObjectError.internal.leanCloudResponse
        return withCORS(response)
    }
    return router
}
