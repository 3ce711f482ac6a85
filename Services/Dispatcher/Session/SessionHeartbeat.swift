import EventLoop
import Observability
import PushCore
import PushStorage
import ServiceKit

/// Renews the lease of this process' session. `sessionReaper` ends expired sessions.
///
/// Authority: the session's id. The session is opened when the database is available and renewed
/// every two seconds. It is given up the moment its lease may have ended in the table.
/// `SessionLease` decides that, and `DeliveryEngine` is notified.
///
/// It has separate connections: on shared ones a heartbeat could wait longer than the lease, behind
/// a statement that waits for a lock.
///
/// Shutdown: closes the session, which releases all that it still owns. This part comes before all
/// parts that work under the session, so it stops after them.
@DispatchLoop
final class SessionHeartbeat: ServicePart {
    nonisolated let name = "session"
    private let notReady = NotReadyReasons()
    nonisolated func notReadyReason() -> String? { notReady.reason }

    private static let beat: Duration = .seconds(2)
    private static let noSession = "no session yet"

    private let sessions: SessionStore
    private let host: String
    /// The application name of this process' connections.
    private let connections: String
    private let log: Log
    /// The engine, which works under the session.
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
        self.sessions = sessions
        self.engine = engine
        self.host = host
        self.connections = connections
        log = runtime.log
        notReady.set(Self.noSession)
    }

    @DispatchLoop func run() async throws {
        let loop = DispatchLoop.loop
        let ticker = loop.schedule(after: .milliseconds(200), every: .milliseconds(200)) {
            self.apply(.tick(now: .now()))
        }
        while !Task.isCancelled {
            await renewOnce()
            try? await loop.sleep(for: state.id == nil ? .milliseconds(250) : Self.beat)
        }
        ticker.cancel()
        await close()
    }

    private func renewOnce() async {
        let asked = MonotonicInstant.now()
        do {
            // A task that found that another session owns its row has notified the engine already.
            if let id = state.id, engine.session.current == nil {
                try await sessions.end(id)
                apply(.renewed(id: id, isHeld: false, asked: asked))
            }
            if let id = state.id {
                let isHeld = try await sessions.heartbeat(id)
                apply(.renewed(id: id, isHeld: isHeld, asked: asked))
            }
            if state.id == nil, !Task.isCancelled {
                let asked = MonotonicInstant.now()
                let id = try await sessions.open(name: host, connections: connections)
                apply(.opened(id: id, asked: asked))
            }
        } catch {
            log.debug("lease not renewed", [.error: .string("\(error)")])
        }
    }

    private func apply(_ event: SessionLease.Event) {
        switch state.event(event) {
        case .nothing: break
        case .begin(let id):
            log.info("session opened", [.session: .integer(id)])
            notReady.clear(Self.noSession)
            engine.begin(session: id)
        case .abandon(let id):
            log.warning(
                "session lost; its deliveries are released",
                [.session: .integer(id)]
            )
            notReady.set(Self.noSession)
            engine.abandon(session: id)
        }
    }

    /// Closes the session, which releases unfinished work, uncounted. If the database is
    /// unreachable, the session expires.
    private func close() async {
        guard let id = state.id else { return }
        _ = state.event(.closed)
        let (sessions, log) = (sessions, log)
        // In a separate task, as this one is cancelled and would cancel its calls.
        let closing = DispatchLoop.task {
            do {
                try await sessions.close(id)
                log.info("session closed", [.session: .integer(id)])
            } catch {
                log.warning(
                    "session not closed; it expires with its lease",
                    [.session: .integer(id), .error: .string("\(error)")]
                )
            }
        }
        await closing.value
        engine.abandon(session: id)
    }
}
