import Console
import DeadLetters
import EventLoop
import Gateway
import HTTPServer
import Importing
import Logins
import Observability
import Outbox
import ServiceKit
import ServiceShell
import Storage

/// Registers devices, and accepts pushes from backends.
///
/// Flow: `LeanCloudSurface`, `AzureSurface`, `ParseSurface` → `PushDatabase` (installations; pushes
/// with their outbox row) → `OutboxRelay` → Kafka's `push.requests`; `CognitoSurface` → `PushDatabase`
/// (datasets, with the outbox row of each change) → `OutboxRelay` → Kafka's `dataset.changes`.
/// `ConsoleSurface` serves people's web pages over the same stores; `ImportWorker` imports the files that
/// they upload.
@main
struct Registration: HTTPServiceProgram {
    typealias Own = RegistrationConfiguration

    static let name = "registration"
    static let about = "devices, channels and identities; accepts pushes and reports on them"
    static let port = 8080

    static func main() async { await run() }

    static func contents(of service: HTTPService<Registration>) throws -> HTTPServiceContents {
        let runtime = service.runtime
        let sessions = SyncSessionCounts(service.database, on: runtime.mainLoop, log: runtime.log)
        let common = service.configuration.common
        // One for the replica: all loops share its reads.
        let deadLetters = DeadLetterLog(
            common.kafka,
            common.topics,
            on: runtime.mainLoop,
            log: runtime.log
        )
        return HTTPServiceContents(
            openAPI: NativeSurface.openAPI,
            loops: service.loops.map { contents(of: $0, sessions, deadLetters, service) },
            jobs: [sessions] + (try service.outbox().parts) + imports(service)
        )
    }

    /// The imports of the console's files: two at a time, of different apps.
    private static func imports(_ service: HTTPService<Registration>) -> [any ServicePart] {
        let worker = ImportWorker(service.database)
        return (1...2).map { number in
            PeriodicJob(
                "imports-\(number)",
                cannot: "uploaded imports do not run",
                in: service.runtime,
                begin: { try await service.database.untilReady() },
                round: { try await worker.round() ? .zero : .seconds(2) }
            )
        }
    }

    private static func contents(
        of own: ServiceLoop,
        _ sessions: SyncSessionCounts,
        _ deadLetters: DeadLetterLog,
        _ service: HTTPService<Registration>
    ) -> LoopContents {
        let console = operators(of: own, service)
        let surfaces = surfaces(of: own, sessions, deadLetters, console, service)
        guard let console else { return LoopContents(surfaces) }
        let name = "console-logins-\(own.number)"
        return LoopContents(
            surfaces,
            parts: [ClosurePart(name, run: { try await console.run() })]
        )
    }

    /// Creates the surfaces of one loop, over that loop's database.
    private static func surfaces(
        of own: ServiceLoop,
        _ sessions: SyncSessionCounts,
        _ deadLetters: DeadLetterLog,
        _ operators: ConsoleOperators?,
        _ service: HTTPService<Registration>
    ) -> [any Surface] {
        let database = own.database
        let (runtime, common) = (service.runtime, service.configuration.common)
        let saved = runtime.metrics.counter(.installationsSaved)
        let objects = ObjectOperations(database: database, saved: saved)
        let acceptance = PushAcceptance(database, topics: common.topics)
        let pushes = PushOperations(acceptance: acceptance)
        return [
            LeanCloudSurface(database: database, objects: objects, pushes: pushes),
            ParseSurface(objects: objects, pushes: pushes, log: runtime.log),
            AzureSurface(database: database, pushes: pushes, saved: saved),
            CognitoSurface(
                database: database,
                tokens: CognitoTokens(keys: common.keys),
                sessions: sessions,
                topics: common.topics
            ),
            ConnectionRouter(nodes: service.configuration.own.connectionURLs),
            NativeSurface(database: database),
            ConsoleSurface(
                database,
                keys: common.keys,
                acceptance: acceptance,
                deadLetters: deadLetters,
                fcmTokenHosts: service.configuration.own.fcmTokenHosts,
                on: own.loop,
                operators: operators
            ),
        ]
    }

    /// Creates the sign-in of operators on one loop, if the console has a public address.
    private static func operators(
        of own: ServiceLoop,
        _ service: HTTPService<Registration>
    ) -> ConsoleOperators? {
        let configuration = service.configuration
        return configuration.own.consoleURL.map { origin in
            ConsoleOperators(
                origin: origin,
                own.database,
                keys: configuration.common.keys,
                issuers: configuration.own.issuers,
                on: own.loop,
                log: service.runtime.log,
                metrics: service.runtime.metrics
            )
        }
    }
}
