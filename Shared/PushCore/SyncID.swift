/// The rule for ids of identity pools and identities: `[\w-]+:[0-9a-f-]+`, 1 to 55 characters.
package enum SyncID {
    package static let maximumLength = 55

    package static func isWellFormed(_ id: String) -> Bool {
        let parts = id.split(separator: ":", omittingEmptySubsequences: false)
        guard (1...maximumLength).contains(id.utf8.count), parts.count == 2,
            !parts[0].isEmpty, !parts[1].isEmpty
        else { return false }
        return parts[0].utf8.allSatisfy { ASCII.isAlphanumeric($0) || "_-".utf8.contains($0) }
            && parts[1].utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "0")...UInt8(ascii: "9"),
                    UInt8(ascii: "a")...UInt8(ascii: "f"), UInt8(ascii: "-"):
                    true
                default: false
                }
            }
    }

    /// Whether a dataset's name obeys the rule: `[a-zA-Z0-9_.:-]+`, 1 to 128 characters; never `.` or
    /// `..`, which clients resolve in paths.
    package static func isDatasetName(_ name: String) -> Bool {
        (1...128).contains(name.utf8.count) && name != "." && name != ".."
            && name.utf8.allSatisfy { ASCII.isAlphanumeric($0) || "_.:-".utf8.contains($0) }
    }
}
