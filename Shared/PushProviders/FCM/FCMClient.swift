internal import HTTPTransport
internal import Observability
internal import PushCore

/// FCM for one service account. Its connections are shared with the other accounts: FCM knows a
/// request by its bearer alone.
final class FCMClient: ProviderClient, @unchecked Sendable {
    private let url: String
    private let tokens: AccessTokenSource
    private let slot: ConnectionSlot
    private let queue: DeliveryQueue
    private let timeout: Duration
    private let clock: () -> Instant
    private var isClosed = false

    /// - Parameters:
    ///   - credential: Whose project is sent to.
    ///   - tokens: The credential's.
    ///   - slot: Shared; its owner closes it.
    ///   - configuration: Origin, time limits and bounds.
    ///   - clock: Judges `Retry-After` and the time that is left.
    init(
        _ credential: FCMCredential,
        tokens: AccessTokenSource,
        slot: ConnectionSlot,
        configuration: ProviderConfiguration,
        clock: @escaping () -> Instant
    ) {
        let origin = ProviderConfiguration.origin(configuration.fcmURL)
        url = "\(origin)/v1/projects/\(credential.projectID)/messages:send"
        self.tokens = tokens
        self.slot = slot
        self.clock = clock
        timeout = configuration.requestTimeout
        queue = DeliveryQueue(limit: configuration.streamsInFlight)
        queue.start = { [unowned self] in self.start($0) }
    }

    var deliveriesInside: Int { queue.count }

    func send(
        _ deliveries: [OutgoingNotification],
        completion: @escaping @Sendable (Int, ProviderAnswer) -> Void
    ) {
        queue.add(deliveries, completion: completion)
    }

    func close() {
        isClosed = true
        queue.drop(ProviderAnswer(.notSent, reason: "closed"))
    }

    /// The connections are not this client's, so there is nothing to wait for.
    func closeAfterLastDelivery() {}

    private func start(_ delivery: Delivery) {
        guard !isClosed else {
            return queue.finish(delivery, ProviderAnswer(.notSent, reason: "closed"))
        }
        guard DeviceToken.problem(delivery.notification.target.token, for: .fcm) == nil else {
            return queue.finish(delivery, ProviderAnswer(.rejected, reason: "malformed token"))
        }
        tokens.withToken { [self] result in
            switch result {
            case .failure(let refusal): queue.finish(delivery, refusal.answer)
            case .success(let bearer): send(delivery, bearer)
            }
        }
    }

    private func send(_ delivery: Delivery, _ bearer: String) {
        let request = FCMRequest.make(
            delivery.notification,
            url: url,
            bearer: bearer,
            at: clock(),
            timeout: timeout
        )
        let generation = slot.generation
        slot.client.send(request) { [self] result in
            switch result {
            case .failure(let error):
                if error.discreditsConnection {
                    slot.replace(generation, because: error.metricLabel)
                }
                queue.finish(delivery, ProviderAnswer(error))
            case .success(let response):
                finished(delivery, FCMAnswer.classify(response, at: clock()), bearer)
            }
        }
    }

    private func finished(_ delivery: Delivery, _ classified: FCMAnswer, _ bearer: String) {
        guard classified.wantsRenewal, delivery.renewals == 0, !isClosed else {
            return queue.finish(delivery, classified.answer)
        }
        delivery.renewals += 1
        tokens.discard(bearer)
        queue.requeue(delivery)
    }
}
