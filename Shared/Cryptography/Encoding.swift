/// Base64, strict: no blanks, exact padding, no bits left over.
///
/// - SeeAlso: RFC 4648 sections 4 and 5.
package enum Base64 {
    /// Encodes in the standard alphabet, padded.
    package static func encode(_ bytes: [UInt8]) -> String {
        encode(bytes, alphabet: standard, isPadded: true)
    }

    /// Encodes in the URL-safe alphabet, without padding, as JOSE requires.
    package static func encodeURL(_ bytes: [UInt8]) -> String {
        encode(bytes, alphabet: urlSafe, isPadded: false)
    }

    /// Decodes the standard alphabet, padded.
    package static func decode(_ text: String) throws(CryptographyError) -> [UInt8] {
        let characters = Array(text.utf8)
        guard characters.count % 4 == 0 else { throw .badEncoding("base64 is cut or not padded") }
        let padding = characters.suffix(2).count { $0 == UInt8(ascii: "=") }
        return try decode(characters.dropLast(padding), standardValues)
    }

    /// Decodes the URL-safe alphabet, without padding.
    package static func decodeURL(_ text: String) throws(CryptographyError) -> [UInt8] {
        try decode(Array(text.utf8)[...], urlSafeValues)
    }

    private static let standard = Array(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8
    )
    private static let urlSafe: [UInt8] = standard.dropLast(2) + Array("-_".utf8)
    private static let standardValues = values(of: standard)
    private static let urlSafeValues = values(of: urlSafe)

    private static func values(of alphabet: [UInt8]) -> [UInt8] {
        var values = [UInt8](repeating: 0xFF, count: 256)
        for (value, character) in alphabet.enumerated() { values[Int(character)] = UInt8(value) }
        return values
    }

    private static func encode(_ bytes: [UInt8], alphabet: [UInt8], isPadded: Bool) -> String {
        var text: [UInt8] = []
        text.reserveCapacity((bytes.count + 2) / 3 * 4)
        for start in stride(from: 0, to: bytes.count, by: 3) {
            let group = bytes[start..<min(start + 3, bytes.count)]
            var bits: UInt32 = 0
            for index in 0..<3 {
                bits = bits << 8 | (index < group.count ? UInt32(group[start + index]) : 0)
            }
            for index in 0..<4 where index <= group.count {
                text.append(alphabet[Int(bits >> (18 - 6 * UInt32(index)) & 0x3F)])
            }
            if isPadded { for _ in group.count..<3 { text.append(UInt8(ascii: "=")) } }
        }
        return String(decoding: text, as: UTF8.self)
    }

    private static func decode(
        _ characters: ArraySlice<UInt8>,
        _ values: [UInt8]
    ) throws(CryptographyError) -> [UInt8] {
        guard characters.count % 4 != 1 else { throw .badEncoding("base64 is cut") }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(characters.count * 3 / 4)
        var bits: UInt32 = 0
        var bitCount = 0
        for character in characters {
            let value = values[Int(character)]
            guard value != 0xFF else { throw .badEncoding("base64 has a foreign character") }
            bits = bits << 6 | UInt32(value)
            bitCount += 6
            if bitCount >= 8 {
                bitCount -= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(bitCount)))
                bits &= 1 << UInt32(bitCount) - 1
            }
        }
        guard bits == 0 else { throw .badEncoding("base64 has bits left over") }
        return bytes
    }
}

/// Hexadecimal: written in lower case, read in either.
package enum Hex {
    package static func encode(_ bytes: [UInt8]) -> String {
        let digits = Array("0123456789abcdef".utf8)
        var text: [UInt8] = []
        text.reserveCapacity(bytes.count * 2)
        for byte in bytes {
            text.append(digits[Int(byte >> 4)])
            text.append(digits[Int(byte & 0x0F)])
        }
        return String(decoding: text, as: UTF8.self)
    }

    package static func decode(_ text: String) throws(CryptographyError) -> [UInt8] {
        let digits = Array(text.utf8)
        guard digits.count % 2 == 0 else { throw .badEncoding("hexadecimal has an odd length") }
        return try stride(from: 0, to: digits.count, by: 2).map {
            index throws(CryptographyError) in
            try value(of: digits[index]) << 4 | value(of: digits[index + 1])
        }
    }

    private static func value(of digit: UInt8) throws(CryptographyError) -> UInt8 {
        switch digit {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
        default: throw .badEncoding("hexadecimal has a foreign character")
        }
    }
}
