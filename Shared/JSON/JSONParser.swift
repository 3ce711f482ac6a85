extension JSONValue {
    /// Parses one JSON text.
    ///
    /// - Parameters:
    ///   - bytes: UTF-8, without a BOM.
    ///   - maximumDepth: The most arrays and objects that may be open at once.
    ///   - maximumBytes: A longer text is refused unread.
    ///   - maximumValues: The most values in all, those of members included, as few bytes of a
    ///     compressed body can be many values.
    ///   - maximumMarks: The most consecutive combining marks of a string; see `CombiningMarkRun`.
    /// - Returns: The whole tree.
    /// - Throws: `JSONError` with the place and what was expected there.
    public static func parse(
        _ bytes: [UInt8],
        maximumDepth: Int = 64,
        maximumBytes: Int = 16 << 20,
        maximumValues: Int = .max,
        maximumMarks: Int = JSONValue.maximumMarks
    ) throws(JSONError) -> JSONValue {
        // A typed throw does not cross the pointer's closure, so the error is passed as a value.
        let result: Result<JSONValue, JSONError> = unsafe bytes.withUnsafeBytes { buffer in
            do throws(JSONError) {
                return .success(
                    try unsafe parse(
                        buffer,
                        maximumDepth: maximumDepth,
                        maximumBytes: maximumBytes,
                        maximumValues: maximumValues,
                        maximumMarks: maximumMarks
                    )
                )
            } catch {
                return .failure(error)
            }
        }
        return try result.get()
    }

    /// Parses one JSON text.
    ///
    /// - Returns: The whole tree.
    /// - Throws: `JSONError` with the place and what was expected there.
    public static func parse(
        _ text: String,
        maximumDepth: Int = 64,
        maximumBytes: Int = 16 << 20,
        maximumValues: Int = .max
    ) throws(JSONError) -> JSONValue {
        try parse(
            Array(text.utf8),
            maximumDepth: maximumDepth,
            maximumBytes: maximumBytes,
            maximumValues: maximumValues
        )
    }

    /// Parses one JSON text in borrowed memory, which is not retained.
    ///
    /// - Returns: The whole tree.
    /// - Throws: `JSONError` with the place and what was expected there.
    public static func parse(
        _ buffer: UnsafeRawBufferPointer,
        maximumDepth: Int = 64,
        maximumBytes: Int = 16 << 20,
        maximumValues: Int = .max,
        maximumMarks: Int = JSONValue.maximumMarks
    ) throws(JSONError) -> JSONValue {
        guard buffer.count <= maximumBytes else {
            throw JSONError(offset: maximumBytes, line: 1, expected: .fewerBytes)
        }
        guard let start = buffer.baseAddress else {
            throw JSONError(offset: 0, line: 1, expected: .value)
        }
        var parser = unsafe JSONParser(
            start: start,
            count: buffer.count,
            maximumDepth: maximumDepth,
            maximumValues: maximumValues,
            maximumMarks: maximumMarks
        )
        return try parser.document()
    }
}

/// A recursive-descent parser over bytes that it borrows for one call of `parse` or
/// `JSONReader.read`.
///
/// `skip` refuses exactly what `value` refuses, at the same place: they share every step except the
/// making of the values.
@safe
struct JSONParser {
    private let start: UnsafeRawPointer
    private let count: Int
    private let maximumDepth: Int
    private let maximumMarks: Int
    private var valuesLeft: Int
    private var at = 0
    private var depth = 0

    init(
        start: UnsafeRawPointer,
        count: Int,
        maximumDepth: Int,
        maximumValues: Int,
        maximumMarks: Int
    ) {
        unsafe self.start = start
        self.count = count
        self.maximumDepth = maximumDepth
        self.maximumMarks = maximumMarks
        valuesLeft = maximumValues
    }

    /// Returns the byte at `place`, which must be below `count`.
    @inline(__always)
    private func byte(_ place: Int) -> UInt8 {
        unsafe start.load(fromByteOffset: place, as: UInt8.self)
    }

    /// The current byte; 0 at the end, which is never valid outside a string.
    @inline(__always)
    private var current: UInt8 { at < count ? byte(at) : 0 }

    private func failure(_ expected: JSONError.Expectation, at place: Int) -> JSONError {
        var line = 1
        for index in 0..<min(place, count) where byte(index) == UInt8(ascii: "\n") { line += 1 }
        return JSONError(offset: place, line: line, expected: expected)
    }

    @inline(__always)
    mutating func skipBlanks() {
        while at < count {
            let byte = byte(at)
            guard byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 else { return }
            at += 1
        }
    }

