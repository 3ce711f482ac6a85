/// The `_id` of an object that a device sends: an ObjectId (24 hexadecimal digits) or a UUID (36
/// characters), in lower case.
package enum IngestID {
    /// - Returns: The stored form; `nil` if the id has neither form.
    package static func canonical(_ text: String) -> String? {
        let count = text.utf8.count
        guard count == 24 || count == 36 else { return nil }
        let isGood =
            unsafe text.utf8.withContiguousStorageIfAvailable { bytes in
                unsafe isCanonical(bytes)
            } ?? false
        if isGood { return text }
        let folded = text.lowercased()
        return isWellFormed(folded) ? folded : nil
    }

    private static func isWellFormed(_ text: String) -> Bool {
        let bytes = Array(text.utf8)
        return unsafe bytes.withUnsafeBufferPointer { unsafe isCanonical($0) }
    }

    private static func isCanonical(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        guard bytes.count == 24 || bytes.count == 36 else { return false }
        for index in 0..<bytes.count {
            let byte = unsafe bytes[index]
            let isDash =
                bytes.count == 36 && (index == 8 || index == 13 || index == 18 || index == 23)
            guard isDash ? byte == UInt8(ascii: "-") : isLowerHex(byte) else { return false }
        }
        return true
    }

    private static func isLowerHex(_ byte: UInt8) -> Bool {
        (48...57).contains(byte) || (97...102).contains(byte)
    }

    /// Derives a UUID from other names of an object, so that a repeat of the object has the same
    /// UUID.
    ///
    /// - Parameters:
    ///   - parts: The names, in order. The first one states their kind.
    ///   - digest: SHA-256.
    /// - Returns: The stored form.
    package static func derived(from parts: [String], digest: Digest) -> String {
        var input = Array("ingest".utf8)
        for part in parts {
            input.append(0)
            input.append(contentsOf: part.utf8)
        }
        return PushIdentity.uuidText(digest(input))
    }
}
