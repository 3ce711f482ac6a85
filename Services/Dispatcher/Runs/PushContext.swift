import Cryptography
import JSON
import Kafka
import PushCore
import PushEvents
import PushProviders
import PushStorage

/// What the deliveries of one push share: the request, each template once it is rendered, and the pace
/// that they keep.
///
/// Confined to the dispatcher's loop.
final class PushContext: @unchecked Sendable {
    let pushID: String
    let eventID: String
    /// `nil` where the push's record is gone, or not what this version reads.
    private let request: PushRequest?
    private let variants: LocaleVariants
    /// Of a send that fills templates: what its deliveries bring them as.
    private let templateField: String?
    private var templates: [Form: Result<PayloadTemplate, RenderingError>] = [:]
    /// About how many bytes of memory it takes, with the templates that are rendered so far; 0 before
    /// `weigh`, as most are never remembered.
    private(set) var weightBytes = 0
    /// Hears of what is rendered later.
    weak var keeper: (any PushContextKeeper)?

    /// Devices that share it share their payload.
    private struct Form: Hashable {
        var platform: Platform
        /// One of the push's own locales, never a device's; of a send of Azure's, which brings words
        /// alone, the device's template.
        var variant: String?
        /// The push's id is in it.
        var tellsID: Bool

        func weight(of template: Result<PayloadTemplate, RenderingError>) -> Int {
            128 + (variant?.weightBytes ?? 0) + ((try? template.get())?.weightBytes ?? 0)
        }
    }

    /// Of one without content: what all have, and its places in tables.
    private static let emptyWeight = 1024
    /// Kept at once; languages beyond that are rendered again.
    private static let maximumTemplates = 128

    /// Whether it tells devices its id, where its app wants that.
    private let mayTellID: Bool
    private var notificationIDs: NotificationIDs
    /// `nil`: as fast as it goes.
    var pace: PaceBucket?
    /// Over how long its audience is told; `nil`: as fast as it goes.
    let spreadMilliseconds: Int?
    /// Whether each device is sent to once, and not again.
    let isNowOrNever: Bool

    init(pushID: String, eventID: String, source: String, request: PushRequest?) {
        self.pushID = pushID
        self.eventID = eventID
        mayTellID = PushIdentity.tellsID(source: source)
        // The audience was needed to plan, and may be long.
        var request = request
        switch request?.audience {
        case .installations, .tokens: request?.audience = .tokens([])
        // It is in the message.
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

    /// Weighs it for its keeper.
    func weigh() {
        guard weightBytes == 0 else { return }
        weightBytes =
            Self.emptyWeight + (request?.contentWeightBytes ?? 0)
            + templates.reduce(0) { $0 + $1.key.weight(of: $1.value) }
    }

    /// So many are to be told in the time that it says.
    func spread(over members: Int) {
        guard let spreadMilliseconds else { return }
        let perSecond = Double(members) * 1000 / Double(spreadMilliseconds)
        if pace == nil { pace = PaceBucket(perSecond: perSecond) }
        pace?.change(perSecond: perSecond)
    }

    /// From its record.
    convenience init(_ push: StoredPush) {
        self.init(
            pushID: push.id,
            eventID: push.eventID,
            source: push.eventSource,
            // It was judged when it came in; what was past then is past now.
            request: try? PushRequest.parse(push.request, now: .latest, isStored: true)
        )
    }

    /// The APNs topic of those installations that have none of their own.
    var apnsTopic: String? { request?.apnsTopic }

    /// Which of the push's languages a device of this locale hears; `nil`: its plain texts. Of a send
    /// that fills templates, the one that the device holds.
    /// `values` are what its delivery brings of its installation.
    func variant(for locale: String?, _ values: JSONObject?) -> String? {
        guard let templateField else { return variants.choose(for: locale) }
        return values?[templateField]?.string ?? ""
    }

    /// Renders once per platform and variant.
    ///
    /// - Parameters:
    ///   - platform: Whose form it gets.
    ///   - variant: As `variant(for:_:)` chose it.
    ///   - tellsID: Whether its app wants devices to know the push's id.
    ///   - now: The time, for a device's template that has an end.
    /// - Returns: What the devices of this platform and language share.
    /// - Throws: `RenderingError` when there is nothing to send to such a device, or too much.
    func template(
        _ platform: Platform,
        variant: String?,
        tellsID: Bool,
        at now: Instant
    ) throws(RenderingError) -> PayloadTemplate {
        let form = Form(platform: platform, variant: variant, tellsID: tellsID && mayTellID)
        if let known = templates[form] { return try known.get() }
        guard var request else {
            throw .invalid(field: "the push's record", problem: "cannot be read")
        }
        request.tellsPushID = form.tellsID
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

    /// The payload of one device: what it shares with others, and its own `values`.
    ///
    /// - Parameters:
    ///   - platform: Whose form it gets.
    ///   - locale: The device's, as it registered it.
    ///   - values: What the push's placeholders stand for; `nil`: their fallbacks.
    ///   - badge: Its installation's, as the push left it.
    ///   - tellsID: Whether its app wants devices to know the push's id.
    ///   - now: The time.
    /// - Returns: What is sent, but for the token.
    /// - Throws: `RenderingError` when there is nothing to send to this device, or too much.
    func payload(
        _ platform: Platform,
        locale: String? = nil,
        values: JSONObject? = nil,
        badge: Int? = nil,
        tellsID: Bool,
        at now: Instant
    ) throws(RenderingError) -> RenderedPayload {
        try template(
            platform,
            variant: variant(for: locale, values),
            tellsID: tellsID,
            at: now
        ).payload(values: values, badge: badge)
    }

    /// The same on every attempt.
    func notificationID(of target: String) -> String { notificationIDs.id(of: target) }

    /// Writes what the rest of the company hears of a delivery, where it has ended.
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

/// Who remembers contexts, and weighs them.
protocol PushContextKeeper: AnyObject {
    /// What a context has rendered weighs, too.
    func grew(_ context: PushContext, by bytes: Int)
}

extension PushRequest {
    /// About how many bytes of memory its content takes, by which its payloads are rendered.
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