    mutating func document() throws(JSONError) -> JSONValue {
        skipBlanks()
        let value = try value()
        try end()
        return value
    }

    mutating func end() throws(JSONError) {
        skipBlanks()
        guard at == count else { throw failure(.end, at: at) }
    }

    @inline(__always)
    private mutating func countValue() throws(JSONError) {
        guard valuesLeft > 0 else { throw failure(.fewerValues, at: at) }
        valuesLeft -= 1
    }

    mutating func value() throws(JSONError) -> JSONValue {
        try countValue()
        switch current {
        case UInt8(ascii: "\""):
            return .string(try quotedString())
        case UInt8(ascii: "{"):
            return .object(try object())
        case UInt8(ascii: "["):
            return .array(try array())
        case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"):
            return try number()
        case UInt8(ascii: "t"):
            try literal("true")
            return .bool(true)
        case UInt8(ascii: "f"):
            try literal("false")
            return .bool(false)
        case UInt8(ascii: "n"):
            try literal("null")
            return .null
        default:
            throw failure(.value, at: at)
        }
    }

    private mutating func literal(_ word: StaticString) throws(JSONError) {
        let length = word.utf8CodeUnitCount
        guard count - at >= length else { throw failure(.value, at: at) }
        for index in 0..<length where unsafe byte(at + index) != word.utf8Start[index] {
            throw failure(.value, at: at)
        }
        at += length
    }

    private mutating func enter() throws(JSONError) {
        guard depth < maximumDepth else { throw failure(.lessDepth, at: at) }
        depth += 1
        at += 1
        skipBlanks()
    }

    private mutating func array() throws(JSONError) -> [JSONValue] {
        var elements: [JSONValue] = []
        var goesOn = try enterArray()
        while goesOn {
            elements.append(try value())
            goesOn = try nextElement()
        }
        return elements
    }

    private mutating func object() throws(JSONError) -> JSONObject {
        var members = JSONObject()
        var goesOn = try enterObject()
        if goesOn { members.reserveCapacity(8) }
        while goesOn {
            guard current == UInt8(ascii: "\"") else { throw failure(.key, at: at) }
            let key = try quotedString()
            try colon()
            members[key] = try value()
            goesOn = try nextMember()
        }
        return members
    }

    /// Moves past the opening bracket; returns whether there is an element.
    @inline(__always)
    mutating func enterArray() throws(JSONError) -> Bool {
        try enter()
        return !leaves(UInt8(ascii: "]"))
    }

    /// Moves past the opening brace; returns whether there is a member.
    @inline(__always)
    mutating func enterObject() throws(JSONError) -> Bool {
        try enter()
        return !leaves(UInt8(ascii: "}"))
    }

    /// Moves past an element; returns whether there is another.
    @inline(__always)
    mutating func nextElement() throws(JSONError) -> Bool {
        try next(UInt8(ascii: "]"), .commaOrBracket)
    }

    /// Moves past a member; returns whether there is another.
    @inline(__always)
    mutating func nextMember() throws(JSONError) -> Bool {
        try next(UInt8(ascii: "}"), .commaOrBrace)
    }

    @inline(__always)
    private mutating func next(
        _ closing: UInt8,
        _ expected: JSONError.Expectation
    ) throws(JSONError) -> Bool {
        skipBlanks()
        if leaves(closing) { return false }
        guard current == UInt8(ascii: ",") else { throw failure(expected, at: at) }
        at += 1
        skipBlanks()
        return true
    }

    @inline(__always)
    private mutating func leaves(_ closing: UInt8) -> Bool {
        guard current == closing else { return false }
        at += 1
        depth -= 1
        return true
    }

    @inline(__always)
    private mutating func colon() throws(JSONError) {
        skipBlanks()
        guard current == UInt8(ascii: ":") else { throw failure(.colon, at: at) }
        at += 1
        skipBlanks()
    }
}

// MARK: - Skipping

