internal import JSON

/// An exact JSON number by its decimal digits: `digits` times ten to the power of `exponent`.
///
/// A `Double` is the shortest decimal that parses to it, which is how it was written.
struct ExactNumber: Hashable {
    let isNegative: Bool
    /// 0 to 9, the most significant first, without zeros at either end; empty for zero.
    let digits: [UInt8]
    let exponent: Int

    /// Makes a number; `nil` if the value is not one.
    init?(_ value: JSONValue) {
        switch value {
        case .integer(let value): self.init(text: String(value))
        case .double(let value): self.init(text: value.description)
        case .number(let text): self.init(text: text)
        case .null, .bool, .string, .array, .object: return nil
        }
    }

    /// Parses `-12.5e+3`; `nil` for anything else. An exponent out of range counts as the greatest
    /// one.
    init?(text: String) {
        var isNegative = false
        var digits: [UInt8] = []
        var exponent = 0
        var bytes = text.utf8.makeIterator()
        var next = bytes.next()
        if next == UInt8(ascii: "-") {
            isNegative = true
            next = bytes.next()
        }
        var count = 0
        while let byte = next, let digit = Self.digit(byte) {
            digits.append(digit)
            count += 1
            next = bytes.next()
        }
        guard count > 0 else { return nil }
        if next == UInt8(ascii: ".") {
            next = bytes.next()
            while let byte = next, let digit = Self.digit(byte) {
                digits.append(digit)
                exponent -= 1
                next = bytes.next()
            }
            guard exponent < 0 else { return nil }
        }
        if next == UInt8(ascii: "e") || next == UInt8(ascii: "E") {
            next = bytes.next()
            var sign = 1
            if next == UInt8(ascii: "-") || next == UInt8(ascii: "+") {
                sign = next == UInt8(ascii: "-") ? -1 : 1
                next = bytes.next()
            }
            var power = 0
            count = 0
            while let byte = next, let digit = Self.digit(byte) {
                power = min(power * 10 + Int(digit), 1 << 40)
                count += 1
                next = bytes.next()
            }
            guard count > 0 else { return nil }
            exponent += sign * power
        }
        guard next == nil else { return nil }
        let trailing = digits.reversed().prefix { $0 == 0 }.count
        digits.removeLast(trailing)
        digits.removeFirst(digits.prefix { $0 == 0 }.count)
        self.isNegative = isNegative && !digits.isEmpty
        self.digits = digits
        self.exponent = digits.isEmpty ? 0 : exponent + trailing
    }

    private static func digit(_ byte: UInt8) -> UInt8? {
        UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte ? byte - UInt8(ascii: "0") : nil
    }

    var isZero: Bool { digits.isEmpty }
    var isWhole: Bool { exponent >= 0 }

    /// The number of digits before the point.
    private var magnitude: Int { exponent + digits.count }

    static func compare(_ left: ExactNumber, _ right: ExactNumber) -> Int {
        guard left.isNegative == right.isNegative else { return left.isNegative ? -1 : 1 }
        let order = compareSizes(left, right)
        return left.isNegative ? -order : order
    }

    private static func compareSizes(_ left: ExactNumber, _ right: ExactNumber) -> Int {
        if left.isZero || right.isZero {
            return left.isZero ? (right.isZero ? 0 : -1) : 1
        }
        guard left.magnitude == right.magnitude else {
            return left.magnitude < right.magnitude ? -1 : 1
        }
        for (digit, other) in zip(left.digits, right.digits) where digit != other {
            return digit < other ? -1 : 1
        }
        return (left.digits.count - right.digits.count).signum()
    }

    /// The digits as one number, if it fits 64 bits.
    var significand: UInt64? {
        guard digits.count <= 18 else { return nil }
        return digits.reduce(0) { $0 * 10 + UInt64($1) }
    }

    /// Whether this is a whole multiple of `divisor`, whose digits must fit 64 bits.
    func isMultiple(of divisor: ExactNumber) -> Bool {
        guard !isZero else { return true }
        guard let modulus = divisor.significand, modulus > 0 else { return false }
        // There are no zeros at the end: a number with finer digits than the divisor is not a
        // multiple of it.
        guard exponent >= divisor.exponent else { return false }
        var rest: UInt64 = 0
        for digit in digits {
            rest = Self.multiply(rest, 10, modulus)
            rest = (rest + UInt64(digit)) % modulus
        }
        var power = exponent - divisor.exponent
        var factor = 10 % modulus
        while power > 0 && rest > 0 {
            if power & 1 == 1 { rest = Self.multiply(rest, factor, modulus) }
            factor = Self.multiply(factor, factor, modulus)
            power >>= 1
        }
        return rest == 0
    }

