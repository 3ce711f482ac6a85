/// The rule for the secret by which an identity authenticates with Basic, and which distinguishes
/// it from a device's secret.
package enum IdentitySecret {
    /// The prefix of a device's secret.
    package static let deviceMark = "cds_"
    package static let bytes = 8...1024
    /// The same limit as for the `identity` of an installation.
    package static let maximumIdentityBytes = 512

    /// Returns why a secret is invalid; `nil` if it is valid. The text never contains the secret.
    package static func problem(_ secret: String) -> String? {
        guard bytes.contains(secret.utf8.count) else {
            return "a secret has \(bytes.lowerBound) to \(bytes.upperBound) bytes"
        }
        guard !secret.utf8.starts(with: deviceMark.utf8) else {
            return "a secret does not begin with \(deviceMark), as those of devices do"
        }
        return nil
    }

    /// Returns why an identity cannot have a secret; `nil` if it can.
    package static func problem(ofIdentity identity: String) -> String? {
        guard (1...maximumIdentityBytes).contains(identity.utf8.count), !identity.utf8.contains(0)
        else { return "an identity has 1 to \(maximumIdentityBytes) bytes, without NUL" }
        guard !identity.utf8.contains(UInt8(ascii: ":")) else {
            return "an identity with a colon cannot be named in Basic: it proves itself by a token"
        }
        return nil
    }
}
