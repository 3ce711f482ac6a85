package import JSON

/// The setting `secure-ids`: the form of the ids of an app's secure payloads.
package enum SecureIDForm: String, Sendable, CaseIterable {
    /// 32 lower-case hexadecimal digits.
    case random
    /// 1 to 2147483647, in decimal, for clients that store the id as a signed number of 32 bits.
    case int31

    /// Returns the form of a well-formed id.
    package init(of id: String) {
        self = id.utf8.count == SecureID.randomDigits ? .random : .int31
    }
}

/// The id of a secure payload, unique over all apps. It identifies the payload and grants no
/// access.
package enum SecureID {
    static let randomDigits = 32
    private static let maximumNumber = Int(Int32.max)

    /// Makes a random id. If the id is a number, it may be in use already.
    package static func make(_ form: SecureIDForm) -> String {
        switch form {
        case .random:
            return (0..<2).map { _ in
                let digits = String(UInt64.random(in: 0...UInt64.max), radix: 16)
                return String(repeating: "0", count: 16 - digits.count) + digits
            }.joined()
        // 0 is not used: clients parse a string that is not a number as 0.
        case .int31: return String(Int.random(in: 1...maximumNumber))
        }
    }

    /// Whether a payload may have this id. Each id has only one written form.
    package static func isWellFormed(_ id: String) -> Bool {
        let bytes = Array(id.utf8)
        if bytes.count == randomDigits {
            return bytes.allSatisfy { (48...57).contains($0) || (97...102).contains($0) }
        }
        guard (1...10).contains(bytes.count), bytes[0] != UInt8(ascii: "0"),
            bytes.allSatisfy({ (48...57).contains($0) }), let number = Int(id)
        else { return false }
        return number <= maximumNumber
    }

    /// Returns the id as responses show it: as a number in the form `int31`.
    package static func json(_ id: String) -> JSONValue {
        switch SecureIDForm(of: id) {
        case .random: .string(id)
        case .int31: Int(id).map { JSONValue($0) } ?? .string(id)
        }
    }
}
