import Observability

/// How every app fares at every provider, as far as this process has sent there.
///
/// Confined to the loop.
final class ProviderHealths: @unchecked Sendable {
    private var known: [FlightBudget.Client: OwnedDelivery.Health] = [:]
    private let backlogLimit: Int
    private let share: Int
    private let meters: DeliveryMeters
    private let log: Log

    /// So many rows wait before those who bring more are told to, and `share` may be in flight to one
    /// at once.
    init(backlogLimit: Int, share: Int, meters: DeliveryMeters, log: Log) {
        self.backlogLimit = backlogLimit
        self.share = share
        self.meters = meters
        self.log = log
    }

    func health(of client: FlightBudget.Client) -> OwnedDelivery.Health {
        if let health = known[client] { return health }
        let health = OwnedDelivery.Health(
            client,
            backlog: ProviderBacklog(limit: backlogLimit, share: share)
        )
        health.onWave = { [meters, log] isForeign, dead, answers in
            log.error(
                isForeign
                    ? "many tokens are another sender's: none is disabled until FCM accepts a push"
                    : "a sudden wave of dead tokens: none is disabled until it is over",
                [
                    .app: .string(client.app), .provider: .string(client.provider),
                    .count: .integer(dead), .detail: .string("of \(answers) answers in a minute"),
                ]
            )
            meters.deadTokenWaves.add()
        }
        known[client] = health
        return health
    }
}
