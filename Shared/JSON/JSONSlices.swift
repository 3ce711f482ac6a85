/// Splits an array into its elements, or an object into its members, without parsing them.
///
/// Used if `JSONValue.parse` rejects a text because of one element: the other elements can then be
/// parsed one by one. Only strings and brackets are followed, so an element's end is found even if
/// it contains invalid JSON (`NaN`), or a value that cannot be stored (a lone surrogate, any
/// depth).
public enum JSONSlices {
    /// Returns the range of each element, without the blanks around it.
    ///
    /// - Parameters:
    ///   - bytes: The text.
    ///   - range: The place of the array; blanks around it are skipped. `nil`: the whole text.
    ///   - limit: The most elements.
    /// - Returns: `nil` if it is not one array, if a string or bracket stays open, or if there are
    ///   more elements than `limit`.
    public static func elements(
        of bytes: [UInt8],
        in range: Range<Int>? = nil,
        limit: Int
    ) -> [Range<Int>]? {
        slices(of: bytes, in: range, from: "[", to: "]", limit: limit)
    }

    /// Returns the key and the range of each member.
    ///
    /// - Returns: `nil` if it is not one object, if a key is not a valid string, if a string or
    ///   bracket stays open, or if there are more members than `limit`.
    public static func members(
        of bytes: [UInt8],
        in range: Range<Int>? = nil,
        limit: Int
    ) -> [(key: String, value: Range<Int>)]? {
        guard let slices = slices(of: bytes, in: range, from: "{", to: "}", limit: limit) else {
            return nil
        }
        var members: [(key: String, value: Range<Int>)] = []
        members.reserveCapacity(slices.count)
        for member in slices {
            var scan = Scan(bytes, member)
            guard scan.current == UInt8(ascii: "\""), scan.skipString() else { return nil }
            let key = Array(bytes[member.lowerBound..<scan.at])
            scan.skipBlanks()
            guard scan.current == UInt8(ascii: ":") else { return nil }
            scan.at += 1
            scan.skipBlanks()
            guard let key = (try? JSONValue.parse(key))?.string else { return nil }
            members.append((key, scan.at..<member.upperBound))
        }
        return members
    }

    private static func slices(
        of bytes: [UInt8],
        in range: Range<Int>?,
        from open: Unicode.Scalar,
        to close: Unicode.Scalar,
        limit: Int
    ) -> [Range<Int>]? {
        var scan = Scan(bytes, range ?? bytes.indices)
        scan.skipBlanks()
        guard scan.current == UInt8(ascii: open) else { return nil }
        scan.at += 1
        var slices: [Range<Int>] = []
        while true {
            scan.skipBlanks()
            let start = scan.at
            guard let end = scan.skipElement() else { return nil }
            let isLast = scan.current == UInt8(ascii: close)
            guard isLast || scan.current == UInt8(ascii: ",") else { return nil }
            scan.at += 1
            // An empty pair of brackets has no element; between commas there must be one.
            if !(isLast && slices.isEmpty && start == end) {
                guard start < end, slices.count < limit else { return nil }
                slices.append(start..<end)
            }
            guard isLast else { continue }
            scan.skipBlanks()
            return scan.at == scan.end ? slices : nil
        }
    }
}

/// A position in a text.
private struct Scan {
    let bytes: [UInt8]
    let end: Int
    var at: Int

    init(_ bytes: [UInt8], _ range: Range<Int>) {
        self.bytes = bytes
        at = range.lowerBound
        end = range.upperBound
    }

    /// The current byte; 0 at the end, which is never valid outside a string.
    var current: UInt8 { at < end ? bytes[at] : 0 }

    static func isBlank(_ byte: UInt8) -> Bool {
        byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09
    }

    mutating func skipBlanks() {
        while at < end, Self.isBlank(bytes[at]) { at += 1 }
    }

    /// Moves past the string that begins here.
    ///
    /// - Returns: Whether it is closed.
    mutating func skipString() -> Bool {
        at += 1
        while at < end {
            switch bytes[at] {
            case UInt8(ascii: "\""):
                at += 1
                return true
            case UInt8(ascii: "\\"): at += 2
            default: at += 1
            }
        }
        at = end
        return false
    }

    /// Moves to the comma or bracket after the element.
    ///
    /// - Returns: The end of the element; `nil` if something stays open.
    mutating func skipElement() -> Int? {
        var depth = 0
        var last = at
        while at < end {
            let byte = bytes[at]
            switch byte {
            case UInt8(ascii: "\""):
                guard skipString() else { return nil }
                last = at
                continue
            case UInt8(ascii: "["), UInt8(ascii: "{"): depth += 1
            case UInt8(ascii: "]"), UInt8(ascii: "}"):
                if depth == 0 { return last }
                depth -= 1
            case UInt8(ascii: ","):
                if depth == 0 { return last }
            default: break
            }
            at += 1
            if !Self.isBlank(byte) { last = at }
        }
        return nil
    }
}
