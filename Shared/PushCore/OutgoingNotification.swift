/// A payload as it goes out, rendered once per (push, platform, locale) and shared by all its
/// devices: only the splices differ from one to the next.
package struct RenderedPayload: Hashable, Sendable {
    package struct Header: Hashable, Sendable {
        package var name: String
        package var value: String

        package init(_ name: String, _ value: String) {
            self.name = name
            self.value = value
        }
    }

    /// What is put into the body per device and per attempt, as a JSON string with its quotes.
    package enum Splice: Hashable, Sendable {
        case token
        /// `"<seconds>s"` until the notification expires.
        case timeToLive
        /// When it is sent, as ISO 8601.
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
    /// Those that all devices share; lower-case names.
    package var headers: [Header]
    package var body: [UInt8]
    package var splicePoints: [SplicePoint]
    /// Whether a second copy takes the place of the first on the device, so that what was never
    /// answered may be sent once more (promises 5 and 6).
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
    /// Seconds since 1970 after which nobody wants it any more.
    package var expiration: Int64?
    /// The installation's own APNs topic, else the push's, else `nil`: the credential's.
    package var apnsTopic: String?
    /// Whether that is the installation's own. Where the push or the credential named it, a
    /// `DeviceTokenNotForTopic` may be a mistake there and says nothing about the device.
    package var apnsTopicIsExplicit: Bool
    /// For a single device: it overtakes those of broadcasts that still wait for their provider.
    package var isUrgent: Bool

    package init(
        notificationID: String,
        target: DeviceTarget,
        payload: RenderedPayload,
        expiration: Int64? = nil,
        apnsTopic: String? = nil,
        apnsTopicIsExplicit: Bool = false,
        isUrgent: Bool = false
    ) {
        self.notificationID = notificationID
        self.target = target
        self.payload = payload
        self.expiration = expiration
        self.apnsTopic = apnsTopic
        self.apnsTopicIsExplicit = apnsTopicIsExplicit
        self.isUrgent = isUrgent
    }
}
