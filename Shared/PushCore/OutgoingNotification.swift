/// A rendered payload. All devices with the same push, platform and locale share it; only the
/// splices differ between them.
package struct RenderedPayload: Hashable, Sendable {
    package struct Header: Hashable, Sendable {
        package var name: String
        package var value: String

        package init(_ name: String, _ value: String) {
            self.name = name
            self.value = value
        }
    }

    /// A value that is inserted into the body for each device and attempt, as a JSON string with
    /// quotes.
    package enum Splice: Hashable, Sendable {
        case token
        /// The time until the notification expires: `"<seconds>s"`.
        case timeToLive
        /// The time of sending, as ISO 8601.
        case time
    }

    package struct SplicePoint: Hashable, Sendable {
        /// Offset into `body`; points are in ascending order.
        package var offset: Int
        package var splice: Splice

        package init(offset: Int, splice: Splice) {
            self.offset = offset
            self.splice = splice
        }
    }

    package var platform: Platform
    /// The headers that all devices share; lower-case names.
    package var headers: [Header]
    package var body: [UInt8]
    package var splicePoints: [SplicePoint]
    /// Whether a second copy replaces the first on the device, so that an unanswered request may be
    /// sent once more (promises 5 and 6).
    package var repeatOverwrites: Bool

    package init(
        platform: Platform,
        headers: [Header],
        body: [UInt8],
        splicePoints: [SplicePoint] = [],
        repeatOverwrites: Bool
    ) {
        self.platform = platform
        self.headers = headers
        self.body = body
        self.splicePoints = splicePoints
        self.repeatOverwrites = repeatOverwrites
    }
}

/// One notification for one device, ready to be handed to its provider.
package struct OutgoingNotification: Hashable, Sendable {
    /// Lower-case UUID, the same on every attempt: `apns-id`.
    package var notificationID: String
    package var target: DeviceTarget
    package var payload: RenderedPayload
    /// The time after which the notification is useless, in seconds since 1970.
    package var expiration: Int64?
    /// The installation's own APNs topic, else the push's; `nil` for the topic of the credential.
    package var apnsTopic: String?
    /// Whether the installation names its topic. If not, the push or the credential did: then
    /// `DeviceTokenNotForTopic` may be a mistake there and says nothing about the device.
    package var apnsTopicIsExplicit: Bool
    /// Whether it is for a single device. Then it overtakes notifications of broadcasts that wait
    /// for the same provider.
    package var isUrgent: Bool
    /// The ids of the delivery, for our own provider, which stores a message; `nil` for all others.
    package var delivery: StoredDelivery?

    /// The ids under which our own provider stores the message of a delivery.
    package final class StoredDelivery: Hashable, Sendable {
        package let app: String
        package let pushID: String
        package let eventID: String
        /// The installation's object id.
        package let target: String

        package init(app: String, pushID: String, eventID: String, target: String) {
            self.app = app
            self.pushID = pushID
            self.eventID = eventID
            self.target = target
        }

        package static func == (a: StoredDelivery, b: StoredDelivery) -> Bool {
            a.pushID == b.pushID && a.target == b.target && a.app == b.app
        }

        package func hash(into hasher: inout Hasher) {
            hasher.combine(pushID)
            hasher.combine(target)
        }
    }

    package init(
        notificationID: String,
        target: DeviceTarget,
        payload: RenderedPayload,
        expiration: Int64? = nil,
        apnsTopic: String? = nil,
        apnsTopicIsExplicit: Bool = false,
        isUrgent: Bool = false,
        delivery: StoredDelivery? = nil
    ) {
        self.notificationID = notificationID
        self.target = target
        self.payload = payload
        self.expiration = expiration
        self.apnsTopic = apnsTopic
        self.apnsTopicIsExplicit = apnsTopicIsExplicit
        self.isUrgent = isUrgent
        self.delivery = delivery
    }
}
