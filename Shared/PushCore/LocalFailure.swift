/// The reasons for which Carillon itself fails a delivery, without an answer of a provider. A
/// closed set: the code that fails a delivery writes this string as its reason, with an optional
/// detail after a colon. Readers convert it back to the case. Any other reason is a fault of the
/// content.
package enum LocalFailure: String, Sendable, CaseIterable {
    case payloadTooLarge = "the payload is too large"
    case templateExpired = "the device's template has expired"
    case malformedToken = "malformed token"
    case hostNotAllowed = "channel host not allowed"
    case noCredential = "no credential for this provider"
    case noCredentialOfTopic = "no APNs credential for this topic"
    case noDefaultCredential =
        "several APNs credentials, none is the default, and no topic names one"
    case unusableAPNsCredential = "the apns credential cannot be used"
    case unusableFCMCredential = "the fcm credential cannot be used"
    case unusableWNSCredential = "the wns credential cannot be used"
    case unusableMPNSCredential = "the mpns credential cannot be used"
    case noMPNSClient = "there is no client for MPNS"
    case keyDoesNotSign = "the key does not sign"
    case tokenEndpoint = "token endpoint"
    case noConnectionClient = "there is no client for connections"

    package static func unusableCredential(of platform: Platform) -> LocalFailure {
        switch platform {
        case .apns: .unusableAPNsCredential
        case .fcm: .unusableFCMCredential
        case .wns: .unusableWNSCredential
        case .mpns: .unusableMPNSCredential
        case .connection: .noConnectionClient
        }
    }

    /// Reads the reason of a delivery.
    package init?(reason: String) {
        let known = Self.allCases.first { failure in
            let text = failure.rawValue.utf8
            guard reason.utf8.starts(with: text) else { return false }
            return reason.utf8.dropFirst(text.count).first ?? UInt8(ascii: ":")
                == UInt8(ascii: ":")
        }
        guard let known else { return nil }
        self = known
    }
}

/// The reasons for which Carillon postpones a delivery without an attempt. The row of a pending
/// delivery has this string as its last reason.
package enum LocalWait: String, Sendable, CaseIterable {
    case breaker = "the provider's circuit breaker is open"
}
