extension JSONValue {
    /// Reads one JSON text.
    ///
    /// - Parameters:
    ///   - bytes: UTF-8, without a BOM.
    ///   - maximumDepth: How many arrays and objects may be open at once.
    ///   - maximumBytes: A longer text is refused unread.
    /// - Returns: The whole tree.
    /// - Throws: `JSONError` with the place and what was expected there.
    public static func parse(
        _ bytes: [UInt8],
        maximumDepth: Int = 64,
        maximumBytes: Int = 16 << 20
    ) throws(JSONError) -> JSONValue {
        // A typed throw does not cross the pointer's closure, so the error travels as a value.
        let result: Result<JSONValue, JSONError> = unsafe bytes.withUnsafeBytes { buffer in
            do throws(JSONError) {
                return .success(
                    try unsafe parse(
                        buffer,
                        maximumDepth: maximumDepth,
                        maximumBytes: maximumBytes
                    )
                )
            } catch {
                return .failure(error)
            }
        }
        return try result.get()
    }

    /// Reads one JSON text.
    ///
    /// - Returns: The whole tree.
    /// - Throws: `JSONError` with the place and what was expected there.
    public static func parse(
        _ text: String,
        maximumDepth: Int = 64,
        maximumBytes: Int = 16 << 20
    ) throws(JSONError) -> JSONValue {
        try parse(Array(text.utf8), maximumDepth: maximumDepth, maximumBytes: maximumBytes)
    }

    /// Reads one JSON text out of borrowed memory; nothing of it is kept.
    ///
    /// - Returns: The whole tree.
    /// - Throws: `JSONError` with the place and what was expected there.
    public static func parse(
        _ buffer: UnsafeRawBufferPointer,
        maximumDepth: Int = 64,
        maximumBytes: Int = 16 << 20
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
            maximumDepth: maximumDepth
        )
        return try parser.document()
    }
}

/// A recursive descent over bytes that it borrows for one call of `parse`.
@safe
private struct JSONParser {
    private let start: UnsafeRawPointer
    private let count: Int
    private let maximumDepth: Int
    private var at = 0
    private var depth = 0

    init(start: UnsafeRawPointer, count: Int, maximumDepth: Int) {
        unsafe self.start = start
        self.count = count
        self.maximumDepth = maximumDepth
    }

    /// The byte at `place`, which the caller knows to be below `count`.
    @inline(__always)
    private func byte(_ place: Int) -> UInt8 {
        unsafe start.load(fromByteOffset: place, as: UInt8.self)
    }

    /// The byte at hand; 0, which no JSON has outside a string, at the end.
    @inline(__always)
    private var current: UInt8 { at < count ? byte(at) : 0 }

    private func failure(_ expected: JSONError.Expectation, at place: Int) -> JSONError {
        var line = 1
        for index in 0..<min(place, count) where byte(index) == UInt8(ascii: "\n") { line += 1 }
        return JSONError(offset: place, line: line, expected: expected)
    }

    @inline(__always)
    private mutating func skipBlanks() {
        while at < count {
            let byte = byte(at)
            guard byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 else { return }
            at += 1
        }
    }

    mutating func document() throws(JSONError) -> JSONValue {
        skipBlanks()
        let value = try value()
        skipBlanks()
        guard at == count else { throw failure(.end, at: at) }
        return value
    }

    private mutating func value() throws(JSONError) -> JSONValue {
        switch current {
        case UInt8(ascii: "\""):
            at += 1
            return .string(try string())
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
        try enter()
        defer { depth -= 1 }
        var elements: [JSONValue] = []
        if current == UInt8(ascii: "]") {
            at += 1
            return elements
        }
        while true {
            elements.append(try value())
            skipBlanks()
            switch current {
            case UInt8(ascii: ","):
                at += 1
                skipBlanks()
            case UInt8(ascii: "]"):
                at += 1
                return elements
            default:
                throw failure(.commaOrBracket, at: at)
            }
        }
    }

    private mutating func object() throws(JSONError) -> JSONObject {
        try enter()
        defer { depth -= 1 }
        var members = JSONObject()
        if current == UInt8(ascii: "}") {
            at += 1
            return members
        }
        members.reserveCapacity(8)
        while true {
            guard current == UInt8(ascii: "\"") else { throw failure(.key, at: at) }
            at += 1
            let key = try string()
            skipBlanks()
            guard current == UInt8(ascii: ":") else { throw failure(.colon, at: at) }
            at += 1
            skipBlanks()
            members[key] = try value()
            skipBlanks()
            switch current {
            case UInt8(ascii: ","):
                at += 1
                skipBlanks()
            case UInt8(ascii: "}"):
                at += 1
                return members
            default:
                throw failure(.commaOrBrace, at: at)
            }
        }
    }
}

// MARK: - Strings

extension JSONParser {
    /// Reads a string whose opening quote is behind us.
    private mutating func string() throws(JSONError) -> String {
        let first = at
        var isASCII = true
        // Eight bytes at a time, as long as none of them ends the string or begins an escape.
        while count - at >= 8 {
            let word = unsafe start.loadUnaligned(fromByteOffset: at, as: UInt64.self)
            if mustEscape(word) { break }
            if word & 0x8080_8080_8080_8080 != 0 { isASCII = false }
            at += 8
        }
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
        return text
    }

