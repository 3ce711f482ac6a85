import Observability
import PushCore

/// The health of each provider that this process has sent to, by app.
///
/// Confined to the loop.
final class ProviderHealths: @unchecked Sendable {
    /// By app, then by `Platform.ordinal`.
    private var known: [String: [ClientHealth?]] = [:]
    private var clients = 0
    private let backlogLimit: Int
    private let share: Int
    private let meters: DeliveryMeters
    private let log: Log

    /// - Parameters:
    ///   - backlogLimit: Rows that wait before callers who bring more are told to.
    ///   - share: Deliveries in flight to one provider of one app, at most.
    ///   - meters: Count waves.
    ///   - log: Gets waves.
    init(backlogLimit: Int, share: Int, meters: DeliveryMeters, log: Log) {
        self.backlogLimit = backlogLimit
        self.share = share
        self.meters = meters
        self.log = log
    }

    func health(of app: String, at platform: Platform) -> ClientHealth {
        if let health = known[app]?[platform.ordinal] { return health }
        clients += 1
        let health = ClientHealth(
            FlightBudget.Client(clients),
            backlog: ProviderBacklog(limit: backlogLimit, share: share)
        )
        health.onWave = { [meters, log] isForeign, dead, answers in
            log.error(
                isForeign
                    ? "many tokens are another sender's: none is disabled until FCM accepts a push"
                    : "a sudden wave of dead tokens: none is disabled until it is over",
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
