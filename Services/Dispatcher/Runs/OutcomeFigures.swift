import EventLoop
import Observability
import PushCore
import PushStorage
import ServiceKit
import Storage

/// Counts the outcomes of this process once they are in the ledger, for `push_figures`.
@DispatchLoop
final class OutcomeFigures {
    private let totals: FigureTotals

    init(at now: Instant) { totals = FigureTotals(at: now) }

    /// Counts a recorded delivery if it has ended. Only direct deliveries that a provider answered
    /// have a latency: the last members of a broadcast wait for the others, which says nothing about
    /// the provider.
    func count(_ end: DeliveryEnd, of delivery: Delivery, _ context: PushContext) {
        guard let outcome = end.outcome else { return }
        let isTimed =
            delivery.lane == Lane.direct.rawValue && (outcome == .delivered || end.status != nil)
        totals.add(
            outcome,
            app: delivery.app,
            provider: delivery.device.provider,
            pushID: context.isForMany ? context.pushID : nil,
            latency: isTimed ? end.at.milliseconds - delivery.createdAt.milliseconds : nil,
            at: end.at
        )
    }

    /// Returns the rows that have changed since the last call, and the present minute.
    func take(at now: Instant) -> (rows: [PushFigure], minute: Instant) {
        totals.advance(to: now)
        return (totals.take(), totals.minute)
    }

    func putBack(_ rows: [PushFigure]) { totals.putBack(rows) }
}

/// Writes `OutcomeFigures` every five seconds, and once more after the deliveries have drained.
///
/// A process that is killed loses the counts of its last seconds. Only charts miss them: the ledger
/// has the outcomes.
struct FigureWriter: ServicePart {
    let name = "figures"
    private static let pause: Duration = .seconds(5)
    private static let cannot = "figures for charts cannot be written"

    private let figures: OutcomeFigures
    private let store: PushFigureStore
    private let clock: DatabaseClock
    private let log: Log
    private let warnings = NotReadyReasons()
    /// The number of this process in the rows' keys. A session's number would not do: a process may
    /// lose its session and count on.
    private let replica = Int.random(in: 1 ... .max)

    init(_ figures: OutcomeFigures, _ database: PushDatabase, in runtime: ServiceRuntime) {
        self.figures = figures
        store = database.figures
        clock = database.clock
        log = runtime.log
    }

    func warning() -> String? { warnings.reason }

    func run() async throws {
        while !Task.isCancelled {
            try? await DispatchLoop.loop.sleep(for: Self.pause)
            if !Task.isCancelled { await write() }
        }
        // In a separate task, as this one is cancelled and would cancel its calls.
        await DispatchLoop.task { await write() }.value
    }

    @DispatchLoop
    private func write() async {
        let (rows, minute) = figures.take(at: clock.now())
        do {
            try await store.write(rows, at: minute, replica: replica)
            warnings.clear(Self.cannot)
        } catch {
            figures.putBack(rows)
            warnings.set(Self.cannot)
            log.warning("figures cannot be written", [.error: .string("\(error)")])
        }
    }
}
