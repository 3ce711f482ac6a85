package import EventLoop
package import Observability

/// One part of a service: a pool, a consumer, a listener.
///
/// A part may use earlier ones. `run` ends when its task is cancelled, after its own drain; a part
/// that ends by itself, or throws, ends the service.
package protocol ServicePart: Sendable {
    var name: String { get }
    func run() async throws

    /// Returns why the service should get no traffic now, for `/readyz`; `nil` if it is ready.
    func notReadyReason() -> String?

    /// Returns a problem for the operator that does not stop the service, for `/readyz`'s detail.
    func warning() -> String?
}

extension ServicePart {
    package func notReadyReason() -> String? { nil }
    package func warning() -> String? { nil }
}

/// A part made from closures, for modules that do not depend on services.
package struct ClosurePart: ServicePart {
    package let name: String
    private let body: @Sendable () async throws -> Void
    private let reason: @Sendable () -> String?
    private let concern: @Sendable () -> String?

    package init(
        _ name: String,
        notReady reason: @escaping @Sendable () -> String? = { nil },
        warning concern: @escaping @Sendable () -> String? = { nil },
        run body: @escaping @Sendable () async throws -> Void
    ) {
        self.name = name
        self.reason = reason
        self.concern = concern
        self.body = body
    }

    /// Makes a part that one kind of error ends for good, such as a schema that is too new: the
    /// operator gets the error's own message, and the service ends with 78.
    package init<Reason: Error & CustomStringConvertible>(
        _ name: String,
        notReady reason: @escaping @Sendable () -> String?,
        warning concern: @escaping @Sendable () -> String? = { nil },
        endedBy: Reason.Type,
        run body: @escaping @Sendable () async throws -> Void
    ) {
        self.init(name, notReady: reason, warning: concern) {
            do {
                try await body()
            } catch let error as Reason {
                throw ServiceFailure(error.description, exitCode: 78)
            }
        }
    }

    package func run() async throws { try await body() }
    package func notReadyReason() -> String? { reason() }
    package func warning() -> String? { concern() }
}

/// A failure of the service with a message for the operator and the exit code: 78 for an error that
/// the operator must fix, 1 for one that the next start may not meet.
package struct ServiceFailure: Error, CustomStringConvertible {
    package let description: String
    package let exitCode: Int32

    package init(_ description: String, exitCode: Int32 = 1) {
        self.description = description
        self.exitCode = exitCode
    }
}

/// The context that `runService` passes to the wiring.
package struct ServiceRuntime: Sendable {
    package let service: String
    package let loops: [EventLoop]
    package let log: Log
    package let metrics: Metrics
    package let readiness: Readiness
    package let operations: OperationsConfiguration
    package let descriptors: DescriptorBudget

    /// Makes a runtime without a process of its own, which logs nothing.
    package init(_ service: String, on loop: EventLoop) {
        self.init(
            service: service,
            loops: [loop],
            log: .disabled,
            metrics: Metrics(),
            readiness: Readiness(),
            operations: OperationsConfiguration(),
            descriptors: DescriptorBudget(total: DescriptorBudget.assumedTotal)
        )
    }

    init(
        service: String,
        loops: [EventLoop],
        log: Log,
        metrics: Metrics,
        readiness: Readiness,
        operations: OperationsConfiguration,
        descriptors: DescriptorBudget
    ) {
        self.service = service
        self.loops = loops
        self.log = log
        self.metrics = metrics
        self.readiness = readiness
        self.operations = operations
        self.descriptors = descriptors
    }

    /// The loop of everything that exists once a process.
    package var mainLoop: EventLoop { loops[0] }
}

/// Whether the service may get traffic, and if not, why.
package final class Readiness: Sendable {
    private enum State {
        case starting, running, stopping
    }

    private let lock = Lock()
    nonisolated(unsafe) private var state = State.starting
    nonisolated(unsafe) private var parts: [any ServicePart] = []

    package init() {}

    package func started(_ parts: [any ServicePart]) {
        lock.withLock {
            unsafe self.parts = parts
            unsafe state = .running
        }
    }

    package func stopping() {
        lock.withLock { unsafe state = .stopping }
    }

    /// Returns each part that is not ready, with its reason; empty if the service is ready.
    package func problems() -> [(part: String, reason: String)] {
        let (state, parts) = lock.withLock { unsafe (self.state, self.parts) }
        switch state {
        case .starting: return [("service", "starting")]
        case .stopping: return [("service", "stopping")]
        case .running:
            return parts.compactMap { part in
                part.notReadyReason().map { (part.name, $0) }
            }
        }
    }

    /// Returns each part with a warning for the operator, whether or not the service is ready.
    package func warnings() -> [(part: String, reason: String)] {
        lock.withLock { unsafe parts }.compactMap { part in
            part.warning().map { (part.name, $0) }
        }
    }
}
