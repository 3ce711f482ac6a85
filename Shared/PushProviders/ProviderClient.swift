package import PushCore

/// What became of one notification at its provider.
package struct ProviderAnswer: Sendable, Equatable {
    package var outcome: ProviderOutcome
    /// The HTTP status, where there was an answer.
    package var status: Int?
    /// The provider's own word for it, or ours where it never answered. Bounded, never a token.
    package var reason: String?
    package var providerMessageID: String?

    package init(
        _ outcome: ProviderOutcome,
        status: Int? = nil,
        reason: String? = nil,
        providerMessageID: String? = nil
    ) {
        self.outcome = outcome
        self.status = status
        self.reason = reason.map { Self.bounded($0, 200) }
        self.providerMessageID = providerMessageID.map { Self.bounded($0, 300) }
    }

    static func bounded(_ text: String, _ limit: Int) -> String {
        guard text.utf8.count > limit else { return text }
        // By bytes, as one character may be of any length, at the start of a scalar.
        var end = text.utf8.index(text.startIndex, offsetBy: limit)
        while text.utf8[end] & 0xC0 == 0x80 { end = text.utf8.index(before: end) }
        return String(text.unicodeScalars[..<end])
    }
}

/// The way to one provider with one credential.
///
/// Authority: each owns what its credential entitles to (the token it signs or fetches, its
/// connections where they may not be shared) and is confined to one loop. Renewing a token, and the
/// one repeat that the provider allows after it, happen inside; every other retry is the
/// caller's. What goes out at once is bounded by what the provider's connections take; the rest waits
/// here, urgent ones before all others, so the caller bounds what it hands over.
///
/// Shutdown: `close` ends every delivery that is inside; `closeAfterLastDelivery` lets them end by
/// themselves first.
package protocol ProviderClient: AnyObject, Sendable {
    /// Sends each of them, in order as far as the connection allows, but urgent ones as soon as
    /// anything can be sent. On the loop.
    ///
    /// `completion` runs on the loop, once for each index, some of them possibly before this
    /// returns.
    func send(
        _ deliveries: [OutgoingNotification],
        completion: @escaping @Sendable (Int, ProviderAnswer) -> Void
    )

    /// Calls back what waits in here: it completes as `notSent`, before this returns or, where a
    /// token is being fetched for it, when that has come. Nothing of it is sent later. What has
    /// gone out is waited for. On the loop.
    func withdrawAll()

    /// Deliveries handed over and not yet answered. On the loop.
    var deliveriesInside: Int { get }

    /// What was not sent yet completes as `notSent`, what was as `noAnswer`. On the loop.
    func close()

    /// On the loop.
    func closeAfterLastDelivery()
}
