import Cryptography
import JSON
import PushCore
import PushEvents
import PushProviders
import PushStorage

/// What the deliveries of one push share: the request, each payload once it is rendered, how its
/// outcomes begin, and the pace that they keep.
///
/// Confined to the dispatcher's loop.
final class PushContext: @unchecked Sendable {
    let pushID: String
    let eventID: String
    /// `nil` where the push's record is gone, or not what this version reads.
    private let request: PushRequest?
    private var payloads: [Platform: Result<RenderedPayload, RenderingError>] = [:]
    private var notificationIDs: NotificationIDs
    private var outcomes: OutcomeWriter?
    /// `nil`: as fast as it goes.
    var pace: PaceBucket?

    init(pushID: String, eventID: String, request: PushRequest?) {
        self.pushID = pushID
        self.eventID = eventID
        // The audience was needed to plan, and may be long.
        var request = request
        request?.audience = .tokens([])
        self.request = request
        notificationIDs = NotificationIDs(pushID: pushID, digest: sha256)
        pace = request?.pace.map(PaceBucket.init(perSecond:))
    }

    /// From its record.
    convenience init(_ push: StoredPush) {
        self.init(
            pushID: push.id,
            eventID: push.eventID,
            // It was judged when it came in; what was past then is past now.
            request: try? PushRequest.parse(push.request, now: .latest)
        )
    }

    /// The APNs topic of those installations that have none of their own.
    var apnsTopic: String? { request?.apnsTopic }

    /// Renders once per platform.
    ///
    /// - Throws: `RenderingError` when there is nothing to send to this platform, or too much.
    func payload(_ platform: Platform) throws(RenderingError) -> RenderedPayload {
        if let known = payloads[platform] { return try known.get() }
        guard let request else {
            throw .invalid(field: "the push's record", problem: "cannot be read")
        }
        let rendered = Result { () throws(RenderingError) in
            try RenderedPayload.render(request, pushID: pushID, for: platform)
        }
        payloads[platform] = rendered
        return try rendered.get()
    }

    /// The same on every attempt.
    func notificationID(of target: String) -> String { notificationIDs.id(of: target) }

    /// What the rest of the company hears of a delivery that has ended; `nil` where it has not.
    func outcome(
        of delivery: Delivery,
        _ end: DeliveryEnd,
        topic: String
    ) -> OutgoingRecord? {
        guard let outcome = end.outcome(of: delivery) else { return nil }
        if outcomes == nil {
            outcomes = OutcomeWriter(pushID: pushID, eventID: eventID, app: delivery.app)
        }
        return outcomes?.encode(outcome, topic: topic)
    }
}

/// The contexts of the pushes that were worked on last. Confined to the dispatcher's loop.
final class PushContexts: @unchecked Sendable {
    private static let maximumCount = 2048

    private let database: PushDatabase
    private var known: [String: PushContext] = [:]

    init(database: PushDatabase) { self.database = database }

    func remember(_ context: PushContext) {
        if known.count >= Self.maximumCount { known = [:] }
        known[context.pushID] = context
    }

    /// The contexts of these pushes. One without a record renders nothing.
    func load(_ ids: Set<String>) async throws -> [String: PushContext] {
        var found: [String: PushContext] = [:]
        var missing: Set<String> = []
        for id in ids {
            if let context = known[id] { found[id] = context } else { missing.insert(id) }
        }
        guard !missing.isEmpty else { return found }
        let records = try await database.pushes.find(missing)
        for id in missing {
            // Somebody else may have loaded it meanwhile; its pace is one for all.
            let context =
                known[id] ?? records[id].map(PushContext.init)
                ?? PushContext(pushID: id, eventID: "", request: nil)
            found[id] = context
            remember(context)
        }
        return found
    }
}
