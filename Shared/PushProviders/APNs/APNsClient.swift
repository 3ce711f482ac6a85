internal import HTTPTransport
internal import Observability
internal import PushCore

/// APNs for one credential in one environment.
///
/// With a provider token APNs allows a new connection one request until it has seen a valid token:
/// the transport's gate sees to that.
final class APNsClient: ProviderClient, @unchecked Sendable {
    private let credential: APNsCredential
    private let origin: String
    private let tokens: APNsTokenSource?
    private let slot: ConnectionSlot
    private let queue: DeliveryQueue
    private let timeout: Duration
    private let clock: () -> Instant
    private let log: Log
    private var isClosed = false
    private var isRetiring = false

    /// - Parameters:
    ///   - credential: Whose pushes these are.
    ///   - origin: The environment's.
    ///   - tokens: The (team, key)'s, where the credential is a key.
    ///   - slot: This client's alone: APNs binds a connection to a team, a key and their topics.
    ///   - configuration: Time limits and bounds.
    ///   - clock: Judges `Retry-After`.
    ///   - log: For what an operator may want to know.
    init(
        _ credential: APNsCredential,
        origin: String,
        tokens: APNsTokenSource?,
        slot: ConnectionSlot,
        configuration: ProviderConfiguration,
        clock: @escaping () -> Instant,
        log: Log
    ) {
        self.credential = credential
        self.origin = ProviderConfiguration.origin(origin)
        self.tokens = tokens
        self.slot = slot
        self.clock = clock
        self.log = log
        timeout = configuration.requestTimeout
        queue = DeliveryQueue(limit: configuration.streamsInFlight)
        queue.start = { [unowned self] in self.start($0) }
        queue.onEmpty = { [unowned self] in if self.isRetiring { self.close() } }
    }

    var deliveriesInside: Int { queue.count }

    func send(
        _ deliveries: [OutgoingNotification],
        completion: @escaping @Sendable (Int, ProviderAnswer) -> Void
    ) {
        queue.add(deliveries, completion: completion)
    }

    func close() {
        guard !isClosed else { return }
        isClosed = true
        queue.drop(ProviderAnswer(.notSent, reason: "closed"))
        slot.close()
    }

    func closeAfterLastDelivery() {
        isRetiring = true
        if queue.count == 0 { close() }
    }

    private func start(_ delivery: Delivery) {
        guard !isClosed else {
            return queue.finish(delivery, ProviderAnswer(.notSent, reason: "closed"))
        }
        guard DeviceToken.problem(delivery.notification.target.token, for: .apns) == nil else {
            return queue.finish(delivery, ProviderAnswer(.rejected, reason: "malformed token"))
        }
        let bearer: String?
        do {
            bearer = try tokens?.token()
        } catch {
            return queue.finish(
                delivery,
                ProviderAnswer(.misconfigured, reason: "the key does not sign")
            )
        }
        let request = APNsRequest.make(
            delivery.notification,
            origin: origin,
            topic: credential.topic,
            bearer: bearer,
            timeout: timeout
        )
        let generation = slot.generation
        slot.client.send(request) { [self] result in
            finished(delivery, result, generation: generation, bearer: bearer)
        }
    }

    private func finished(
        _ delivery: Delivery,
        _ result: Result<HTTPResponse, HTTPTransportError>,
        generation: Int,
        bearer: String?
    ) {
        switch result {
        case .failure(let error):
            if error.discreditsConnection { changeConnection(generation, error.metricLabel) }
            queue.finish(delivery, ProviderAnswer(error))
        case .success(let response):
            let classified = APNsAnswer.classify(
                response,
                environmentIsExplicit: delivery.notification.target.environmentIsExplicit,
                topicIsExplicit: delivery.notification.apnsTopicIsExplicit,
                at: clock()
            )
            react(classified, delivery, generation, bearer)
        }
    }

    private func react(
        _ classified: APNsAnswer,
        _ delivery: Delivery,
        _ generation: Int,
        _ bearer: String?
    ) {
        let reason = classified.answer.reason ?? "status \(classified.answer.status ?? 0)"
        switch classified.reaction {
        case .none: break
        case .changeConnection: changeConnection(generation, reason)
        case .keepToken:
            tokens?.tooManyUpdates()
            changeConnection(generation, reason)
        case .renewToken:
            if let bearer { tokens?.expired(bearer) }
            changeConnection(generation, reason)
            if repeatOnce(delivery) { return }
        case .changeConnectionAndRepeat:
            changeConnection(generation, reason)
            if repeatOnce(delivery) { return }
        }
        queue.finish(delivery, classified.answer)
    }

    private func repeatOnce(_ delivery: Delivery) -> Bool {
        guard delivery.renewals == 0, !isClosed else { return false }
        delivery.renewals += 1
        queue.requeue(delivery)
        return true
    }

    private func changeConnection(_ generation: Int, _ reason: String) {
        guard !isClosed else { return }
        slot.replace(generation, because: reason)
    }
}
