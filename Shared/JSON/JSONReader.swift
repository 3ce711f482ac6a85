/// Reads a known shape from a JSON text in place, without building the tree: requested values are
/// read, others are validated and skipped.
///
/// Authority: none of its own. It uses the parser of `JSONValue.parse`, and accepts and refuses
/// exactly the same, with the same error. `object` calls its body for each of duplicate keys. So
/// the last one wins here, too, if the body assigns what it reads.
///
/// States: a value is current until one of the calls reads or skips it; each does so once. A typed
/// read of a value of another kind returns `nil` and skips it, as the tree's accessors do. After an
/// error every call throws it again.
///
/// Measured by `deploy/bench json`: five fields of the 600-byte record take 0.7 µs of CPU, and 2.2
/// by the tree; a number of each of a hundred partitions in 80 KB of statistics takes 81 µs, and
/// 470 by the tree. A reader pays off if a text is large and little of it is needed, as in
/// `KafkaStatistics`, which the loop reads each second. For a push request, which is needed whole,
/// it would only be longer to write. So it would be for a provider's answer: it has 60 bytes, and
/// its delivery takes 40 µs.
public struct JSONReader: ~Copyable {
    private var parser: JSONParser
    private var failure: JSONError?

    fileprivate init(_ parser: consuming JSONParser) { self.parser = parser }

    /// Reads one JSON text: `body` reads its value.
    ///
    /// - Parameters:
    ///   - bytes: UTF-8, without a BOM.
    ///   - maximumDepth: The most arrays and objects that may be open at once.
    ///   - maximumBytes: A longer text is refused unread.
    ///   - maximumValues: The most values in all, skipped ones included.
    ///   - body: Reads the value from the reader that it gets. An unread rest is skipped.
    /// - Returns: The result of `body`.
    /// - Throws: `JSONError` if `JSONValue.parse` would refuse the text, read or not.
    @discardableResult
    public static func read<Value>(
        _ bytes: [UInt8],
        maximumDepth: Int = 64,
        maximumBytes: Int = 16 << 20,
        maximumValues: Int = .max,
        _ body: (inout JSONReader) throws(JSONError) -> Value
    ) throws(JSONError) -> Value {
        guard bytes.count <= maximumBytes else {
            throw JSONError(offset: maximumBytes, line: 1, expected: .fewerBytes)
        }
        // A typed throw does not cross the pointer's closure, so the error is passed as a value.
        let result: Result<Value, JSONError> = unsafe bytes.withUnsafeBytes { buffer in
            guard let start = buffer.baseAddress else {
                return .failure(JSONError(offset: 0, line: 1, expected: .value))
            }
            var reader = JSONReader(
                unsafe JSONParser(
                    start: start,
                    count: buffer.count,
                    maximumDepth: maximumDepth,
                    maximumValues: maximumValues,
                    maximumMarks: JSONValue.maximumMarks
                )
            )
            do throws(JSONError) {
                return .success(try reader.document(body))
            } catch {
                return .failure(error)
            }
        }
        return try result.get()
    }

    /// Reads like `read`, for a `body` that stores its results. Reads for each request thus avoid
    /// the cost of types that are only known at run time.
    public static func visit(
        _ bytes: [UInt8],
        maximumDepth: Int = 64,
        maximumBytes: Int = 16 << 20,
        maximumValues: Int = .max,
        _ body: (inout JSONReader) throws(JSONError) -> Void
    ) throws(JSONError) {
        try read(
            bytes,
            maximumDepth: maximumDepth,
            maximumBytes: maximumBytes,
            maximumValues: maximumValues,
            body
        )
    }

    private mutating func document<Value>(
        _ body: (inout JSONReader) throws(JSONError) -> Value
    ) throws(JSONError) -> Value {
        parser.skipBlanks()
        let result = try value(body)
        try attempt { parser throws(JSONError) in try parser.end() }
        return result
    }

    /// Lets `body` read the current value. If it does not, the value is skipped.
    private mutating func value<Value>(
        _ body: (inout JSONReader) throws(JSONError) -> Value
    ) throws(JSONError) -> Value {
        let start = parser.position
        let result = try body(&self)
        if let failure { throw failure }
        if parser.position == start { try skip() }
        return result
    }

    private mutating func attempt<Value: ~Copyable>(
        _ step: (inout JSONParser) throws(JSONError) -> Value
    ) throws(JSONError) -> Value {
        if let failure { throw failure }
        do throws(JSONError) {
            return try step(&parser)
        } catch {
            failure = error
            throw error
        }
    }

