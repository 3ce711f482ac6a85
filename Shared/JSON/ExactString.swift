/// A string that equals another if their bytes are the same: the key of lookups by strings from
/// outside.
///
/// Swift's `String` compares by canonical equivalence: "é" in one scalar equals "é" in two, and
/// thousands of strings that differ only in the order of their combining marks are equivalent, so
/// they share one hash whatever the seed, and are compared slowly. To a peer, to Postgres and to
/// Kafka they are different strings.
///
/// The hash is that of `Hasher`, SipHash seeded by the process, over the UTF-8 in one piece.
/// `String` does the same with ASCII, at the same cost. Hashed element by element, as `[UInt8]` is,
/// it would cost ten times as much.
public struct ExactString: Hashable, Comparable, Sendable, ExpressibleByStringLiteral {
    public let text: String

    public init(_ text: String) { self.text = text }
    public init(stringLiteral text: String) { self.text = text }

    public static func == (left: ExactString, right: ExactString) -> Bool {
        left.text.isSame(as: right.text)
    }

    public static func < (left: ExactString, right: ExactString) -> Bool {
        left.text.precedes(right.text)
    }

    public func hash(into hasher: inout Hasher) { text.hashBytes(into: &hasher) }
}

extension String {
    /// Whether both have the same bytes.
    @inline(__always)
    public func isSame(as other: String) -> Bool {
        utf8.count == other.utf8.count && hasBytes(of: other)
    }

    private func hasBytes(of other: String) -> Bool {
        let count = utf8.count
        return unsafe withBytes { left in
            unsafe other.withBytes { right in unsafe firstDifference(left, right, count) == count }
        }
    }

    /// Whether it comes before the other in the order of the bytes. That is the order of the
    /// scalars, and of Postgres' collation "C".
    public func precedes(_ other: String) -> Bool {
        unsafe withBytes { left in
            unsafe other.withBytes { right in
                let common = min(left.count, right.count)
                let place = unsafe firstDifference(left, right, common)
                guard place < common else { return left.count < right.count }
                return unsafe left[place] < right[place]
            }
        }
    }

    /// Whether its UTF-8 has this byte, checked eight at a time.
    public func holds(byte: UInt8) -> Bool {
        unsafe withBytes { bytes in
            let (ones, tops) = (0x0101_0101_0101_0101 as UInt64, 0x8080_8080_8080_8080 as UInt64)
            let wanted = ones &* UInt64(byte)
            var place = 0
            while bytes.count - place >= 8 {
                let word = unsafe bytes.loadUnaligned(fromByteOffset: place, as: UInt64.self)
                let rest = word ^ wanted
                // A byte that is 0 now has its top bit after the subtraction, and did not have it
                // before.
                if (rest &- ones) & ~rest & tops != 0 { return true }
                place += 8
            }
            while place < bytes.count {
                if unsafe bytes[place] == byte { return true }
                place += 1
            }
            return false
        }
    }

    /// Hashes the bytes and a terminator that is never in UTF-8.
    public func hashBytes(into hasher: inout Hasher) {
        unsafe withBytes { bytes in unsafe hasher.combine(bytes: bytes) }
        hasher.combine(0xFF as UInt8)
    }

    /// Passes the UTF-8 in place. A string without contiguous storage would be copied; Carillon has
    /// none.
    @inline(__always)
    private func withBytes<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        let result = unsafe utf8.withContiguousStorageIfAvailable { bytes in
            unsafe body(UnsafeRawBufferPointer(bytes))
        }
        return unsafe result ?? Array(utf8).withUnsafeBytes { unsafe body($0) }
    }
}

/// Returns the first of `count` places where the two differ; `count` if they do not.
@inline(__always)
func firstDifference(
    _ left: UnsafeRawBufferPointer,
    _ right: UnsafeRawBufferPointer,
    _ count: Int
) -> Int {
    var place = 0
    while count - place >= 8 {
        let word = unsafe left.loadUnaligned(fromByteOffset: place, as: UInt64.self)
        let other = unsafe right.loadUnaligned(fromByteOffset: place, as: UInt64.self)
        if word != other { break }
        place += 8
    }
    while place < count {
        guard unsafe left[place] == right[place] else { return place }
        place += 1
    }
    return count
}

extension Optional<String> {
    /// Whether both have the same bytes, or both are nil.
    public func isSame(as other: String?) -> Bool {
        switch (self, other) {
        case (let own?, let other?): own.isSame(as: other)
        case (nil, nil): true
        case (nil, _?), (_?, nil): false
        }
    }
}

extension Sequence<String> {
    /// Returns the strings in the order of their bytes.
    public func sortedByBytes() -> [String] { sorted { $0.precedes($1) } }

    /// Whether one of them has the bytes of `text`.
    public func holds(_ text: String) -> Bool { contains { $0.isSame(as: text) } }

    /// Returns each of them once, at its first place.
    public func withoutRepeats() -> [String] {
        var seen = ExactStringSet()
        return filter { seen.insert($0).inserted }
    }
}

extension [String] {
    /// Whether both have the same strings in the same order, byte by byte.
    public func areSame(as others: [String]) -> Bool {
        count == others.count && zip(self, others).allSatisfy { $0.isSame(as: $1) }
    }
}
