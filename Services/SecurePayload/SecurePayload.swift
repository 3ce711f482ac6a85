import EventLoop
import Gateway
import HTTPServer
import Logins
import Observability
import PushEvents
import ServiceKit
import ServiceShell

/// Stores content for one identity, notifies its devices with only an id, and returns the content to a client
/// that authenticates as that identity.
///
/// Flow: `SecureSurface` → `ReaderAuthenticator` (the caller) → `PushDatabase` (content, push and outbox row
/// in one transaction) → `OutboxRelay` → Kafka's `push.requests`. Readers are answered from the database;
/// first reads are published to `push.outcomes`. `SecureExpiryJob` deletes ended content.
@main
struct SecurePayloadService: HTTPServiceProgram {
    typealias Own = SecurePayloadConfiguration

    static let name = "secure-payload"
    static let about =
        "secure payloads: content that only its identity can fetch, announced by an id"
    static let port = 8081

    static func main() async { await run() }

    static func contents(
        of service: HTTPService<SecurePayloadService>
    ) throws -> HTTPServiceContents {
        let shared = SharedResources(service.configuration.own, service.runtime)
        let keeping = SecureExpiryJob(
            database: service.database,
            metrics: shared.metrics,
            retention: service.configuration.own.retention,
            keyRetention: service.configuration.own.keyRetention
        ).job(in: service.runtime)
        let loops = service.loops.map { shared.contents(of: $0, service) }
        return HTTPServiceContents(
            openAPI: SecureSurface.openAPI,
            loops: loops,
            jobs: [shared.checks] + (try service.outbox().parts) + [keeping]
        )
    }
}

/// The resources that all loops share: one queue and one cache of secrets for all of them.
private struct SharedResources: Sendable {
    let checks: SecretVerifier
    let remembered = VerifiedSecretCache()
    let limits: ReaderLimits
    let metrics: SecureMetrics

    init(_ configuration: SecurePayloadConfiguration, _ runtime: ServiceRuntime) {
        checks = SecretVerifier(
            threads: SecretVerifier.threads(ofProcessors: EventLoop.usableCores),
            metrics: runtime.metrics
        )
        limits = ReaderLimits(failuresPerIdentity: configuration.failuresPerIdentity)
        metrics = SecureMetrics(runtime.metrics)
    }

    /// Creates the surface and the logins of one loop.
    func contents(
        of own: ServiceLoop,
        _ service: HTTPService<SecurePayloadService>
    ) -> LoopContents {
        let (loop, database) = (own.loop, own.database)
        let (configuration, log) = (service.configuration, service.runtime.log)
        let logins = LoginCache(
            database,
            JWKSSource(configuration.own.jwks, on: loop),
            on: loop,
            log: log,
            metrics: service.runtime.metrics
        )
        let surface = SecureSurface(
            loop: loop,
            database: database,
            authenticator: ReaderAuthenticator(
                database: database,
                logins: logins,
                checks: checks,
                remembered: remembered,
                limits: limits,
                log: log
            ),
            keys: configuration.common.keys,
            topics: configuration.common.topics,
            checks: checks,
            limits: limits,
            metrics: metrics,
            log: log,
            readGrace: configuration.own.readGrace
        )
        return LoopContents(
            [surface],
            parts: [ClosurePart("logins-\(own.number)", run: { try await logins.run() })]
        )
    }
}
