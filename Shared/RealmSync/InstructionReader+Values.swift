internal import JSON

/// The values of changes, as the JSON that is stored for them.
extension InstructionReader {
    /// The longest string or binary that an object could have.
    private static var maximumBytes: Int { 1 << 20 }

    mutating func payload(isUsed: Bool) throws(RealmChangesetFault) -> Payload {
        switch try cursor.integer() {
        case 0x00: return .value(.null, bytes: 4)
        case 0x01: return .value(.integer(try cursor.integer()), bytes: 1)
        case 0x02: return .value(.bool(try cursor.flag()), bytes: 4)
        case 0x03: return try string(isUsed)
        case 0x04: return try binary(isUsed)
        case 0x05: return try time(isUsed)
        case 0x06:
            let number = Float(bitPattern: try cursor.word32())
            guard number.isFinite else { return .refused(.notFinite, .string("\(number)")) }
            // The digits of a `Double` of the same value would be those of its rounding.
            return .value(.double(Double("\(number)") ?? Double(number)), bytes: 4)
        case 0x07:
            let number = Double(bitPattern: try cursor.word64())
            guard number.isFinite else { return .refused(.notFinite, .string("\(number)")) }
            return .value(.double(number), bytes: 4)
        case 0x08: return try decimal()
        case 0x09: return try link(isUsed)
        case 0x0A:
            let high = try cursor.word64().byteSwapped
            let low = try cursor.word32().byteSwapped
            return isUsed ? .value(.string(RealmIDText.objectID(high, low)), bytes: 26) : .unused
        case 0x0B:
            let high = try cursor.word64().byteSwapped
            let low = try cursor.word64().byteSwapped
            return isUsed ? .value(.string(RealmIDText.uuid(high, low)), bytes: 38) : .unused
        case -2, -3: return .collection(.object)
        case -4: return .erased
        case -5, -6: return .collection(.list)
        default: throw cursor.fault(.type)
        }
    }

    private mutating func string(_ isUsed: Bool) throws(RealmChangesetFault) -> Payload {
        let count = try cursor.length()
        guard isUsed, count <= Self.maximumBytes else {
            try cursor.skip(count)
            return isUsed ? .refused(.tooLarge, .null) : .unused
        }
        let text = try cursor.text(count)
        return text.map { .value(.string($0), bytes: count + 2) } ?? .refused(.text, .null)
    }

    private mutating func binary(_ isUsed: Bool) throws(RealmChangesetFault) -> Payload {
        let count = try cursor.length()
        guard isUsed, count <= Self.maximumBytes else {
            try cursor.skip(count)
            return isUsed ? .refused(.tooLarge, .null) : .unused
        }
        let text = try unsafe cursor.take(count) { bytes in unsafe RealmTexts.base64(bytes) }
        return .value(.string(text), bytes: text.utf8.count + 2)
    }

    private mutating func time(_ isUsed: Bool) throws(RealmChangesetFault) -> Payload {
        let seconds = try cursor.integer()
        let nanoseconds = try cursor.integer()
        guard (-999_999_999...999_999_999).contains(nanoseconds),
            nanoseconds == 0 || seconds == 0 || (seconds < 0) == (nanoseconds < 0)
        else { throw cursor.fault(.time) }
        guard isUsed else { return .unused }
        guard let text = RealmTexts.time(seconds: seconds, nanoseconds: nanoseconds) else {
            return .refused(.time, .string("\(seconds) s, \(nanoseconds) ns"))
        }
        return .value(.string(text), bytes: 32)
    }

    private mutating func decimal() throws(RealmChangesetFault) -> Payload {
        let coefficient = try cursor.coefficient()
        let exponent = try cursor.integer()
        let isNegative = try cursor.flag()
        let sign = isNegative ? "-" : ""
        switch exponent {
        case 9696: return .refused(.notFinite, .string("NaN"))
        case 9184: return .refused(.notFinite, .string(sign + "Infinity"))
        case -6176...6111:
            guard coefficient < 10_000_000_000_000_000_000_000_000_000_000_000 else {
                throw cursor.fault(.decimal)
            }
            let text = RealmTexts.decimal(
                coefficient,
                exponent: Int(exponent),
                isNegative: isNegative
            )
            return .value(.string(text), bytes: 40)
        default: throw cursor.fault(.decimal)
        }
    }

    private mutating func link(_ isUsed: Bool) throws(RealmChangesetFault) -> Payload {
        let (table, key) = (try className(), try key())
        guard isUsed else { return .unused }
        guard !isLong(key) else { return .refused(.longKey, .null) }
        guard let text = ids.text(key.resolved(text), of: self.text(table)) else {
            return .refused(key.kind == .null ? .nullKey : .globalKey, .null)
        }
        return .value(.string(text), bytes: 40 + keyBytes(key))
    }

    func isLong(_ key: InternedKey) -> Bool { keyBytes(key) > InternedKey.maximumBytes }

    /// The size of a key's text; 0 for another key.
    private func keyBytes(_ key: InternedKey) -> Int {
        key.kind == .string ? names.byteCount(Int32(truncatingIfNeeded: key.high)) : 0
    }

    func text(_ index: Int32) -> String { names.text(index, cursor) }
}
