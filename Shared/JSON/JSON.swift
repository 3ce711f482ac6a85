/// One JSON value, as in RFC 8259.
///
/// Authority: the only reader and writer of JSON in Carillon. Values, no states, nothing to shut
/// down. Strict: a BOM, invalid UTF-8, a lone surrogate, a trailing comma or anything after the
/// value is refused; the caller limits depth and size. Of duplicate keys the last wins, at the
/// place of the first. Numbers are never rounded silently. Two kinds of numbers retain their text:
/// an integer beyond 64 bits, unless a `Double` is written with exactly its digits, and a number
/// beyond every finite `Double`.
///
/// `public`, as all modules pass these on the hot path.
public enum JSONValue: Sendable {
    case null
    case bool(Bool)
    case integer(Int64)
    case double(Double)
    /// The exact text of a number that fits neither `Int64` nor a finite `Double`.
    case number(String)
    case string(String)
    case array([JSONValue])
    case object(JSONObject)
}

extension JSONValue: Equatable {
    /// Whether both are the same value: strings byte by byte, members in any order.
    public static func == (left: JSONValue, right: JSONValue) -> Bool {
        switch (left, right) {
        case (.null, .null): true
        case (.bool(let left), .bool(let right)): left == right
        case (.integer(let left), .integer(let right)): left == right
        case (.double(let left), .double(let right)): left == right
        case (.number(let left), .number(let right)): left.isSame(as: right)
        case (.string(let left), .string(let right)): left.isSame(as: right)
        case (.array(let left), .array(let right)): left == right
        case (.object(let left), .object(let right)): left == right
        case (.null, _), (.bool, _), (.integer, _), (.double, _), (.number, _), (.string, _),
            (.array, _), (.object, _):
            false
        }
    }
}

extension JSONValue {
    /// The member of an object; `nil` if it is missing, or this is not an object.
    public subscript(key: String) -> JSONValue? {
        guard case .object(let object) = self else { return nil }
        return object[key]
    }

    /// The element of an array; `nil` if it is missing, or this is not an array.
    public subscript(index: Int) -> JSONValue? {
        guard case .array(let array) = self, array.indices.contains(index) else { return nil }
        return array[index]
    }

    public var string: String? {
        guard case .string(let value) = self else { return nil }
        return value
    }

    /// The number, if it is whole and fits `Int`: `1` and `1.0`, never `1.5`.
    public var integer: Int? {
        switch self {
        case .integer(let value): Int(exactly: value)
        case .double(let value): whole(value)
        case .null, .bool, .number, .string, .array, .object: nil
        }
    }

    /// Converts as `Int(exactly:)`, without its call of libm's `trunc`, which some executables do
    /// not link.
    private func whole(_ value: Double) -> Int? {
        guard value >= -0x1p63, value < 0x1p63 else { return nil }
        let integer = Int(value)
        return Double(integer) == value ? integer : nil
    }

    /// The number, to the nearest `Double`; `nil` if that would be infinite.
    public var double: Double? {
        switch self {
        case .integer(let value): return Double(value)
        case .double(let value): return value
        case .number(let text):
            guard let value = Double(text), value.isFinite else { return nil }
            return value
        case .null, .bool, .string, .array, .object: return nil
        }
    }

    public var bool: Bool? {
        guard case .bool(let value) = self else { return nil }
        return value
    }

    public var array: [JSONValue]? {
        guard case .array(let value) = self else { return nil }
        return value
    }

    public var object: JSONObject? {
        guard case .object(let value) = self else { return nil }
        return value
    }

    public var isNull: Bool { self == .null }

    /// The kind of this value, for error messages that must not show the value itself.
    public var kind: String {
        switch self {
        case .null: "null"
        case .bool: "boolean"
        case .integer, .double, .number: "number"
        case .string: "string"
        case .array: "array"
        case .object: "object"
        }
    }
}

/// `nil` is not a literal of this type. In an expression such as `value.isNull ? nil : value` it
/// would become `.null`, a present value, where absence is meant.
extension JSONValue: ExpressibleByStringLiteral, ExpressibleByStringInterpolation,
    ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral, ExpressibleByBooleanLiteral,
    ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral
{
    public init(stringLiteral value: String) { self = .string(value) }
    public init(integerLiteral value: Int64) { self = .integer(value) }
    public init(floatLiteral value: Double) { self = .double(value) }
    public init(booleanLiteral value: Bool) { self = .bool(value) }
    public init(arrayLiteral elements: JSONValue...) { self = .array(elements) }

    public init(dictionaryLiteral elements: (String, JSONValue)...) {
        self = .object(JSONObject(elements))
    }

    public init(_ value: Int) { self = .integer(Int64(value)) }
}

/// Why a string is not accepted as JSON. Gives the place and the expectation, never the content.
public struct JSONError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The expectation at `offset`.
    public enum Expectation: String, Sendable {
        case value = "expected a value"
        case key = "expected a key in quotes"
        case colon = "expected ':'"
        case commaOrBracket = "expected ',' or ']'"
        case commaOrBrace = "expected ',' or '}'"
        case end = "expected nothing after the value"
        case closingQuote = "expected the closing quote"
        case escape = "expected a valid escape"
        case escapedControl = "expected control characters to be escaped"
        case unicode = "expected valid UTF-8"
        case surrogatePair = "expected a whole surrogate pair"
        case digit = "expected a digit"
        case lessDepth = "nested too deeply"
        case fewerBytes = "too large"
        case fewerValues = "too many values"
        case fewerMarks = "too many combining marks in a row"
    }

    /// The first byte is 0.
    public let offset: Int
    /// The first line is 1.
    public let line: Int
    public let expected: Expectation

    public init(offset: Int, line: Int, expected: Expectation) {
        self.offset = offset
        self.line = line
        self.expected = expected
    }

    public var description: String { "line \(line), byte \(offset): \(expected.rawValue)" }
}
