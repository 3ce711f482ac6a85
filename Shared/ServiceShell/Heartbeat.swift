import Cryptography
import EventLoop
import Glibc
import JSON
package import Kafka
import Observability
import PushCore
package import ServiceKit
package import Storage

/// Reports this process in `service_instances`: every ten seconds, and within a second after its
/// readiness or its circuit breakers changed.
///
/// A report that fails is logged and repeated, and has no other effect. While Postgres is down, the
/// row gets old, as it should.
///
/// Shutdown: removes the row, so that the process is not missed. This part comes directly after the
/// database, so that the row stays while the others drain.
package struct Heartbeat: ServicePart {
    package let name = "heartbeat"

    /// The last report, for the decision whether to make another one.
    private struct Last {
        var at: ContinuousClock.Instant
        var urgent: JSONObject
    }

    private let id: String
    private let database: PushDatabase
    private let runtime: ServiceRuntime
    private let job: PeriodicJob<Last?>

    /// - Parameters:
    ///   - database: The database that has the rows.
    ///   - consumers: The process' consumers, whose lag is reported.
    ///   - runtime: The service's.
    ///   - more: Adds what only this service knows; it runs on the main loop.
    package init(
        _ database: PushDatabase,
        consumers: [KafkaConsumer] = [],
        in runtime: ServiceRuntime,
        adding more: @escaping @Sendable (inout ServiceState) -> Void = { _ in }
    ) {
        let (id, host) = (PushIdentity.uuidText(randomBytes(16)), processName())
        self.id = id
        self.database = database
        self.runtime = runtime
        job = PeriodicJob(
            name,
            cannot: "cannot report this process to the operators",
            in: runtime,
            state: nil,
            begin: { try await database.untilReady() }
        ) { last in
            var state = ServiceState(runtime.readiness)
            more(&state)
            for consumer in consumers {
                let lags = await consumer.lags
                state.lags += lags.map {
                    ServiceState.Lag(group: consumer.group, topic: $0.topic, records: $0.records)
                }
            }
            let now = ContinuousClock.now
            let urgent = state.urgent
            if let last, last.urgent == urgent, now - last.at < ServiceInstance.interval {
                return .seconds(1)
            }
            try await database.instances.report(
                ServiceInstance(
                    id: id,
                    service: runtime.service,
                    host: host,
                    version: carillonVersion,
                    state: state
                )
            )
            last = Last(at: now, urgent: urgent)
            return .seconds(1)
        }
    }

    package func warning() -> String? { job.warning() }

    package func run() async throws {
        try await job.run()
        // A process without the database leaves its row, which expires.
        guard database.notReadyReason() == nil else { return }
        // The part's own task is cancelled by now: in it, no statement would run.
        let removal = Task(executorPreference: runtime.mainLoop) {
            try? await database.instances.remove(id)
        }
        await removal.value
    }
}

/// Returns the name of this process: the host's name and the process' id.
package func processName() -> String {
    var bytes = [CChar](repeating: 0, count: 256)
    guard unsafe gethostname(&bytes, bytes.count - 1) == 0 else { return "host:\(getpid())" }
    let name = bytes.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
    return String(decoding: name, as: UTF8.self) + ":\(getpid())"
}

extension ServiceState {
    fileprivate init(_ readiness: Readiness) {
        self.init()
        notReady = readiness.problems().map { Reason(part: $0.part, reason: $0.reason) }
        warnings = readiness.warnings().map { Reason(part: $0.part, reason: $0.reason) }
    }

    /// The members whose change is reported at once; the times of breakers are not.
    fileprivate var urgent: JSONObject {
        var state = ServiceState()
        state.notReady = notReady
        state.breakers = breakers.map { breaker in
            var breaker = breaker
            (breaker.since, breaker.retryAt) = (.earliest, .earliest)
            return breaker
        }
        return state.json
    }
}