    private static func multiply(_ left: UInt64, _ right: UInt64, _ modulus: UInt64) -> UInt64 {
        modulus.dividingFullWidth((left % modulus).multipliedFullWidth(by: right)).remainder
    }
}

/// Comparison of JSON numbers by value.
enum Numbers {
    /// The bound up to which integers are exact as `Double`.
    static let exactDouble: Int64 = 1 << 53

    /// Returns -1, 0 or 1; both must be numbers.
    static func compare(_ left: JSONValue, _ right: JSONValue) -> Int {
        switch (left, right) {
        case (.integer(let left), .integer(let right)):
            return left < right ? -1 : left == right ? 0 : 1
        case (.double(let left), .double(let right)):
            return left < right ? -1 : left == right ? 0 : 1
        case (.integer(let left), .double(let right)) where isExact(left):
            let left = Double(left)
            return left < right ? -1 : left == right ? 0 : 1
        case (.double(let left), .integer(let right)) where isExact(right):
            let right = Double(right)
            return left < right ? -1 : left == right ? 0 : 1
        default:
            guard let left = ExactNumber(left), let right = ExactNumber(right) else { return 0 }
            return ExactNumber.compare(left, right)
        }
    }

    private static func isExact(_ value: Int64) -> Bool { -exactDouble...exactDouble ~= value }

    /// Whether a number is whole. Without libm's `trunc`, which some executables do not link: from
    /// 2^52 on all are whole.
    static func isWhole(_ value: Double) -> Bool {
        abs(value) >= 0x1p52 || Double(Int64(value)) == value
    }

    /// Returns the value as a whole number of 64 bits.
    static func whole(_ value: Double) -> Int64? {
        guard value >= -0x1p63, value < 0x1p63 else { return nil }
        let integer = Int64(value)
        return Double(integer) == value ? integer : nil
    }
}

/// A value with JSON Schema's equality: numbers by value, strings by their bytes, members in any
/// order.
struct SchemaKey: Hashable {
    let value: JSONValue

    init(_ value: JSONValue) { self.value = value }

    static func == (left: SchemaKey, right: SchemaKey) -> Bool { same(left.value, right.value) }

    static func same(_ left: JSONValue, _ right: JSONValue) -> Bool {
        switch (left, right) {
        case (.null, .null): true
        case (.bool(let left), .bool(let right)): left == right
        case (.string(let left), .string(let right)): left.isSame(as: right)
        case (.array(let left), .array(let right)):
            left.count == right.count && zip(left, right).allSatisfy { same($0, $1) }
        case (.object(let left), .object(let right)):
            left.count == right.count
                && left.allSatisfy { member in
                    right[member.key].map { same(member.value, $0) } ?? false
                }
        case (.integer, .integer), (.integer, .double), (.integer, .number), (.double, .integer),
            (.double, .double), (.double, .number), (.number, .integer), (.number, .double),
            (.number, .number):
            Numbers.compare(left, right) == 0
        case (.null, _), (.bool, _), (.integer, _), (.double, _), (.number, _), (.string, _),
            (.array, _), (.object, _):
            false
        }
    }

    func hash(into hasher: inout Hasher) { Self.hash(value, into: &hasher) }

    private static func hash(_ value: JSONValue, into hasher: inout Hasher) {
        switch value {
        case .null: hasher.combine(0)
        case .bool(let value): hasher.combine(value)
        case .integer(let value)
        where -Numbers.exactDouble < value && value < Numbers.exactDouble:
            hasher.combine(value)
        case .double(let value) where Numbers.isWhole(value) && abs(value) < 0x1p53:
            hasher.combine(Int64(value))
        case .integer, .double, .number: hasher.combine(ExactNumber(value))
        case .string(let text): text.hashBytes(into: &hasher)
        case .array(let array):
            hasher.combine(array.count)
            for element in array { hash(element, into: &hasher) }
        case .object(let object):
            var sum = object.count
            for (key, value) in object {
                var own = Hasher()
                key.hashBytes(into: &own)
                hash(value, into: &own)
                sum &+= own.finalize()
            }
            hasher.combine(sum)
        }
    }

    /// Returns the number of values in it, itself included.
    static func size(_ value: JSONValue) -> Int {
        switch value {
        case .null, .bool, .integer, .double, .number: 1
        case .string(let text): 1 + text.utf8.count / 64
        case .array(let array): array.reduce(1) { $0 + size($1) }
        case .object(let object): object.reduce(1) { $0 + 1 + size($1.value) }
        }
    }
}
