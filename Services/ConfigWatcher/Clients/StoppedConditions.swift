import Observability
import RemoteConfig

/// Counts and logs conditions that took too long and so counted as false. Confined to its loop.
final class StoppedConditions: @unchecked Sendable {
    /// The interval between lines in the log; each names one condition.
    private static let pause = Duration.seconds(60)

    private let counter: Counter
    private let log: Log
    private var loggedAt: ContinuousClock.Instant?

    init(_ counter: Counter, log: Log) {
        self.counter = counter
        self.log = log
    }

    func count(_ evaluation: ConfigEvaluation, of app: String, version: Int) {
        guard let name = evaluation.stoppedCondition else { return }
        counter.add(evaluation.stoppedCount)
        let now = ContinuousClock.now
        guard loggedAt.map({ now - $0 > Self.pause }) ?? true else { return }
        loggedAt = now
        log.warning(
            "a condition takes too long and counts as false; make its patterns or lists smaller",
            [.app: .string(app), .name: .string(name), .version: .integer(version)]
        )
    }
}
