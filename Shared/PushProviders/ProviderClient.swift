package import PushCore

/// A provider's answer for one notification.
package struct ProviderAnswer: Sendable, Equatable {
    package var outcome: ProviderOutcome
    /// The HTTP status, if there was an answer.
    package var status: Int?
    /// The provider's reason, or our own if it did not answer. Bounded, never a token.
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
        // Limits the bytes, as one character may have any length. Cuts at the start of a scalar.
        var end = text.utf8.index(text.startIndex, offsetBy: limit)
        while text.utf8[end] & 0xC0 == 0x80 { end = text.utf8.index(before: end) }
        return String(text.unicodeScalars[..<end])
    }
}

/// A client of one provider with one credential.
///
/// Authority: each client owns the resources of its credential, and is confined to one loop. The
/// resources are the token that it signs or fetches, and its connections if they may not be shared.
/// The client renews the token and makes the one repeat that the provider allows after that. Every
/// other retry is the caller's. The capacity of the provider's connections bounds the requests in
/// flight. All other deliveries wait here, urgent ones first, so the caller must bound the
/// deliveries that it hands over.
///
/// Shutdown: `close` ends every delivery inside; `closeAfterLastDelivery` lets them end first.
package protocol ProviderClient: AnyObject, Sendable {
    /// Sends the deliveries, in order as far as the connection allows. Urgent ones are sent as soon
    /// as anything can be sent. On the loop.
    ///
    /// `completion` runs on the loop, once for each index. It may run for some before this returns.
    func send(
        _ deliveries: [OutgoingNotification],
        completion: @escaping @Sendable (Int, ProviderAnswer) -> Void
    )

    /// Withdraws waiting deliveries: they complete as `notSent` and are not sent later. They
    /// complete before this returns, or, if they wait for a token, when its fetch has ended.
    /// Deliveries in flight continue. On the loop.
    func withdrawAll()

    /// The number of deliveries that were handed over and have no answer yet. On the loop.
    var deliveriesInside: Int { get }

    /// Completes unsent deliveries as `notSent`, and sent deliveries as `noAnswer`. On the loop.
    func close()

    /// Closes after the last delivery has completed. On the loop.
    func closeAfterLastDelivery()
}