    /// Reads the rest of a string that holds an escape; `at` is on its first backslash.
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
                return text
            case UInt8(ascii: "\\"):
                at += 1
                try escape(into: &bytes)
            default:
                guard byte >= 0x20 else { throw failure(.escapedControl, at: at) }
                bytes.append(byte)
                at += 1
            }
        }
        throw failure(.closingQuote, at: count)
    }

    private mutating func escape(into bytes: inout [UInt8]) throws(JSONError) {
        let letter = current
        switch letter {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): bytes.append(letter)
        case UInt8(ascii: "b"): bytes.append(0x08)
        case UInt8(ascii: "f"): bytes.append(0x0C)
        case UInt8(ascii: "n"): bytes.append(0x0A)
        case UInt8(ascii: "r"): bytes.append(0x0D)
        case UInt8(ascii: "t"): bytes.append(0x09)
        case UInt8(ascii: "u"):
            at += 1
            append(try scalar(), to: &bytes)
            return
        default: throw failure(.escape, at: at)
        }
        at += 1
    }

    /// Reads what follows `\u`: four digits, and for a high surrogate its other half.
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
    private mutating func number() throws(JSONError) -> JSONValue {
        let first = at
        let isNegative = current == UInt8(ascii: "-")
        if isNegative { at += 1 }
        var magnitude: UInt64 = 0
        var isExact = true
        let digits = at
        try digitRun(into: &magnitude, isExact: &isExact)
        guard byte(digits) != UInt8(ascii: "0") || at == digits + 1 else {
            throw failure(.value, at: digits)
        }
        var exponent = 0
        var isInteger = true
        if current == UInt8(ascii: ".") {
            isInteger = false
            at += 1
            let fraction = at
            try digitRun(into: &magnitude, isExact: &isExact)
            exponent = fraction - at
        }
        if current | 0x20 == UInt8(ascii: "e") {
            isInteger = false
            at += 1
            let isDown = current == UInt8(ascii: "-")
            if isDown || current == UInt8(ascii: "+") { at += 1 }
            var power: UInt64 = 0
            var isPowerExact = true
            try digitRun(into: &power, isExact: &isPowerExact)
            if isPowerExact, power < 1000 {
                exponent += isDown ? -Int(power) : Int(power)
            } else {
                isExact = false
            }
        }
        if isInteger, isExact, let value = integer(magnitude, isNegative: isNegative) {
            return .integer(value)
        }
        let text = unsafe String(
            decoding: UnsafeRawBufferPointer(start: start + first, count: at - first),
            as: UTF8.self
        )
        if isInteger, magnitude != 0 || !isExact { return .number(text) }
        // Both factors are exact, so one rounding, that of the product, is the right one.
        if isExact, magnitude < 1 << 53, -22...22 ~= exponent {
            let factor = Self.powersOfTen[abs(exponent)]
            let value = exponent < 0 ? Double(magnitude) / factor : Double(magnitude) * factor
            return .double(isNegative ? -value : value)
        }
        guard let value = Double(text), value.isFinite else { return .number(text) }
        return .double(value)
    }

    /// `nil` for what `Int64` does not hold, and for -0, which only a `Double` can be.
    private func integer(_ magnitude: UInt64, isNegative: Bool) -> Int64? {
        guard isNegative else { return Int64(exactly: magnitude) }
        guard magnitude != 0, magnitude <= 1 << 63 else { return nil }
        return Int64(truncatingIfNeeded: 0 &- magnitude)
    }

    /// At least one digit, added behind those that `magnitude` has.
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
