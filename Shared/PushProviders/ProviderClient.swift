package import PushCore

/// A provider's answer for one notification.
package struct ProviderAnswer: Sendable, Equatable {
    package var outcome: ProviderOutcome
    /// The HTTP status, if there was an answer.
    package var status: Int?
    /// The provider's own reason, or ours if it never answered. Bounded, never a token.
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
        // By bytes, as one character may be of any length, cut at the start of a scalar.
        var end = text.utf8.index(text.startIndex, offsetBy: limit)
        while text.utf8[end] & 0xC0 == 0x80 { end = text.utf8.index(before: end) }
        return String(text.unicodeScalars[..<end])
    }
}

/// A client of one provider with one credential.
///
/// Authority: each owns the resources of its credential (the token it signs or fetches, its
/// connections where they may not be shared) and is confined to one loop. Renewing a token, and the
/// one repeat that the provider allows after it, happen inside; every other retry is the caller's.
/// The requests in flight are bounded by the capacity of the provider's connections; the rest waits
/// here, urgent ones before all others, so the caller must bound what it hands over.
///
/// Shutdown: `close` ends every delivery that is inside; `closeAfterLastDelivery` lets them end by
/// themselves first.
package protocol ProviderClient: AnyObject, Sendable {
    /// Sends the deliveries, in order as far as the connection allows, but urgent ones as soon as
    /// anything can be sent. On the loop.
    ///
    /// `completion` runs on the loop, once for each index, some of them possibly before this
    /// returns.
    func send(
        _ deliveries: [OutgoingNotification],
        completion: @escaping @Sendable (Int, ProviderAnswer) -> Void
    )

    /// Withdraws waiting deliveries: they complete as `notSent`, before this returns or, while a
    /// token is being fetched for them, when that has come. They are not sent later. Deliveries in
    /// flight are waited for. On the loop.
    func withdrawAll()

    /// The number of deliveries handed over and not yet answered. On the loop.
    var deliveriesInside: Int { get }

    /// Completes unsent deliveries as `notSent`, sent ones as `noAnswer`. On the loop.
    func close()

    /// Closes after the last delivery has completed. On the loop.
    func closeAfterLastDelivery()
}
