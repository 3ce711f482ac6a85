/// Consecutive combining marks, whose number is limited in strings from outside.
///
/// Unicode sorts the marks that follow one letter before it compares two strings, and Swift sorts
/// them by insertion: a string of 32 KB that consists of marks costs 140 ms each time that it is
/// hashed, compared even to a constant, or split at a character. Unicode's own limit is 30 (UAX
/// #15, section 13, "Stream-Safe Text Format"); people who stack marks for fun stay below 64. With
/// it each comparison costs no more than a small multiple of the bytes.
public enum CombiningMarkRun {
    public static let maximum = 64
    /// The least bytes of a string with more than `maximum` marks: a mark has at least two.
    static let shortestBytes = 2 * maximum + 2

    /// Whether no run of marks in this string exceeds the limit.
    public static func isWithin(_ text: String) -> Bool {
        guard text.utf8.count >= shortestBytes else { return true }
        return isWithin(maximum, Array(text.utf8))
    }

    static func isWithin(_ maximum: Int, _ bytes: [UInt8]) -> Bool {
        unsafe bytes.withUnsafeBytes { unsafe isWithin(maximum, $0) }
    }

    /// Whether no run of marks in UTF-8 exceeds `maximum`. Checks one scalar in each `2 * maximum`
    /// bytes: a longer run has more bytes than that, and so contains a checked scalar.
    static func isWithin(_ maximum: Int, _ bytes: UnsafeRawBufferPointer) -> Bool {
        let text = unsafe UTF8Text(bytes: bytes)
        var sample = 2 * maximum - 1
        while sample < text.count {
            defer { sample += 2 * maximum }
            guard text[sample] >= 0x80 else { continue }
            var first = text.scalarStart(sample)
            var end = first
            var count = 0
            while count <= maximum, end < text.count, text.isMark(end) {
                end = text.scalarEnd(end)
                count += 1
            }
            while count <= maximum, first > 0, text.isMark(text.scalarStart(first - 1)) {
                first = text.scalarStart(first - 1)
                count += 1
            }
            guard count <= maximum else { return false }
        }
        return true
    }
}

/// Valid UTF-8 that is borrowed for one call.
@safe
private struct UTF8Text {
    private let bytes: UnsafeRawBufferPointer

    init(bytes: UnsafeRawBufferPointer) { unsafe self.bytes = bytes }

    var count: Int { unsafe bytes.count }

    subscript(place: Int) -> UInt8 { unsafe bytes[place] }

    func scalarStart(_ place: Int) -> Int {
        var place = place
        while place > 0, self[place] & 0xC0 == 0x80 { place -= 1 }
        return place
    }

    func scalarEnd(_ place: Int) -> Int {
        var place = place + 1
        while place < count, self[place] & 0xC0 == 0x80 { place += 1 }
        return place
    }

    func isMark(_ place: Int) -> Bool {
        let lead = self[place]
        // The first mark is U+0300.
        guard lead >= 0xCC else { return false }
        let end = scalarEnd(place)
        var value = UInt32(lead) & (lead >= 0xF0 ? 0x07 : lead >= 0xE0 ? 0x0F : 0x1F)
        for next in place + 1..<end { value = value << 6 | UInt32(self[next] & 0x3F) }
        guard let scalar = Unicode.Scalar(value) else { return false }
        return scalar.properties.canonicalCombiningClass != .notReordered
    }
}

extension JSONValue {
    /// The most consecutive combining marks of a string.
    public static let maximumMarks = CombiningMarkRun.maximum
}
