/// The rule for whom a payload may be for.
enum SecureIdentity {
    static let maximumBytes = 512

    /// What is wrong with it; `nil` if nothing is.
    static func problem(_ identity: String) -> String? {
        guard (1...maximumBytes).contains(identity.utf8.count), !identity.utf8.contains(0) else {
            return "identity must be a text of 1 to \(maximumBytes) bytes, without NUL"
        }
        return nil
    }

    /// Basic parts name and secret at the first colon.
    static func comesByBasic(_ identity: String) -> Bool {
        !identity.utf8.contains(UInt8(ascii: ":"))
    }
}