extension JSONParser {
    var kind: JSONReader.Kind {
        switch current {
        case UInt8(ascii: "\""): .string
        case UInt8(ascii: "{"): .object
        case UInt8(ascii: "["): .array
        case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): .number
        case UInt8(ascii: "t"), UInt8(ascii: "f"): .boolean
        case UInt8(ascii: "n"): .null
        default: .none
        }
    }

    var position: Int { at }

    /// Skips one value.
    mutating func skip() throws(JSONError) {
        switch kind {
        case .string:
            try countValue()
            _ = try skipString()
        case .object:
            try countValue()
            var goesOn = try enterObject()
            while goesOn {
                guard current == UInt8(ascii: "\"") else { throw failure(.key, at: at) }
                _ = try skipString()
                try colon()
                try skip()
                goesOn = try nextMember()
            }
        case .array:
            try countValue()
            var goesOn = try enterArray()
            while goesOn {
                try skip()
                goesOn = try nextElement()
            }
        case .number:
            try countValue()
            _ = try numeral()
        case .boolean, .null, .none: _ = try value()
        }
    }

    /// Reads the current key and the colon after it.
    mutating func key() throws(JSONError) -> JSONKey {
        guard current == UInt8(ascii: "\"") else { throw failure(.key, at: at) }
        let first = at
        var decoded: String?
        if try skipString() {
            let end = at
            at = first
            decoded = try quotedString()
            at = end
        }
        let bytes = unsafe UnsafeRawBufferPointer(start: start + first + 1, count: at - first - 2)
        try colon()
        return unsafe JSONKey(bytes, decoded: decoded)
    }

    /// Skips the current string; returns whether it has escapes.
    private mutating func skipString() throws(JSONError) -> Bool {
        at += 1
        let first = at
        var isASCII = plainRun()
        var hasEscapes = false
        while at < count {
            let byte = byte(at)
            if byte == UInt8(ascii: "\"") {
                // Escapes are ASCII, so they do not change whether the string is valid.
                let bytes = unsafe UnsafeRawBufferPointer(start: start + first, count: at - first)
                guard unsafe isASCII || isUTF8(bytes) else { throw failure(.unicode, at: first) }
                if hasEscapes, bytes.count >= CombiningMarkRun.shortestBytes {
                    // The escapes may stand for marks.
                    at = first - 1
                    _ = try quotedString()
                    return true
                }
                if !isASCII { unsafe try checkMarks(bytes, at: first) }
                at += 1
                return hasEscapes
            }
            if byte == UInt8(ascii: "\\") {
                hasEscapes = true
                at += 1
                _ = try escape()
                isASCII = plainRun() && isASCII
                continue
            }
            guard byte >= 0x20 else { throw failure(.escapedControl, at: at) }
            if byte >= 0x80 { isASCII = false }
            at += 1
        }
        throw failure(.closingQuote, at: count)
    }
}

/// Whether the bytes are valid, as in `String(validating:)`, without making a string.
private func isUTF8(_ bytes: UnsafeRawBufferPointer) -> Bool {
    var decoder = UTF8()
    var bytes = unsafe bytes.makeIterator()
    while true {
        switch unsafe decoder.decode(&bytes) {
        case .scalarValue: continue
        case .emptyInput: return true
        case .error: return false
        }
    }
}

// MARK: - Strings

extension JSONParser {
    /// Skips eight bytes at a time, as long as none of them ends the string or begins an escape.
    ///
    /// - Returns: Whether they were ASCII.
    @inline(__always)
    private mutating func plainRun() -> Bool {
        var isASCII = true
        while count - at >= 8 {
            let word = unsafe start.loadUnaligned(fromByteOffset: at, as: UInt64.self)
            if mustEscape(word) { break }
            if word & 0x8080_8080_8080_8080 != 0 { isASCII = false }
            at += 8
        }
        return isASCII
    }

    /// Reads the string whose opening quote is current.
    mutating func quotedString() throws(JSONError) -> String {
        at += 1
        let first = at
        var isASCII = plainRun()
        while at < count {
            let byte = byte(at)
            if byte == UInt8(ascii: "\"") {
                let text = try text(from: first, to: at, isASCII: isASCII)
                at += 1
                return text
            }
            if byte == UInt8(ascii: "\\") { return try escapedString(from: first) }
            guard byte >= 0x20 else { throw failure(.escapedControl, at: at) }
            if byte >= 0x80 { isASCII = false }
            at += 1
        }
        throw failure(.closingQuote, at: count)
    }

    private func text(from: Int, to end: Int, isASCII: Bool) throws(JSONError) -> String {
        let bytes = unsafe UnsafeRawBufferPointer(start: start + from, count: end - from)
        if isASCII { return unsafe String(decoding: bytes, as: UTF8.self) }
        guard let text = unsafe String(validating: bytes, as: UTF8.self) else {
            throw failure(.unicode, at: from)
        }
        unsafe try checkMarks(bytes, at: from)
        return text
    }

    private func checkMarks(
        _ bytes: UnsafeRawBufferPointer,
        at place: Int
    ) throws(JSONError) {
        guard bytes.count >= CombiningMarkRun.shortestBytes, maximumMarks < .max else { return }
        guard unsafe CombiningMarkRun.isWithin(maximumMarks, bytes) else {
            throw failure(.fewerMarks, at: place)
        }
    }

