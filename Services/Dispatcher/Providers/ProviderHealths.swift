import Observability
import PushCore

/// The health of each provider that this process has sent to, by app.
///
/// Confined to the loop.
final class ProviderHealths: @unchecked Sendable {
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
}