    // MARK: The current value

    /// The kind of a value, by its first byte; `none` does not begin a value.
    public enum Kind: Sendable { case object, array, string, number, boolean, null, none }

    public var kind: Kind { parser.kind }

    /// Skips the current value, whatever it is.
    public mutating func skip() throws(JSONError) {
        try attempt { parser throws(JSONError) in try parser.skip() }
    }

    /// Reads the current value as a tree.
    public mutating func tree() throws(JSONError) -> JSONValue {
        try attempt { parser throws(JSONError) in try parser.value() }
    }

    /// Skips the current value; returns its range, to be read as a text of its own.
    public mutating func slice() throws(JSONError) -> Range<Int> {
        let start = parser.position
        try skip()
        return start..<parser.position
    }

    /// Reads the current string; `nil` for anything else.
    public mutating func string() throws(JSONError) -> String? {
        guard kind == .string else { return try other() }
        return try attempt { parser throws(JSONError) in try parser.quotedString() }
    }

    /// Reads the current number, if it is whole and fits `Int`: `1` and `1.0`, never `1.5`.
    public mutating func integer() throws(JSONError) -> Int? { try number()?.integer }

    /// Reads the current number, to the nearest `Double`; `nil` if that would be infinite.
    public mutating func double() throws(JSONError) -> Double? { try number()?.double }

    private mutating func number() throws(JSONError) -> JSONValue? {
        guard kind == .number else { return try other() }
        return try tree()
    }

    /// Reads the current boolean; `nil` for anything else.
    public mutating func bool() throws(JSONError) -> Bool? {
        guard kind == .boolean else { return try other() }
        return try tree().bool
    }

    /// Reads the current value; returns whether it is `null`.
    public mutating func null() throws(JSONError) -> Bool {
        guard kind == .null else { return try other() ?? false }
        return try tree().isNull
    }

    private mutating func other<Value>() throws(JSONError) -> Value? {
        try skip()
        return nil
    }

    /// Calls `member` for each member of the current object, in their order, with the key; the
    /// value is current in the reader.
    ///
    /// - Returns: False if this is not an object.
    @discardableResult
    public mutating func object(
        _ member: (borrowing JSONKey, inout JSONReader) throws(JSONError) -> Void
    ) throws(JSONError) -> Bool {
        guard kind == .object else { return try other() ?? false }
        var goesOn = try attempt { parser throws(JSONError) in try parser.enterObject() }
        while goesOn {
            let key = try attempt { parser throws(JSONError) in try parser.key() }
            try value { reader throws(JSONError) in try member(key, &reader) }
            goesOn = try attempt { parser throws(JSONError) in try parser.nextMember() }
        }
        return true
    }

    /// Calls `element` for each element of the current array, which is current in the reader.
    ///
    /// - Returns: False if this is not an array.
    @discardableResult
    public mutating func array(
        _ element: (inout JSONReader) throws(JSONError) -> Void
    ) throws(JSONError) -> Bool {
        guard kind == .array else { return try other() ?? false }
        var goesOn = try attempt { parser throws(JSONError) in try parser.enterArray() }
        while goesOn {
            try value(element)
            goesOn = try attempt { parser throws(JSONError) in try parser.nextElement() }
        }
        return true
    }
}

/// The key of a member, in place in the text: comparing it makes no string.
@safe
public struct JSONKey: ~Copyable {
    private let bytes: UnsafeRawBufferPointer
    /// The decoded key, if its text has escapes.
    private let decoded: String?

    init(_ bytes: UnsafeRawBufferPointer, decoded: String?) {
        unsafe self.bytes = bytes
        self.decoded = decoded
    }

    /// The number of UTF-8 bytes of the key.
    public var byteCount: Int {
        if let decoded { return decoded.utf8.count }
        return unsafe bytes.count
    }

    /// Whether the key has exactly these bytes.
    public func isEqual(to name: StaticString) -> Bool {
        if let decoded {
            return name.withUTF8Buffer { unsafe decoded.utf8.elementsEqual($0) }
        }
        let count = name.utf8CodeUnitCount
        guard unsafe bytes.count == count else { return false }
        let wanted = unsafe UnsafeRawBufferPointer(start: name.utf8Start, count: count)
        return unsafe firstDifference(bytes, wanted, count) == count
    }

    public var text: String {
        if let decoded { return decoded }
        return unsafe String(decoding: bytes, as: UTF8.self)
    }
}
