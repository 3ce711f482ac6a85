/// The push services that a notification can leave through. Raw values are those of the schema
/// and of a request's `tokens`.
package enum Platform: String, CaseIterable, Hashable, Sendable {
    case apns
    case fcm
    case wns
    case mpns
}

/// Which of APNs' two worlds a token belongs to; the other platforms have one only. Raw values
/// are those of the schema.
package enum PushEnvironment: String, CaseIterable, Hashable, Sendable {
    case none = ""
    case production
    case sandbox
}

/// Where one notification goes.
package struct DeviceTarget: Hashable, Sendable {
    package var provider: Platform
    /// APNs: device token in hex; FCM: registration token; WNS, MPNS: channel URI. Never logged.
    package var token: String
    package var environment: PushEnvironment
    /// Whether the installation itself names its environment. Where the push's `prod` decided, a
    /// `BadDeviceToken` may be our own mix-up and says nothing about the device.
    package var environmentIsExplicit: Bool

    package init(
        provider: Platform,
        token: String,
        environment: PushEnvironment = .none,
        environmentIsExplicit: Bool = false
    ) {
        self.provider = provider
        self.token = token
        self.environment = environment
        self.environmentIsExplicit = environmentIsExplicit
    }
}
