import Observability
import PushCore
import Storage

/// The health of each provider that this process has sent to, by app.
@DispatchLoop
final class ProviderHealths {
    /// The states by app, then by `Platform.ordinal`.
    private var known: [String: [ClientHealth?]] = [:]
    private var clients = 0
    private let backlogLimit: Int
    private let share: Int
    private let meters: DeliveryMetrics
    private let log: Log

    /// - Parameters:
    ///   - backlogLimit: The number of waiting rows from which callers that bring more have to wait.
    ///   - share: The most deliveries in flight to one provider of one app.
    ///   - meters: Counts waves.
    ///   - log: The log of waves.
    init(backlogLimit: Int, share: Int, meters: DeliveryMetrics, log: Log) {
        self.backlogLimit = backlogLimit
        self.share = share
        self.meters = meters
        self.log = log
    }

    func health(of app: String, at platform: Platform) -> ClientHealth {
        if let health = known[app]?[platform.ordinal] { return health }
        clients += 1
        let health = ClientHealth(
            SendBudget.Client(clients),
            backlog: ProviderBacklog(limit: backlogLimit, share: share)
        )
        health.onWave = { [meters, log] isForeign, dead, answers in
            log.error(
                isForeign
                    ? "many tokens are another sender's: none is disabled until FCM accepts a push"
                    : "wave of dead tokens; token clean-up suspended",
                [
                    .app: .string(app), .provider: .string(platform.rawValue),
                    .count: .integer(dead), .detail: .string("of \(answers) answers in a minute"),
                ]
            )
            meters.deadTokenWaves.add()
        }
        known[app, default: Platform.allCases.map { _ in nil }][platform.ordinal] = health
        return health
    }

    /// How long a breaker counts as open that no delivery has probed. Deliveries that wait probe it at
    /// the end of its window; without any, nothing is known of the provider.
    private static let longestUnprobed: Int64 = 60_000

    /// Finds the open breakers.
    ///
    /// - Parameters:
    ///   - now: The time.
    ///   - steady: The same time by the steady clock.
    /// - Returns: The breakers, those that are open for the longest time first.
    func openBreakers(_ now: Instant, _ steady: MonotonicInstant) -> [OpenBreaker] {
        var found: [OpenBreaker] = []
        for (app, clients) in known {
            for (platform, health) in zip(Platform.allCases, clients) {
                for (isSandbox, breaker) in health?.breakers.open ?? [] {
                    let left = breaker.windowEnds.milliseconds(since: steady)
                    guard left > -Self.longestUnprobed else { continue }
                    let ago = steady.milliseconds(since: breaker.failingSince ?? steady)
                    found.append(
                        OpenBreaker(
                            app: app,
                            provider: platform,
                            isSandbox: isSandbox,
                            since: now.adding(milliseconds: -ago),
                            retryAt: now.adding(milliseconds: left)
                        )
                    )
                }
            }
        }
        return found.sorted { ($0.since, $0.app) < ($1.since, $1.app) }
    }
}
