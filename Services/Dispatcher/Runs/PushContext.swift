import Cryptography
import JSON
import Kafka
import PushCore
import PushEvents
import PushProviders
import PushStorage

/// The values that the deliveries of one push share: the request, each rendered template, and the pace.
@DispatchLoop
final class PushContext {
    let pushID: String
    let eventID: String
    /// `nil` if the push's record does not exist any more, or this version cannot read it.
    private let request: PushRequest?
    private let variants: LocaleVariants
    /// The field of the deliveries' values that contains the device's template; `nil` if the push
    /// does not fill templates.
    private let templateField: String?
    private var templates: [Form: Result<PayloadTemplate, RenderingError>] = [:]
    /// The approximate bytes of memory of this context, with the templates that are rendered so
    /// far. It is 0 until `weigh` is called, as most contexts are never cached.
    private(set) var weightBytes = 0
    /// The cache, which is notified of templates that are rendered later.
    weak var keeper: (any PushContextOwner)?

    /// The key of a template. Devices with the same key share their payload.
    private struct Form: Hashable {
        var platform: Platform
        /// One of the push's own locales, never a device's. For Azure's template sends, which have
        /// only properties, it is the device's template.
        var variant: String?
        /// Whether it includes the push's id.
        var includesPushID: Bool

        func weight(of template: Result<PayloadTemplate, RenderingError>) -> Int {
            128 + (variant?.weightBytes ?? 0) + ((try? template.get())?.weightBytes ?? 0)
        }
    }

    /// The weight of a context without content: the fixed part, and its entries in tables.
    private static let emptyWeight = 1024
    /// The most templates at once. Beyond it, a template is rendered each time.
    private static let maximumTemplates = 128

    /// Whether its payloads may include its id, if its app wants that.
    private let mayIncludePushID: Bool
    private var notificationIDs: NotificationIDs
    /// `nil` if it has no pace.
    var pace: PaceBucket?
    /// The time over which its audience is spread; `nil` if it is not spread.
    let spreadMilliseconds: Int?
    /// Whether each device is sent to only once.
    let isNowOrNever: Bool
    /// Whether its outcomes over time are counted for it alone.
    let isForMany: Bool

    init(pushID: String, eventID: String, source: String, request: PushRequest?) {
        self.pushID = pushID
        self.eventID = eventID
        mayIncludePushID = PushIdentity.includesPushID(source: source)
        isForMany = request?.isForMany ?? false
        // Drops the audience: it was needed only for planning, and may be long.
        var request = request
        if case .installations(let selectors) = request?.audience, let channels = selectors.channels
        {
            request?.audienceChannels = Array(channels.prefix(PushRequest.maximumAudienceChannels))
        }
        switch request?.audience {
        case .installations, .tokens: request?.audience = .tokens([])
        // The message contains the topic.
        case .topic, nil: break
        }
        request?.unknownFields = []
        self.request = request
        variants = LocaleVariants(request?.data)
        isNowOrNever = request?.isNowOrNever ?? false
        templateField = request?.deviceTemplate?.valueField
        let hasher = SHA256Hasher()
        notificationIDs = NotificationIDs(pushID: pushID) { hasher.hash($0, into: &$1) }
        pace = request?.pace.map { PaceBucket(perSecond: Double($0)) }
        spreadMilliseconds = request?.spreadMilliseconds
    }

    /// Computes the weight, for the cache that owns it.
    func weigh() {
        guard weightBytes == 0 else { return }
        weightBytes =
            Self.emptyWeight + (request?.contentWeightBytes ?? 0)
            + templates.reduce(0) { $0 + $1.key.weight(of: $1.value) }
    }

    /// Sets the pace that reaches `members` devices in the time that the push states.
    func spread(over members: Int) {
        guard let spreadMilliseconds else { return }
        let perSecond = Double(members) * 1000 / Double(spreadMilliseconds)
        if pace == nil { pace = PaceBucket(perSecond: perSecond) }
        pace?.change(perSecond: perSecond)
    }

    /// Creates the context from the push's record.
    convenience init(_ push: StoredPush) {
        self.init(
            pushID: push.id,
            eventID: push.eventID,
            source: push.eventSource,
            // The request was validated when it arrived. With `.latest` no `push_time` is too far
            // ahead.
            request: try? PushRequest.parse(push.request, now: .latest, isStored: true)
        )
    }

    /// The APNs topic of installations that have none of their own.
    var apnsTopic: String? { request?.apnsTopic }

    /// Returns which of the push's languages a device of this locale gets; `nil` for the default
    /// content. If the push fills templates, returns the device's own template. `values` are the
    /// installation's values in its delivery.
    func variant(for locale: String?, _ values: JSONObject?) -> String? {
        guard let templateField else { return variants.choose(for: locale) }
        return values?[templateField]?.string ?? ""
    }

