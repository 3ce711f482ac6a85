import EventLoop
package import Gateway
import HTTPServer
package import Kafka
import Outbox
package import ServiceKit
package import Storage

/// A service that answers callers over HTTP. A conforming type is the executable's `@main`, whose
/// `main` runs it.
///
/// It names itself, and makes its surfaces for each loop and the jobs beside them. All else is the
/// same for each: arguments, configuration, loops with their databases and limits, the audit, the
/// listener, `/openapi.json`, the operations routes and the order of the stop.
package protocol HTTPServiceProgram: Sendable {
    associatedtype Own: OwnConfiguration = NoConfiguration

    /// The name in logs.
    static var name: String { get }
    /// One line for `--help`.
    static var about: String { get }
    /// The default of `HTTP_PORT`.
    static var port: Int { get }
    /// The default of `HTTP_MAX_CONNECTIONS`.
    static var maximumConnections: Int { get }
    /// How long apps stay cached while the database is unavailable.
    static var appsKnownFor: Duration { get }

    static func contents(of service: HTTPService<Self>) throws -> HTTPServiceContents
}

extension HTTPServiceProgram {
    package static var maximumConnections: Int { HTTPServerConfiguration().maximumConnections }
    package static var appsKnownFor: Duration { .zero }

    /// Runs the service; `runService` has the exit codes.
    package static func run() async -> Never {
        await runService(
            name,
            about: about,
            variables: HTTPServiceConfiguration<Self>.variables,
            loops: .perCore,
            reading: HTTPServiceConfiguration<Self>.init
        ) { configuration, runtime in
            try HTTPService(configuration, runtime).parts()
        }
    }
}

/// The context from which a program makes its own parts.
package struct HTTPService<Program: HTTPServiceProgram>: Sendable {
    package let configuration: HTTPServiceConfiguration<Program>
    package let runtime: ServiceRuntime
    /// One for each core.
    package let loops: [ServiceLoop]

    init(_ configuration: HTTPServiceConfiguration<Program>, _ runtime: ServiceRuntime) {
        self.configuration = configuration
        self.runtime = runtime
        let appLimits = AppLimits()
        loops = runtime.loops.enumerated().map { number, loop in
            ServiceLoop(
                number,
                loop,
                configuration.common,
                configuration.limits,
                appLimits,
                appsKnownFor: Program.appsKnownFor,
                runtime
            )
        }
    }

    /// The database of the main loop.
    package var database: PushDatabase { loops[0].database }

    /// Makes a producer on the main loop, and the relay that produces the outbox to Kafka through
    /// it.
    /// `wakeRelay` is for records that were stored without a notification.
    ///
    /// - Throws: `KafkaError`.
    package func outbox() throws -> (
        producer: KafkaProducer, parts: [any ServicePart], wakeRelay: @Sendable () -> Void
    ) {
        let (loop, log, metrics) = (runtime.mainLoop, runtime.log, runtime.metrics)
        let producer = try KafkaProducer(
            configuration.common.kafka,
            deliveryTimeout: OutboxRelay.deliveryTimeout,
            on: loop,
            log: log,
            metrics: metrics
        )
        let relay = OutboxRelay(
            from: database,
            to: producer,
            on: loop,
            log: log,
            metrics: metrics
        )
        let parts: [any ServicePart] = [
            ClosurePart("producer", run: { try await producer.run() }), relay,
        ]
        return (producer, parts, { relay.wake() })
    }

    func parts() throws -> [any ServicePart] {
        let contents = try Program.contents(of: self)
        var http = configuration.http
        if let most = contents.maximumHeldBodyBytes { http.maximumHeldBodyBytes = most }
        let server = try SurfaceServer(
            http,
            zip(loops, contents.loops).map { ($0, $1.surfaces) },
            contents.openAPI,
            in: runtime
        )
        let heartbeat = Heartbeat(database, consumers: contents.consumers, in: runtime)
        return loops.flatMap(\.parts) + [heartbeat] + contents.loops.flatMap(\.parts) + [server]
            + contents.jobs
    }
}

/// Parts that a program adds to the shell.
package struct HTTPServiceContents: Sendable {
    package let openAPI: OpenAPI
    /// One for each of the service's loops, in their order.
    package let loops: [LoopContents]
    /// Parts that use all others, and stop first.
    package let jobs: [any ServicePart]
    /// The consumers among the jobs, whose lag is reported.
    let consumers: [KafkaConsumer]
    /// Lowers the configured limit.
    package var maximumHeldBodyBytes: Int?

    package init(
        openAPI: OpenAPI,
        loops: [LoopContents],
        jobs: [any ServicePart],
        consumers: [KafkaConsumer] = []
    ) {
        self.openAPI = openAPI
        self.loops = loops
        self.jobs = jobs
        self.consumers = consumers
    }
}

/// Surfaces and parts of a program on one loop.
package struct LoopContents: Sendable {
    package let surfaces: [any Surface]
    /// Parts that use the database; the listener uses them.
    package let parts: [any ServicePart]

    package init(_ surfaces: [any Surface], parts: [any ServicePart] = []) {
        self.surfaces = surfaces
        self.parts = parts
    }
}
