/// The rule for what an identity proves itself by with Basic, and how a device's secret is told from it.
package enum IdentitySecret {
    /// What a device's secret begins with.
    package static let deviceMark = "cds_"
    package static let bytes = 8...1024
    /// As an installation may name it.
    package static let maximumIdentityBytes = 512

    /// What is wrong with a secret; `nil` if nothing is. Never contains it.
    package static func problem(_ secret: String) -> String? {
        guard bytes.contains(secret.utf8.count) else {
            return "a secret has \(bytes.lowerBound) to \(bytes.upperBound) bytes"
        }
        guard !secret.utf8.starts(with: deviceMark.utf8) else {
            return "a secret does not begin with \(deviceMark), as those of devices do"
        }
        return nil
    }

    /// What is wrong with an identity that is to have a secret; `nil` if nothing is.
    package static func problem(ofIdentity identity: String) -> String? {
        guard (1...maximumIdentityBytes).contains(identity.utf8.count), !identity.utf8.contains(0)
        else { return "an identity has 1 to \(maximumIdentityBytes) bytes, without NUL" }
        guard !identity.utf8.contains(UInt8(ascii: ":")) else {
            return "an identity with a colon cannot be named in Basic: it proves itself by a token"
        }
        return nil
    }
}