    /// Reads the rest of a string that has an escape; `at` is on its first backslash.
    private mutating func escapedString(from first: Int) throws(JSONError) -> String {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(at - first + 32)
        unsafe bytes.append(
            contentsOf: UnsafeRawBufferPointer(start: start + first, count: at - first)
        )
        while at < count {
            let byte = byte(at)
            switch byte {
            case UInt8(ascii: "\""):
                at += 1
                guard let text = String(validating: bytes, as: UTF8.self) else {
                    throw failure(.unicode, at: first)
                }
                if bytes.count >= CombiningMarkRun.shortestBytes, maximumMarks < .max,
                    !CombiningMarkRun.isWithin(maximumMarks, bytes)
                {
                    throw failure(.fewerMarks, at: first)
                }
                return text
            case UInt8(ascii: "\\"):
                at += 1
                append(try escape(), to: &bytes)
            default:
                guard byte >= 0x20 else { throw failure(.escapedControl, at: at) }
                bytes.append(byte)
                at += 1
            }
        }
        throw failure(.closingQuote, at: count)
    }

    /// Reads the characters after a backslash.
    ///
    /// - Returns: The scalar that it stands for.
    private mutating func escape() throws(JSONError) -> UInt32 {
        let scalar: UInt32
        switch current {
        case UInt8(ascii: "\""): scalar = 0x22
        case UInt8(ascii: "\\"): scalar = 0x5C
        case UInt8(ascii: "/"): scalar = 0x2F
        case UInt8(ascii: "b"): scalar = 0x08
        case UInt8(ascii: "f"): scalar = 0x0C
        case UInt8(ascii: "n"): scalar = 0x0A
        case UInt8(ascii: "r"): scalar = 0x0D
        case UInt8(ascii: "t"): scalar = 0x09
        case UInt8(ascii: "u"):
            at += 1
            return try self.scalar()
        default: throw failure(.escape, at: at)
        }
        at += 1
        return scalar
    }

    /// Reads the characters after `\u`: four digits, and for a high surrogate its other half.
    private mutating func scalar() throws(JSONError) -> UInt32 {
        let place = at
        let high = try fourDigits()
        guard 0xD800...0xDFFF ~= high else { return high }
        guard high < 0xDC00, count - at >= 2, byte(at) == UInt8(ascii: "\\"),
            byte(at + 1) == UInt8(ascii: "u")
        else { throw failure(.surrogatePair, at: place) }
        at += 2
        let low = try fourDigits()
        guard 0xDC00...0xDFFF ~= low else { throw failure(.surrogatePair, at: place) }
        return 0x10000 + (high - 0xD800) << 10 + (low - 0xDC00)
    }

    private mutating func fourDigits() throws(JSONError) -> UInt32 {
        var value: UInt32 = 0
        for _ in 0..<4 {
            let digit: UInt8
            switch current {
            case let byte where byte &- 0x30 < 10: digit = byte - 0x30
            case let byte where (byte | 0x20) &- 0x61 < 6: digit = (byte | 0x20) - 0x61 + 10
            default: throw failure(.escape, at: at)
            }
            value = value << 4 | UInt32(digit)
            at += 1
        }
        return value
    }

    private func append(_ scalar: UInt32, to bytes: inout [UInt8]) {
        switch scalar {
        case 0..<0x80:
            bytes.append(UInt8(scalar))
        case 0x80..<0x800:
            bytes.append(0xC0 | UInt8(scalar >> 6))
            bytes.append(0x80 | UInt8(scalar & 0x3F))
        case 0x800..<0x10000:
            bytes.append(0xE0 | UInt8(scalar >> 12))
            bytes.append(0x80 | UInt8(scalar >> 6 & 0x3F))
            bytes.append(0x80 | UInt8(scalar & 0x3F))
        default:
            bytes.append(0xF0 | UInt8(scalar >> 18))
            bytes.append(0x80 | UInt8(scalar >> 12 & 0x3F))
            bytes.append(0x80 | UInt8(scalar >> 6 & 0x3F))
            bytes.append(0x80 | UInt8(scalar & 0x3F))
        }
    }
}

// MARK: - Numbers

extension JSONParser {
    /// The parts of a number.
    private struct Numeral {
        let isNegative: Bool
        var magnitude: UInt64 = 0
        /// Whether the digits and the power fit.
        var isExact = true
        var isInteger = true
        var exponent = 0
    }

