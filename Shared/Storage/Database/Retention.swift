/// The retention times.
package struct Retention: Sendable, Equatable {
    /// `DELIVERY_RETENTION`, whole days.
    package var deliveryDays: Int
    /// `IDEMPOTENCY_RETENTION`.
    package var eventKeys: Duration
    /// `PUSH_RETENTION`.
    package var pushes: Duration
    /// `AUDIT_RETENTION`.
    package var audit: Duration

    package init(
        deliveryDays: Int = 7,
        eventKeys: Duration = .seconds(7 * 86_400),
        pushes: Duration = .seconds(90 * 86_400),
        audit: Duration = .seconds(90 * 86_400)
    ) {
        self.deliveryDays = max(1, deliveryDays)
        self.eventKeys = eventKeys
        self.pushes = pushes
        self.audit = audit
    }

    /// The number of whole days that cover the deduplication time of events.
    package var eventKeyDays: Int { max(1, Int((eventKeys.components.seconds + 86_399) / 86_400)) }
}
