/// The primary key of an object.
package enum RealmKey: Equatable, Sendable {
    case null
    case integer(Int64)
    case string(String)
    /// 12 bytes.
    case objectID(high: UInt64, low: UInt32)
    /// 16 bytes.
    case uuid(high: UInt64, low: UInt64)
    /// A key that a client made for a class without a primary key; such classes are never uploaded.
    case global

    /// Its encoding in a compensating write, where strings are not interned.
    var encoded: [UInt8] {
        switch self {
        case .null, .global: return [0x00]
        case .integer(let value): return [0x01] + RealmInteger.encoded(value)
        case .string(let text):
            let bytes = Array(text.utf8)
            // A long key would be as long in the application's error handler.
            guard bytes.count <= 4096 else { return [0x00] }
            return [0x03] + RealmInteger.encoded(Int64(bytes.count)) + bytes
        case .objectID(let high, let low):
            return [0x0A] + bigEndian(high, bytes: 8) + bigEndian(UInt64(low), bytes: 4)
        case .uuid(let high, let low):
            return [0x0B] + bigEndian(high, bytes: 8) + bigEndian(low, bytes: 8)
        }
    }

    private func bigEndian(_ value: UInt64, bytes: Int) -> [UInt8] {
        (0..<bytes).map { UInt8(truncatingIfNeeded: value >> UInt64((bytes - 1 - $0) * 8)) }
    }
}

/// The hexadecimal texts of ids, in lower case.
enum RealmIDText {
    static func objectID(_ high: UInt64, _ low: UInt32) -> String {
        unsafe String(unsafeUninitializedCapacity: 24) { text in
            for place in 0..<16 { unsafe text[place] = digit(high, 15 - place) }
            for place in 0..<8 { unsafe text[16 + place] = digit(UInt64(low), 7 - place) }
            return 24
        }
    }

    static func uuid(_ high: UInt64, _ low: UInt64) -> String {
        unsafe String(unsafeUninitializedCapacity: 36) { text in
            var place = 0
            for nibble in 0..<32 {
                if nibble == 8 || nibble == 12 || nibble == 16 || nibble == 20 {
                    unsafe text[place] = UInt8(ascii: "-")
                    place += 1
                }
                unsafe text[place] =
                    nibble < 16 ? digit(high, 15 - nibble) : digit(low, 31 - nibble)
                place += 1
            }
            return 36
        }
    }

    private static func digit(_ value: UInt64, _ nibble: Int) -> UInt8 {
        let digit = UInt8(truncatingIfNeeded: value >> UInt64(nibble * 4)) & 0xF
        return digit < 10 ? 48 + digit : 87 + digit
    }
}

/// The encoding of integers in changesets.
enum RealmInteger {
    static func encoded(_ value: Int64) -> [UInt8] {
        var rest = UInt64(bitPattern: value < 0 ? ~value : value)
        var bytes: [UInt8] = []
        while rest > 0x3F {
            bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        bytes.append(UInt8(rest) | (value < 0 ? 0x40 : 0))
        return bytes
    }
}