    @inline(__always)
    private mutating func numeral() throws(JSONError) -> Numeral {
        var numeral = Numeral(isNegative: current == UInt8(ascii: "-"))
        if numeral.isNegative { at += 1 }
        let digits = at
        try digitRun(into: &numeral.magnitude, isExact: &numeral.isExact)
        guard byte(digits) != UInt8(ascii: "0") || at == digits + 1 else {
            throw failure(.value, at: digits)
        }
        if current == UInt8(ascii: ".") {
            numeral.isInteger = false
            at += 1
            let fraction = at
            try digitRun(into: &numeral.magnitude, isExact: &numeral.isExact)
            numeral.exponent = fraction - at
        }
        if current | 0x20 == UInt8(ascii: "e") {
            numeral.isInteger = false
            at += 1
            let isDown = current == UInt8(ascii: "-")
            if isDown || current == UInt8(ascii: "+") { at += 1 }
            var power: UInt64 = 0
            var isPowerExact = true
            try digitRun(into: &power, isExact: &isPowerExact)
            if isPowerExact, power < 1000 {
                numeral.exponent += isDown ? -Int(power) : Int(power)
            } else {
                numeral.isExact = false
            }
        }
        return numeral
    }

    private mutating func number() throws(JSONError) -> JSONValue {
        let first = at
        let numeral = try numeral()
        let (magnitude, isNegative) = (numeral.magnitude, numeral.isNegative)
        let (isExact, isInteger) = (numeral.isExact, numeral.isInteger)
        let exponent = numeral.exponent
        if isInteger, isExact, let value = integer(magnitude, isNegative: isNegative) {
            return .integer(value)
        }
        let text = unsafe String(
            decoding: UnsafeRawBufferPointer(start: start + first, count: at - first),
            as: UTF8.self
        )
        if isInteger, magnitude != 0 || !isExact {
            return Self.double(ofDigits: text).map(JSONValue.double) ?? .number(text)
        }
        // Both factors are exact, so the only rounding, that of the product, is correct.
        if isExact, magnitude < 1 << 53, -22...22 ~= exponent {
            let factor = Self.powersOfTen[abs(exponent)]
            let value = exponent < 0 ? Double(magnitude) / factor : Double(magnitude) * factor
            return .double(isNegative ? -value : value)
        }
        guard let value = Double(text), value.isFinite else { return .number(text) }
        return .double(value)
    }

    /// The most digits of a finite `Double`.
    private static let maximumDigitsOfDoubles = 310

    /// Returns the `Double` that is written with exactly these digits; `nil` if it would be another
    /// number. `jsonb` returns `1e21` in full digits, and JavaScript writes 1e20 so.
    private static func double(ofDigits text: String) -> Double? {
        guard text.utf8.count <= maximumDigitsOfDoubles, let value = Double(text), value.isFinite,
            significantDigits(of: text) == significantDigits(of: value.description)
        else { return nil }
        return value
    }

    /// Returns a number's digits without its sign, its point, its exponent and the zeros at its
    /// ends.
    private static func significantDigits(of text: String) -> [UInt8] {
        var digits: [UInt8] = []
        for byte in text.utf8 {
            if byte | 0x20 == UInt8(ascii: "e") { break }
            guard byte &- 0x30 < 10, !digits.isEmpty || byte != UInt8(ascii: "0") else { continue }
            digits.append(byte)
        }
        while digits.last == UInt8(ascii: "0") { digits.removeLast() }
        return digits
    }

    /// Returns `nil` if `Int64` cannot hold it, and for -0, which only a `Double` can be.
    private func integer(_ magnitude: UInt64, isNegative: Bool) -> Int64? {
        guard isNegative else { return Int64(exactly: magnitude) }
        guard magnitude != 0, magnitude <= 1 << 63 else { return nil }
        return Int64(truncatingIfNeeded: 0 &- magnitude)
    }

    /// Reads at least one digit, and appends it to those of `magnitude`.
    @inline(__always)
    private mutating func digitRun(
        into magnitude: inout UInt64,
        isExact: inout Bool
    ) throws(JSONError) {
        let first = at
        while at < count {
            let digit = byte(at) &- 0x30
            guard digit < 10 else { break }
            let (tenfold, overflow) = magnitude.multipliedReportingOverflow(by: 10)
            let (sum, carry) = tenfold.addingReportingOverflow(UInt64(digit))
            if overflow || carry { isExact = false }
            magnitude = sum
            at += 1
        }
        guard at > first else { throw failure(.digit, at: at) }
    }

    /// The powers of ten that a `Double` holds exactly.
    private static let powersOfTen: [Double] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
        1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
    ]
}
