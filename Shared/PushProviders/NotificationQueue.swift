internal import PushCore

/// One notification inside a client.
final class QueuedNotification {
    let notification: OutgoingNotification
    /// The number of repeats with a fresh token or connection.
    var renewals = 0
    fileprivate var deadline: ContinuousClock.Instant
    private let index: Int
    private let completion: @Sendable (Int, ProviderAnswer) -> Void

    init(
        _ notification: OutgoingNotification,
        index: Int,
        deadline: ContinuousClock.Instant,
        completion: @escaping @Sendable (Int, ProviderAnswer) -> Void
    ) {
        self.notification = notification
        self.deadline = deadline
        self.index = index
        self.completion = completion
    }

    /// The time that is left for the answer.
    var timeLeft: Duration { max(.zero, deadline - .now) }

    fileprivate func complete(_ answer: ProviderAnswer) { completion(index, answer) }
}

/// A queue of deliveries. It starts urgent ones first, and otherwise in order of arrival. At most
/// `limit` are in flight, and of shared connections no more than this client's share. Confined to
/// its client's loop.
///
/// A delivery's time counts from `add`. If less than half of it is left when its turn comes, the
/// delivery has waited for others. If the provider has answered a request within the time limit,
/// the delivery's time restarts. Otherwise the delivery ends as not sent. This is checked when
/// another delivery ends, which its own deadline ensures.
final class NotificationQueue {
    /// The most deliveries in flight, 1 or more. Raising it starts waiting deliveries.
    var limit: Int {
        didSet { if limit > oldValue { pump() } }
    }
    private(set) var inFlight = 0
    /// The closure that starts one delivery; the client sets it once. Each start ends in `finish`
    /// or `requeue`, possibly at once.
    var start: (QueuedNotification) -> Void = { _ in }
    /// Called when the last delivery has left.
    var onEmpty: () -> Void = {}

    private struct Lane {
        var waiting: [QueuedNotification] = []
        var head = 0

        var count: Int { waiting.count - head }

        mutating func next() -> QueuedNotification? {
            guard head < waiting.count else { return nil }
            let next = waiting[head]
            head += 1
            if head == waiting.count {
                waiting.removeAll(keepingCapacity: true)
                head = 0
            } else if head > 4096 {
                waiting.removeFirst(head)
                head = 0
            }
            return next
        }

        mutating func putBack(_ delivery: QueuedNotification) {
            if head > 0 {
                head -= 1
                waiting[head] = delivery
            } else {
                waiting.insert(delivery, at: 0)
            }
        }
    }

    private var urgent = Lane()
    private var others = Lane()
    private var isPumping = false

    private let share: ConnectionShare?
    private let timeout: Duration
    /// The time of the provider's last answer.
    private var lastAnswer: ContinuousClock.Instant?

    /// - Parameters:
    ///   - limit: See `limit`.
    ///   - share: The share of connections, if they are shared.
    ///   - timeout: The time from `add` to the answer.
    init(limit: Int, of share: ConnectionShare? = nil, timeout: Duration = .seconds(20)) {
        self.limit = max(1, limit)
        self.share = share
        self.timeout = timeout
    }

    var hasWaiting: Bool { urgent.count + others.count > 0 }

    var count: Int { urgent.count + others.count + inFlight }

    func add(
        _ notifications: [OutgoingNotification],
        completion: @escaping @Sendable (Int, ProviderAnswer) -> Void
    ) {
        let deadline = ContinuousClock.now + timeout
        for (index, notification) in notifications.enumerated() {
            let delivery = QueuedNotification(
                notification,
                index: index,
                deadline: deadline,
                completion: completion
            )
            if notification.isUrgent {
                urgent.waiting.append(delivery)
            } else {
                others.waiting.append(delivery)
            }
        }
        pump()
    }

    func finish(_ delivery: QueuedNotification, _ answer: ProviderAnswer) {
        inFlight -= 1
        if answer.status != nil { lastAnswer = .now }
        delivery.complete(answer)
        share?.giveBack()
        pump()
        if count == 0 { onEmpty() }
    }

    /// Returns a delivery to the front of its queue, so that it is sent again before all others of
    /// its urgency.
    func requeue(_ delivery: QueuedNotification) {
        inFlight -= 1
        if delivery.notification.isUrgent {
            urgent.putBack(delivery)
        } else {
            others.putBack(delivery)
        }
        share?.giveBack()
        pump()
    }

    /// Ends all deliveries that have not been started.
    func drop(_ answer: ProviderAnswer) {
        let dropped = [urgent, others].flatMap { $0.waiting[$0.head...] }
        urgent = Lane()
        others = Lane()
        for delivery in dropped { delivery.complete(answer) }
    }

    /// Starts deliveries. It is a loop, not a recursion: deliveries that end at once must not fill
    /// the stack.
    private func pump() {
        guard !isPumping else { return }
        isPumping = true
        defer { isPumping = false }
        while startNext() {}
        if hasWaiting { share?.wait(self) }
    }

    /// - Returns: Whether a delivery was started.
    func startNext() -> Bool {
        guard inFlight < limit, hasWaiting, share?.take(using: inFlight) ?? true,
            let next = urgent.next() ?? others.next()
        else { return false }
        inFlight += 1
        if next.timeLeft < timeout / 2 || next.timeLeft == .zero {
            guard let lastAnswer, .now - lastAnswer < timeout else {
                finish(next, ProviderAnswer(.notSent, reason: "timeout"))
                return true
            }
            next.deadline = .now + timeout
        }
        start(next)
        return true
    }
}
