internal import HTTPTransport
internal import PushCore

/// A cache of the heads of requests to one origin, as pushes have few different headers. Bounded.
/// Confined to its client's loop.
struct RequestHeadCache {
    private struct Key: Hashable {
        var headers: [HTTPField]
        var varying: [String]
    }

    private let origin: HTTP2Origin
    private var heads: [Key: HTTP2RequestHead] = [:]

    /// The most heads: one credential has few topics, priorities and tokens.
    private static let maximumHeads = 64

    init(origin: HTTP2Origin) { self.origin = origin }

    /// - Throws: `invalidRequest` if a header cannot be sent.
    mutating func head(
        _ headers: [HTTPField],
        varying: [String] = []
    ) throws(HTTPTransportError) -> HTTP2RequestHead {
        let key = Key(headers: headers, varying: varying)
        if let head = heads[key] { return head }
        if heads.count >= Self.maximumHeads { heads.removeAll() }
        let head = try HTTP2RequestHead(origin: origin, headers: headers, varying: varying)
        heads[key] = head
        return head
    }
}

/// The notifications of one hand-over, until all have answers.
final class DeliveryBatch {
    let notifications: [OutgoingNotification]
    /// The number of withdrawals of its client before the hand-over.
    let round: Int
    private let deadline: ContinuousClock.Instant
    /// The time that a request has at least from when it is sent, as otherwise the answer of a working
    /// provider would come too late: half of the whole time.
    let answerTime: Duration
    private let completion: @Sendable (Int, ProviderAnswer) -> Void

    init(
        _ notifications: [OutgoingNotification],
        round: Int,
        timeout: Duration,
        completion: @escaping @Sendable (Int, ProviderAnswer) -> Void
    ) {
        self.notifications = notifications
        self.round = round
        deadline = .now + timeout
        answerTime = timeout / 2
        self.completion = completion
    }

    /// Returns the time that is left, at least `answerTime`. Waiting for a token, or a first attempt,
    /// may have used some of it.
    func timeLeft(at now: ContinuousClock.Instant = .now) -> Duration {
        max(answerTime, deadline - now)
    }

    func complete(_ index: Int, _ answer: ProviderAnswer) { completion(index, answer) }
}
