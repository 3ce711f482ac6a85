internal import HTTPTransport
internal import Observability
internal import PushCore

/// MPNS for one app, with its certificate if it has one. A certificate has separate connections.
/// All apps without a certificate share theirs.
final class MPNSClient: ProviderClient, @unchecked Sendable {
    private let channelHosts: HostPolicy
    private let slot: ConnectionSlot
    private let isAuthenticated: Bool
    private let channels: SharedMPNSChannels
    private let queue: NotificationQueue
    private let clock: () -> Instant
    private var isClosed = false
    private var isRetiring = false

    /// - Parameters:
    ///   - channelHosts: The allowed hosts of channel URIs.
    ///   - slot: The connections. They belong to this client if `isAuthenticated`; else they are
    ///     shared, and their owner closes them.
    ///   - share: The share of the slot's connections, if they are shared.
    ///   - isAuthenticated: Whether we authenticate by a certificate.
    ///   - channels: The throttled channels of all clients.
    ///   - configuration: Time limits and bounds.
    ///   - clock: The time for `Retry-After`, and for throttled channels.
    init(
        channelHosts: HostPolicy,
        slot: ConnectionSlot,
        share: ConnectionShare?,
        isAuthenticated: Bool,
        channels: SharedMPNSChannels,
        configuration: ProviderConfiguration,
        clock: @escaping () -> Instant
    ) {
        self.channelHosts = channelHosts
        self.slot = slot
        self.isAuthenticated = isAuthenticated
        self.channels = channels
        self.clock = clock
        queue = NotificationQueue(
            limit: configuration.mpnsConnections,
            of: share,
            timeout: configuration.requestTimeout
        )
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

    func withdrawAll() { queue.drop(ProviderAnswer(.notSent, reason: "withdrawn")) }

    func close() {
        guard !isClosed else { return }
        isClosed = true
        queue.drop(ProviderAnswer(.notSent, reason: "closed"))
        if isAuthenticated { slot.close() }
    }

    func closeAfterLastDelivery() {
        isRetiring = true
        if queue.count == 0 { close() }
    }

    private func start(_ delivery: QueuedNotification) {
        guard !isClosed else {
            return queue.finish(delivery, ProviderAnswer(.notSent, reason: "closed"))
        }
        let channel = delivery.notification.target.token
        guard channelHosts.permits(channel) else {
            return queue.finish(
                delivery,
                ProviderAnswer(.rejected, reason: LocalFailure.hostNotAllowed.rawValue)
            )
        }
        // A request over plain http sends no certificate.
        let isProven = isAuthenticated && channel.hasPrefix("https://")
        if let wait = channels.state.admit(channel, isAuthenticated: isProven, now: clock()) {
            return queue.finish(
                delivery,
                ProviderAnswer(.throttled(retryAfter: wait), reason: "the channel is left alone")
            )
        }
        let generation = slot.generation
        let request = MPNSRequest.make(delivery.notification, timeout: delivery.timeLeft)
        slot.client.send(request) { [self] result in
            switch result {
            case .failure(let error):
                if error.discreditsConnection {
                    slot.replace(generation, because: error.metricLabel)
                }
                queue.finish(delivery, ProviderAnswer(error))
            case .success(let response):
                let classified = MPNSAnswer.classify(response, at: clock())
                if let wait = classified.holdsChannel {
                    channels.state.hold(channel, for: wait, now: clock())
                }
                queue.finish(delivery, classified.answer)
            }
        }
    }
}

/// The throttled channels of all clients. Confined to one loop.
final class SharedMPNSChannels {
    var state = MPNSChannelThrottle()
}
