import EventLoop
import Observability
import PushCore
import PushStorage
import ServiceKit

/// Keeps this process' session alive. What dead ones left is `SessionReaper`'s.
///
/// Authority: the session's id. It is opened when the database can be used, renewed every two
/// seconds, and given up the moment its lease could have ended in the table; `SessionLease` decides
/// that, and `DeliveryEngine` is told.
///
/// It has connections of its own: on the others a beat could wait behind a statement that waits for
/// a lock, longer than the lease.
///
/// Shutdown: closes the session, which hands back what is still owned. It stands before everything
/// that works under the session, so it is stopped after them.
actor SessionKeeper: ServicePart {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    nonisolated let name = "session"
    private nonisolated let trouble = Trouble()
    nonisolated func notReadyReason() -> String? { trouble.reason }

    private static let beat: Duration = .seconds(2)
    private static let noSession = "no session yet"

    private let sessions: SessionStore
    private let host: String
    /// What the server calls this process' connections.
    private let connections: String
    private let log: Log
    /// What works under the session.
    private let engine: DeliveryEngine
    private var state = SessionLease(
        leaseMilliseconds: Int64(SessionStore.leaseSeconds) * 1000
    )

    init(
        sessions: SessionStore,
        engine: DeliveryEngine,
        host: String,
        connections: String,
        runtime: ServiceRuntime
    ) {
        loop = runtime.mainLoop
        self.sessions = sessions
        self.engine = engine
        self.host = host
        self.connections = connections
        log = runtime.log
        trouble.set(Self.noSession)
    }

    func run() async throws {
        let ticker = loop.schedule(after: .milliseconds(200), every: .milliseconds(200)) {
            self.assumeIsolated { $0.tick() }
        }
        while !Task.isCancelled {
            await beatOnce()
            try? await loop.sleep(for: state.id == nil ? .milliseconds(250) : Self.beat)
        }
        ticker.cancel()
        await close()
    }

    private func tick() {
        Task(executorPreference: loop) { await self.apply(.tick(now: .now())) }
    }

    private func beatOnce() async {
        let asked = SteadyInstant.now()
        do {
            // Whoever met a row that is not ours any more has told the engine already.
            if let id = state.id, engine.session.current == nil {
                try await sessions.end(id)
                await apply(.renewed(id: id, isHeld: false, asked: asked))
            }
            if let id = state.id {
                let isHeld = try await sessions.heartbeat(id)
                await apply(.renewed(id: id, isHeld: isHeld, asked: asked))
            }
            if state.id == nil, !Task.isCancelled {
                let asked = SteadyInstant.now()
                let id = try await sessions.open(name: host, connections: connections)
                await apply(.opened(id: id, asked: asked))
            }
        } catch {
            log.debug("the session was not renewed", [.error: .string("\(error)")])
        }
    }

    private func apply(_ event: SessionLease.Event) async {
        switch state.event(event) {
        case .nothing: break
        case .begin(let id):
            log.info("session opened", [.session: .integer(id)])
            trouble.clear(Self.noSession)
            await engine.begin(session: id)
        case .abandon(let id):
            log.warning(
                "session lost: what it owned is dropped, and belongs to whoever takes it",
                [.session: .integer(id)]
            )
            trouble.set(Self.noSession)
            await engine.abandon(session: id)
        }
    }

    /// Hands back what was not finished, uncounted. A database that is away ends the session by
    /// itself.
    private func close() async {
        guard let id = state.id else { return }
        _ = state.event(.closed)
        let (sessions, log) = (sessions, log)
        // In a task of its own: this one is cancelled, and its calls would be, too.
        let closing = Task(executorPreference: loop) {
            do {
                try await sessions.close(id)
                log.info("session closed", [.session: .integer(id)])
            } catch {
                log.warning(
                    "session not closed; it ends when its lease does",
                    [.session: .integer(id), .error: .string("\(error)")]
                )
            }
        }
        await closing.value
        await engine.abandon(session: id)
    }
}
