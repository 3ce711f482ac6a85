/// Why a changeset cannot be decoded, as a whole: instructions have no lengths, so nothing can be
/// skipped. Safe to log.
package struct RealmChangesetFault: Error, Equatable, Sendable, CustomStringConvertible {
    package enum Reason: String, Sendable {
        case cut = "it ends within an instruction"
        case integer = "an integer exceeds 64 bits"
        case length = "a length exceeds the bytes"
        case flag = "a flag is neither 0 nor 1"
        case instruction = "the instruction is unknown"
        case stringOrder = "a string is out of order"
        case string = "a string is unknown"
        case text = "a name is not UTF-8"
        case className = "a class name is not of 1 to 63 bytes"
        case type = "the type is unknown"
        case key = "the key is invalid"
        case collection = "the collection is unknown"
        case path = "a path leads nowhere"
        case pathLength = "a path is too long"
        case time = "a time is invalid"
        case decimal = "a decimal is invalid"
        case values = "it has too many values"
    }

    /// The first byte is 0.
    package let offset: Int
    package let reason: Reason

    package var description: String { "byte \(offset): \(reason.rawValue)" }
}

/// A cursor over the bytes of a changeset. It reads nothing beyond their end, and no number leads to
/// an overflow.
@safe
struct ByteCursor {
    private let bytes: UnsafeRawBufferPointer
    private let count: Int
    /// 0...the count of bytes.
    var position = 0

    /// The bytes must outlive the cursor.
    init(_ bytes: UnsafeRawBufferPointer) {
        unsafe self.bytes = bytes
        count = bytes.count
    }

    var isAtEnd: Bool { position == count }
    var remaining: Int { count - position }

    func fault(_ reason: RealmChangesetFault.Reason) -> RealmChangesetFault {
        RealmChangesetFault(offset: position, reason: reason)
    }

    @inline(__always)
    mutating func byte() throws(RealmChangesetFault) -> UInt8 {
        guard position < count else { throw fault(.cut) }
        let byte = unsafe bytes[position]
        position += 1
        return byte
    }

    /// Reads an integer: groups of 7 bits, lowest first; the last byte has 6 bits and the sign.
    @inline(__always)
    mutating func integer() throws(RealmChangesetFault) -> Int64 {
        let first = try byte()
        // Most are small.
        if first & 0xC0 == 0 { return Int64(first) }
        return try longInteger(first)
    }

    private mutating func longInteger(_ first: UInt8) throws(RealmChangesetFault) -> Int64 {
        var magnitude: UInt64 = 0
        var shift: UInt64 = 0
        var byte = first
        while byte & 0x80 != 0 {
            // Nine groups are 63 bits; then only the sign may follow.
            guard shift < 63 else { throw fault(.integer) }
            magnitude |= UInt64(byte & 0x7F) &<< shift
            shift += 7
            byte = try self.byte()
        }
        let last = UInt64(byte & 0x3F)
        guard shift < 63 || last == 0 else { throw fault(.integer) }
        if shift < 63 { magnitude |= last &<< shift }
        guard magnitude <= UInt64(Int64.max) else { throw fault(.integer) }
        let value = Int64(bitPattern: magnitude)
        return byte & 0x40 == 0 ? value : ~value
    }

    /// Reads a flag of 0 or 1.
    mutating func flag() throws(RealmChangesetFault) -> Bool {
        switch try integer() {
        case 0: return false
        case 1: return true
        default: throw fault(.flag)
        }
    }

    /// Reads a length of bytes that are there.
    mutating func length() throws(RealmChangesetFault) -> Int {
        let value = try integer()
        guard value >= 0, value <= Int64(remaining) else { throw fault(.length) }
        return Int(value)
    }

    /// Passes the next bytes in place, and skips them.
    mutating func take<Result>(
        _ count: Int,
        _ body: (UnsafeRawBufferPointer) -> Result
    ) throws(RealmChangesetFault) -> Result {
        guard count >= 0, count <= remaining else { throw fault(.cut) }
        let part = unsafe UnsafeRawBufferPointer(rebasing: bytes[position..<position + count])
        position += count
        return unsafe body(part)
    }

    /// Reads a text of some bytes.
    ///
    /// - Returns: `nil` if it is not UTF-8.
    mutating func text(_ count: Int) throws(RealmChangesetFault) -> String? {
        try unsafe take(count) { bytes in
            unsafe String(validating: bytes.bindMemory(to: UInt8.self), as: UTF8.self)
        }
    }

    mutating func skip(_ count: Int) throws(RealmChangesetFault) {
        guard count >= 0, count <= remaining else { throw fault(.cut) }
        position += count
    }

    /// Reads 4 bytes, lowest first.
    mutating func word32() throws(RealmChangesetFault) -> UInt32 {
        try unsafe take(4) { bytes in
            UInt32(littleEndian: unsafe bytes.loadUnaligned(as: UInt32.self))
        }
    }

    /// Reads 8 bytes, lowest first.
    mutating func word64() throws(RealmChangesetFault) -> UInt64 {
        try unsafe take(8) { bytes in
            UInt64(littleEndian: unsafe bytes.loadUnaligned(as: UInt64.self))
        }
    }

    /// Reads the coefficient of a decimal: at most 17 groups of 7 bits, lowest first, without a sign.
    mutating func coefficient() throws(RealmChangesetFault) -> UInt128 {
        var value: UInt128 = 0
        for group in 0..<17 {
            let byte = try byte()
            value |= UInt128(byte & 0x7F) << UInt128(group * 7)
            if byte & 0x80 == 0 { return value }
        }
        throw fault(.decimal)
    }
}
