/// How every app fares at every provider, as far as this process has sent there.
///
/// Confined to the loop.
final class ProviderHealths: @unchecked Sendable {
    private var known: [FlightBudget.Client: OwnedDelivery.Health] = [:]
    private let backlogLimit: Int
    private let share: Int

    /// - Parameters:
    ///   - backlogLimit: So many rows wait before those who bring more are told to.
    ///   - share: How many may be on their way to one at once.
    init(backlogLimit: Int, share: Int) {
        self.backlogLimit = backlogLimit
        self.share = share
    }

    func health(of client: FlightBudget.Client) -> OwnedDelivery.Health {
        if let health = known[client] { return health }
        let health = OwnedDelivery.Health(
            client,
            backlog: ProviderBacklog(limit: backlogLimit, share: share)
        )
        known[client] = health
        return health
    }
}
