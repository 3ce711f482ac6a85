package import EventLoop
package import Observability

/// One part of a service: a pool, a consumer, a listener.
///
/// A part may use those that stand before it. `run` ends when its task is cancelled, after its own
/// drain; a part that ends by itself, or throws, ends the service.
package protocol ServicePart: Sendable {
    var name: String { get }
    func run() async throws

    /// Why the service should get no work now, for `/readyz`; `nil` when nothing is in the way.
    func notReadyReason() -> String?

    /// What an operator should look at while the service goes on, for `/readyz`'s detail; `nil`: nothing.
    func warning() -> String?
}

extension ServicePart {
    package func notReadyReason() -> String? { nil }
    package func warning() -> String? { nil }
}

/// A part made of what a room offers, which knows nothing of services.
package struct Part: ServicePart {
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

    /// A part that one kind of error ends for good, such as a schema that is too new: the operator is
    /// told in the error's own words, and the service ends with 78.
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

/// An end of the service that its operator must hear of in words, with the exit code to use: 78
/// for what the operator must mend, 1 for what may be over at the next start.
package struct ServiceFailure: Error, CustomStringConvertible {
    package let description: String
    package let exitCode: Int32

    package init(_ description: String, exitCode: Int32 = 1) {
        self.description = description
        self.exitCode = exitCode
    }
}

/// What `runService` hands to the wiring.
package struct ServiceRuntime: Sendable {
    package let service: String
    package let loops: [EventLoop]
    package let log: Log
    package let metrics: Metrics
    package let readiness: Readiness
    package let operations: OperationsConfiguration
    package let descriptors: DescriptorBudget

    /// The loop of what exists once a process.
    package var mainLoop: EventLoop { loops[0] }
}

/// Whether the service may get work, and if not, why.
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

    /// Each part that is not ready, with its reason; empty when the service is.
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

    /// Each part with something that an operator should look at; whether the service is ready is another
    /// question.
    package func warnings() -> [(part: String, reason: String)] {
        lock.withLock { unsafe parts }.compactMap { part in
            part.warning().map { (part.name, $0) }
        }
    }
}