    /// Renders a template once for each platform and variant.
    ///
    /// - Parameters:
    ///   - platform: The platform of the payload.
    ///   - variant: The variant that `variant(for:_:)` chose.
    ///   - includesPushID: Whether its app wants payloads to include the push's id.
    ///   - now: The time, for a device's template that expires.
    /// - Returns: The part that the devices of this platform and language share.
    /// - Throws: `RenderingError` if such a device gets no content, or too much.
    func template(
        _ platform: Platform,
        variant: String?,
        includesPushID: Bool,
        at now: Instant
    ) throws(RenderingError) -> PayloadTemplate {
        let form = Form(
            platform: platform,
            variant: variant,
            includesPushID: includesPushID && mayIncludePushID
        )
        if let known = templates[form] { return try known.get() }
        guard var request else {
            throw .invalid(field: "the push's record", problem: "cannot be read")
        }
        request.includesPushID = form.includesPushID
        let rendered = Result { () throws(RenderingError) in
            guard let send = request.deviceTemplate else {
                return try PayloadTemplate.render(
                    request,
                    pushID: pushID,
                    for: platform,
                    locale: variant
                )
            }
            var filled = request
            filled.native = try DeviceTemplate(stored: variant ?? "")
                .native(for: platform, send.properties, now: now)
            return try PayloadTemplate.render(filled, pushID: pushID, for: platform)
        }
        if templates.count >= Self.maximumTemplates {
            grow(by: -templates.reduce(0) { $0 + $1.key.weight(of: $1.value) })
            templates = [:]
        }
        templates[form] = rendered
        grow(by: form.weight(of: rendered))
        return try rendered.get()
    }

    private func grow(by bytes: Int) {
        guard weightBytes > 0 else { return }
        weightBytes += bytes
        keeper?.grew(self, by: bytes)
    }

    /// Renders the payload of one device: the shared part, and its own `values`.
    ///
    /// - Parameters:
    ///   - platform: The platform of the payload.
    ///   - locale: The device's registered locale.
    ///   - values: The values of the push's placeholders; `nil` for their fallbacks.
    ///   - badge: The installation's badge, after the push has changed it.
    ///   - includesPushID: Whether its app wants payloads to include the push's id.
    ///   - now: The time.
    /// - Returns: The payload: all that is sent, except the token.
    /// - Throws: `RenderingError` if this device gets no content, or too much.
    func payload(
        _ platform: Platform,
        locale: String? = nil,
        values: JSONObject? = nil,
        badge: Int? = nil,
        includesPushID: Bool,
        at now: Instant
    ) throws(RenderingError) -> RenderedPayload {
        try template(
            platform,
            variant: variant(for: locale, values),
            includesPushID: includesPushID,
            at: now
        ).payload(values: values, badge: badge)
    }

    /// Returns the ids under which our own provider stores a delivery.
    func stored(_ delivery: Delivery) -> OutgoingNotification.StoredDelivery {
        OutgoingNotification.StoredDelivery(
            app: delivery.app,
            pushID: pushID,
            eventID: eventID,
            target: delivery.target
        )
    }

    /// Returns the notification's id, the same on every attempt.
    func notificationID(of target: String) -> String { notificationIDs.id(of: target) }

    /// Writes the outcome record of a delivery, if it has ended.
    func writeOutcome(
        of delivery: Delivery,
        _ end: DeliveryEnd,
        by writer: inout OutcomeWriter,
        to block: inout KafkaRecordBlock
    ) {
        guard let outcome = end.outcome else { return }
        let record = OutcomeRecord(
            installationID: delivery.installationID,
            target: delivery.target,
            platform: delivery.device.provider,
            environment: delivery.device.environment,
            outcome: outcome,
            reason: end.reason,
            status: end.status,
            providerMessageID: end.messageID,
            attempt: end.attempts,
            at: end.at
        )
        block.append(key: record.target) { bytes in
            writer.write(
                record,
                pushID: pushID,
                eventID: eventID,
                app: delivery.app,
                into: &bytes
            )
        }
    }
}

/// The cache of contexts, which accounts for their weight.
@DispatchLoop
protocol PushContextOwner: AnyObject {
    /// Adds the weight of a template that a context has rendered.
    func grew(_ context: PushContext, by bytes: Int)
}

extension PushRequest {
    /// The approximate bytes of memory of the content that its payloads are rendered from.
    fileprivate var contentWeightBytes: Int {
        let natives = [native.apns, native.fcm, native.wns, native.mpns]
        let words = (deviceTemplate?.properties ?? [:]).reduce(0) {
            $0 + 64 + $1.key.weightBytes + $1.value.weightBytes
        }
        let texts =
            templateFields + [collapseID, notificationLabel, androidChannel].compactMap(\.self)
        return (natives + [data]).reduce(words) { $0 + ($1?.weightBytes ?? 0) }
            + texts.reduce(0) { $0 + 16 + $1.weightBytes }
    }
}
