/// The push services that a notification can be sent through. Raw values are those of the schema
/// and of a request's `tokens`.
package enum Platform: String, CaseIterable, Hashable, Sendable {
    case apns
    case fcm
    case wns
    case mpns
    /// Carillon's own provider: the device holds a connection to one of our nodes. It has no
    /// credential.
    case connection
}

/// The APNs environment of a token; the other platforms have only one. Raw values are those of the
/// schema.
package enum PushEnvironment: String, CaseIterable, Hashable, Sendable {
    case none = ""
    case production
    case sandbox
}

/// The address of one notification.
package struct DeviceTarget: Hashable, Sendable {
    package var provider: Platform
    /// The APNs device token in hex; the FCM registration token; the channel URI of WNS and MPNS;
    /// for a connection, the installation's `installationId`. Never logged.
    package var token: String
    package var environment: PushEnvironment
    /// Whether the installation itself names its environment. If not, the push's `prod` decided:
    /// then `BadDeviceToken` may be our own mistake and says nothing about the device.
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
