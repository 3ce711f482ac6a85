/// The rule for identities that a payload may be for.
enum SecureIdentity {
    static let maximumBytes = 512

    /// Returns what is wrong with an identity; `nil` if it is valid.
    static func problem(_ identity: String) -> String? {
        guard (1...maximumBytes).contains(identity.utf8.count), !identity.utf8.contains(0) else {
            return "identity must be a text of 1 to \(maximumBytes) bytes, without NUL"
        }
        return nil
    }

    /// Whether Basic authentication can carry an identity: it splits name and secret at the first colon.
    static func isValidForBasic(_ identity: String) -> Bool {
        !identity.utf8.contains(UInt8(ascii: ":"))
    }
}
