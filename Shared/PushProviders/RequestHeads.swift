internal import HTTPTransport
internal import PushCore

/// The heads of requests to one origin, kept while they are used again and again: pushes differ in
/// little but what each request brings. Bounded; confined to its client's loop.
struct RequestHeads {
    private struct Key: Hashable {
        var headers: [HTTPField]
        var varying: [String]
    }

    private let origin: HTTP2Origin
    private var heads: [Key: HTTP2RequestHead] = [:]

    /// Topics, priorities and tokens of one credential are few.
    private static let maximumHeads = 64

    init(origin: HTTP2Origin) { self.origin = origin }

    /// - Throws: `invalidRequest` where a header cannot be sent.
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

/// Notifications that were handed over together, until each has its answer.
final class DeliveryBatch {
    let notifications: [OutgoingNotification]
    /// How often its client had been told to withdraw all when it came.
    let round: Int
    private let deadline: ContinuousClock.Instant
    private let least: Duration
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
        least = timeout / 4
        self.completion = completion
    }

    /// Of the time from hand-over to answer: a wait for a token has used up some, or a first try. A
    /// quarter of it in any case, or an honest provider's answer would come too late.
    func timeLeft(at now: ContinuousClock.Instant = .now) -> Duration { max(least, deadline - now) }

    func complete(_ index: Int, _ answer: ProviderAnswer) { completion(index, answer) }
}
