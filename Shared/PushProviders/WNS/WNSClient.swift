internal import HTTPTransport
internal import Observability
internal import PushCore

/// WNS for one app. It shares its connections with the other apps: WNS identifies a request only by
/// its bearer token.
final class WNSClient: ProviderClient, @unchecked Sendable {
    private let channelHosts: HostPolicy
    private let tokens: AccessTokenSource
    private let slot: ConnectionSlot
    private let queue: NotificationQueue
    private let clock: () -> Instant
    private var isClosed = false
    private var withdrawals = 0

    /// - Parameters:
    ///   - channelHosts: The allowed hosts of channel URIs.
    ///   - tokens: The token source of the app.
    ///   - slot: The shared connections. Their owner closes them.
    ///   - share: The share of the slot's connections.
    ///   - configuration: Time limits and bounds.
    ///   - clock: The time for `Retry-After` and the remaining time.
    init(
        channelHosts: HostPolicy,
        tokens: AccessTokenSource,
        slot: ConnectionSlot,
        share: ConnectionShare,
        configuration: ProviderConfiguration,
        clock: @escaping () -> Instant
    ) {
        self.channelHosts = channelHosts
        self.tokens = tokens
        self.slot = slot
        self.clock = clock
        queue = NotificationQueue(
            limit: configuration.wnsConnections,
            of: share,
            timeout: configuration.requestTimeout
        )
        queue.start = { [unowned self] in self.start($0) }
    }

    var deliveriesInside: Int { queue.count }

    func send(
        _ deliveries: [OutgoingNotification],
        completion: @escaping @Sendable (Int, ProviderAnswer) -> Void
    ) {
        queue.add(deliveries, completion: completion)
    }

    func withdrawAll() {
        withdrawals += 1
        queue.drop(ProviderAnswer(.notSent, reason: "withdrawn"))
    }

    func close() {
        isClosed = true
        queue.drop(ProviderAnswer(.notSent, reason: "closed"))
    }

    /// Does nothing: this client does not own its connections.
    func closeAfterLastDelivery() {}

    private func start(_ delivery: QueuedNotification) {
        guard !isClosed else {
            return queue.finish(delivery, ProviderAnswer(.notSent, reason: "closed"))
        }
        // A channel URI comes from a device, and the request to it has our bearer token. So its
        // host must be WNS' own.
        let channel = delivery.notification.target.token
        guard channel.hasPrefix("https://"), channelHosts.permits(channel) else {
            return queue.finish(
                delivery,
                ProviderAnswer(.rejected, reason: LocalFailure.hostNotAllowed.rawValue)
            )
        }
        let round = withdrawals
        tokens.withToken { [self] result in
            switch result {
            case .failure(let refusal): queue.finish(delivery, refusal.answer)
            case .success where round != withdrawals:
                queue.finish(delivery, ProviderAnswer(.notSent, reason: "withdrawn"))
            case .success(let bearer): send(delivery, bearer)
            }
        }
    }

    private func send(_ delivery: QueuedNotification, _ bearer: String) {
        let request = WNSRequest.make(
            delivery.notification,
            bearer: bearer,
            at: clock(),
            timeout: delivery.timeLeft
        )
        let generation = slot.generation
        let round = withdrawals
        slot.client.send(request) { [self] result in
            switch result {
            case .failure(let error):
                if error.discreditsConnection {
                    slot.replace(generation, because: error.metricLabel)
                }
                queue.finish(delivery, ProviderAnswer(error))
            case .success(let response):
                let answer = WNSAnswer.classify(response, at: clock())
                finished(delivery, answer, bearer, mayRepeat: round == withdrawals)
            }
        }
    }

    private func finished(
        _ delivery: QueuedNotification,
        _ classified: WNSAnswer,
        _ bearer: String,
        mayRepeat: Bool
    ) {
        guard classified.wantsRenewal, delivery.renewals == 0, !isClosed, mayRepeat else {
            return queue.finish(delivery, classified.answer)
        }
        delivery.renewals += 1
        tokens.discard(bearer)
        queue.requeue(delivery)
    }
}
