package import JSON

/// A `select` in LeanCloud's CQL, which has the conditions of a `where` in words. Pure, with the
/// same bounds as a `where`. Errors name the parts that are not supported.
///
/// `select *|f1,f2|count(*) from Class [where …] [limit [skip,]n] [order by f [asc|desc],…]`
package struct CQLQuery: Sendable, Equatable {
    package var className: String
    package var condition: Where
    /// The selected fields; empty for all fields.
    package var keys: [String]
    package var order: [SortKey]
    package var limit: Int?
    package var skip: Int
    package var isCount: Bool

    package static let maximumBytes = 16 * 1024
    package static let maximumValues = 1000

    /// Parses a query. Each `?` stands for the next of `values`, and all values must be used.
    /// Throws a `CQLError`: of code 300, or for an invalid condition of the code that a `where`
    /// has.
    package static func parse(
        _ text: String,
        values: [JSONValue] = []
    ) throws(CQLError) -> CQLQuery {
        guard text.utf8.count <= maximumBytes else {
            throw CQLError("a query has at most \(maximumBytes) bytes")
        }
        guard values.count <= maximumValues else {
            throw CQLError("there are at most \(maximumValues) values for ?")
        }
        var reader = CQLReader(tokens: try CQLToken.read(text), values: values)
        return try reader.select()
    }

    /// Replaces the values of a query that are quoted strings. A query that cannot be parsed is
    /// returned unchanged.
    ///
    /// - Parameters:
    ///   - text: A query.
    ///   - replacement: Returns the new string for a value; `nil` to leave the value.
    /// - Returns: The query with these strings replaced.
    package static func replacing(
        in text: String,
        _ replacement: (String) -> String?
    ) -> String {
        let bytes = Array(text.utf8)
        var lexer = CQLLexer(bytes)
        var (result, copied): ([UInt8], Int) = ([], 0)
        while let start = lexer.start(), let token = try? lexer.next() {
            guard case .string(let value) = token, let other = replacement(value) else { continue }
            let quote = bytes[start]
            result += bytes[copied..<start] + [quote]
            for byte in other.utf8 {
                if byte == quote || byte == UInt8(ascii: "\\") {
                    result.append(UInt8(ascii: "\\"))
                }
                result.append(byte)
            }
            result.append(quote)
            copied = lexer.position
        }
        return String(decoding: result + bytes[copied...], as: UTF8.self)
    }
}

/// The reason why a CQL query is invalid. Names words of the language, never contains a value.
package struct CQLError: Error, Equatable, Sendable, CustomStringConvertible {
    package let code: Int
    package let description: String

    init(_ problem: String) {
        code = 300
        description = "CQL: \(problem)"
    }

    init(_ error: WhereError) {
        code = error.code
        description = error.description
    }
}

private enum CQLToken: Equatable {
    /// A keyword or a name.
    case word(String)
    case string(String)
    case number(JSONValue)
    case mark(String)

    static func read(_ text: String) throws(CQLError) -> [CQLToken] {
        var lexer = CQLLexer(Array(text.utf8))
        var tokens: [CQLToken] = []
        while let token = try lexer.next() { tokens.append(token) }
        return tokens
    }

    /// The token as an error shows it, without values.
    var shown: String {
        switch self {
        case .word(let word): String(word.prefix(50))
        case .string: "a text"
        case .number: "a number"
        case .mark(let mark): mark
        }
    }
}

private struct CQLLexer {
    private let bytes: [UInt8]
    private(set) var position = 0

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    private var current: UInt8? { position < bytes.count ? bytes[position] : nil }

    /// Skips blanks.
    ///
    /// - Returns: The position of the next token; `nil` at the end.
    mutating func start() -> Int? {
        while let byte = current, [0x20, 0x09, 0x0a, 0x0d].contains(byte) { position += 1 }
        return position < bytes.count ? position : nil
    }

    mutating func next() throws(CQLError) -> CQLToken? {
        guard start() != nil, let byte = current else { return nil }
        switch byte {
        case UInt8(ascii: "'"), UInt8(ascii: "\""): return .string(try quoted(by: byte))
        case UInt8(ascii: "`"): return .word(try quoted(by: byte))
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "+"):
            return try number()
        case _ where ASCII.isLetter(byte) || byte == UInt8(ascii: "_"): return .word(word())
        default: return try mark()
        }
    }

    private mutating func word() -> String {
        let start = position
        while let byte = current,
            ASCII.isAlphanumeric(byte) || byte == UInt8(ascii: "_") || byte == UInt8(ascii: ".")
        {
            position += 1
        }
        return String(decoding: bytes[start..<position], as: UTF8.self)
    }

    /// Reads a quoted string. `\` escapes the next character, and a doubled quote is one quote.
    private mutating func quoted(by quote: UInt8) throws(CQLError) -> String {
        position += 1
        var result: [UInt8] = []
        while let byte = current {
            position += 1
            if byte == UInt8(ascii: "\\"), let escaped = current {
                // Patterns need their backslashes, so only quotes and backslashes are unescaped.
                if escaped == quote || escaped == UInt8(ascii: "\\") {
                    result.append(escaped)
                    position += 1
                } else {
                    result.append(byte)
                }
            } else if byte == quote {
                guard current == quote else { return String(decoding: result, as: UTF8.self) }
                result.append(quote)
                position += 1
            } else {
                result.append(byte)
            }
        }
        throw CQLError("a text has no end")
    }

    private mutating func number() throws(CQLError) -> CQLToken {
        let start = position
        position += 1
        while let byte = current,
            ASCII.isAlphanumeric(byte) || byte == UInt8(ascii: ".")
                || [UInt8(ascii: "e"), UInt8(ascii: "E")].contains(bytes[position - 1])
                    && [UInt8(ascii: "-"), UInt8(ascii: "+")].contains(byte)
        {
            position += 1
        }
        var text = String(decoding: bytes[start..<position], as: UTF8.self)
        if text.first == "+" { text.removeFirst() }
        guard let value = try? JSONValue.parse(text), value.double != nil else {
            throw CQLError("a number cannot be read")
        }
        return .number(value)
    }

    private mutating func mark() throws(CQLError) -> CQLToken {
        for mark in ["!=", "<>", "<=", ">=", "(", ")", ",", "=", "<", ">", "*", "?"]
        where bytes[position...].starts(with: mark.utf8) {
            position += mark.utf8.count
            return .mark(mark)
        }
        throw CQLError("an unexpected character at byte \(position)")
    }
}

private struct CQLReader {
    private let tokens: [CQLToken]
    private let values: [JSONValue]
    private var position = 0
    private var valuesUsed = 0

    init(tokens: [CQLToken], values: [JSONValue]) {
        self.tokens = tokens
        self.values = values
    }

    // MARK: Tokens

    private func peek(_ ahead: Int = 0) -> CQLToken? {
        position + ahead < tokens.count ? tokens[position + ahead] : nil
    }

    private func isWord(_ word: String, ahead: Int = 0) -> Bool {
        guard case .word(let found)? = peek(ahead) else { return false }
        return found.lowercased() == word
    }

    private mutating func take(word: String) -> Bool {
        guard isWord(word) else { return false }
        position += 1
        return true
    }

    private mutating func take(_ mark: String) -> Bool {
        guard peek() == .mark(mark) else { return false }
        position += 1
        return true
    }

    private func unexpected(_ expected: String) -> CQLError {
        CQLError("expected \(expected), not \(peek()?.shown ?? "the end")")
    }

    private mutating func require(word: String) throws(CQLError) {
        guard take(word: word) else { throw unexpected(word) }
    }

    private mutating func require(_ mark: String) throws(CQLError) {
        guard take(mark) else { throw unexpected(mark) }
    }

    private mutating func name() throws(CQLError) -> String {
        guard case .word(let word)? = peek() else { throw unexpected("a name") }
        position += 1
        return word
    }

    // MARK: The query

    mutating func select() throws(CQLError) -> CQLQuery {
        guard take(word: "select") else {
            if case .word(let word)? = peek() {
                throw CQLError("\(word.prefix(50)) is not supported, only select")
            }
            throw unexpected("select")
        }
        var keys: [String] = []
        var isCount = false
        if isWord("count"), peek(1) == .mark("(") {
            position += 2
            if !take("*") { _ = try name() }
            try require(")")
            isCount = true
        } else {
            repeat {
                if take("*") {
                    keys = []
                    continue
                }
                guard !isWord("include") else { throw CQLError("include is not supported") }
                let key = try name()
                guard peek() != .mark("(") else {
                    throw CQLError("\(key.prefix(50))() is not supported in what is selected")
                }
                keys.append(key)
            } while take(",")
        }
        try require(word: "from")
        let className = try name()
        let condition = take(word: "where") ? try or(depth: 1) : [:]
        var query = CQLQuery(
            className: className,
            condition: .everything,
            keys: keys,
            order: [],
            limit: nil,
            skip: 0,
            isCount: isCount
        )
        try readEnd(of: &query)
        guard valuesUsed == values.count else {
            throw CQLError("\(values.count) values are given for \(valuesUsed) ?")
        }
        do throws(WhereError) {
            query.condition = try Where.parse(condition)
        } catch {
            throw CQLError(error)
        }
        return query
    }

    private mutating func readEnd(of query: inout CQLQuery) throws(CQLError) {
        while peek() != nil {
            if query.limit == nil, take(word: "limit") {
                let first = try wholeNumber()
                query.limit = first
                if take(",") {
                    query.skip = first
                    query.limit = try wholeNumber()
                }
            } else if query.order.isEmpty, take(word: "order") {
                try require(word: "by")
                repeat {
                    let path = try path()
                    let isDescending = take(word: "desc")
                    if !isDescending { _ = take(word: "asc") }
                    query.order.append(SortKey(path: path, isDescending: isDescending))
                } while take(",")
                guard query.order.count <= SortKey.maximumKeys else {
                    throw CQLError("at most \(SortKey.maximumKeys) keys in order by")
                }
            } else {
                throw unexpected("limit, order by or the end")
            }
        }
    }

    private mutating func wholeNumber() throws(CQLError) -> Int {
        guard let number = try value(depth: 1).integer, number >= 0 else {
            throw CQLError("limit takes whole numbers, 0 or more")
        }
        return number
    }

    private mutating func path() throws(CQLError) -> WherePath {
        let name = try name()
        do throws(WhereError) {
            return try WherePath(name)
        } catch {
            throw CQLError(error)
        }
    }

    // MARK: Conditions, as a `where`

    private mutating func or(depth: Int) throws(CQLError) -> JSONValue {
        var parts = [try and(depth: depth)]
        while take(word: "or") { parts.append(try and(depth: depth)) }
        return parts.count == 1 ? parts[0] : ["$or": .array(parts)]
    }

    private mutating func and(depth: Int) throws(CQLError) -> JSONValue {
        var parts = [try term(depth: depth)]
        while take(word: "and") { parts.append(try term(depth: depth)) }
        return parts.count == 1 ? parts[0] : ["$and": .array(parts)]
    }

    private mutating func term(depth: Int) throws(CQLError) -> JSONValue {
        guard depth <= Where.maximumDepth else { throw CQLError("nested too deeply") }
        if take("(") {
            guard !isWord("select") else { throw CQLError("a sub-select is not supported") }
            let inner = try or(depth: depth + 1)
            try require(")")
            return inner
        }
        let name = try name()
        if peek() == .mark("(") {
            guard name.lowercased() == "size" else {
                throw CQLError("the function \(name.prefix(50)) is not supported")
            }
            position += 1
            let field = try self.name()
            try require(")")
            try require("=")
            return test(field, "$size", try value(depth: depth))
        }
        return try predicate(of: name, depth: depth)
    }

    private func test(_ field: String, _ operation: String, _ operand: JSONValue) -> JSONValue {
        let test = JSONValue.object(JSONObject([(operation, operand)]))
        return .object(JSONObject([(field, test)]))
    }

    private static let comparisons = [
        "=": "$eq", "!=": "$ne", "<>": "$ne", "<": "$lt", "<=": "$lte", ">": "$gt", ">=": "$gte",
    ]

    private mutating func predicate(of field: String, depth: Int) throws(CQLError) -> JSONValue {
        if case .mark(let mark)? = peek(), let operation = Self.comparisons[mark] {
            position += 1
            return test(field, operation, try value(depth: depth))
        }
        if take(word: "in") { return test(field, "$in", try list(depth: depth)) }
        if isWord("not"), isWord("in", ahead: 1) {
            position += 2
            return test(field, "$nin", try list(depth: depth))
        }
        if take(word: "all") { return test(field, "$all", try list(depth: depth)) }
        if take(word: "is") {
            let isNegated = take(word: "not")
            try require(word: "exists")
            return test(field, "$exists", .bool(!isNegated))
        }
        if take(word: "like") {
            guard let text = try value(depth: depth).string else {
                throw CQLError("like takes a text")
            }
            let test: JSONValue = [
                "$regex": .string(Self.pattern(like: text)), "$options": "s",
            ]
            return .object(JSONObject([(field, test)]))
        }
        if take(word: "regexp") {
            guard let text = try value(depth: depth).string else {
                throw CQLError("regexp takes a text")
            }
            return test(field, "$regex", .string(text))
        }
        guard case .word(let word)? = peek() else { throw unexpected("a comparison") }
        throw CQLError("\(word.prefix(50)) is not supported")
    }

    /// Converts a LIKE pattern: `%` matches any string, and all other characters match themselves.
    private static func pattern(like text: String) -> String {
        let parts = text.split(separator: "%", omittingEmptySubsequences: false).map { part in
            part.isEmpty ? "" : "\\Q" + quoted(part) + "\\E"
        }
        return "^" + parts.joined(separator: ".*") + "$"
    }

    /// Quotes a string as SDKs do. A `\E` in the string is moved outside of the quotation: the
    /// quotation ends, `\E` is escaped, and a new quotation begins.
    private static func quoted(_ text: Substring) -> String {
        var result = ""
        var previous: Character = " "
        for character in text {
            result.append(character)
            if previous == "\\", character == "E" { result += "\\\\E\\Q" }
            previous = character
        }
        return result
    }

    // MARK: Values

    private mutating func list(depth: Int) throws(CQLError) -> JSONValue {
        if peek() == .mark("?") {
            let value = try value(depth: depth)
            guard value.array != nil else { throw CQLError("expected a list for ?") }
            return value
        }
        guard take("(") else { throw unexpected("a list in parentheses") }
        guard !isWord("select") else { throw CQLError("a sub-select is not supported") }
        var elements: [JSONValue] = []
        if take(")") { return .array([]) }
        repeat { elements.append(try value(depth: depth)) } while take(",")
        try require(")")
        return .array(elements)
    }

    private mutating func value(depth: Int) throws(CQLError) -> JSONValue {
        guard depth <= Where.maximumDepth else { throw CQLError("nested too deeply") }
        guard let token = peek() else { throw unexpected("a value") }
        position += 1
        switch token {
        case .string(let text): return .string(text)
        case .number(let number): return number
        case .mark("?"):
            guard valuesUsed < values.count else { throw CQLError("a ? has no value") }
            valuesUsed += 1
            return values[valuesUsed - 1]
        case .mark("(") where isWord("select"), .word("select"), .word("SELECT"):
            throw CQLError("a sub-select is not supported")
        case .word(let word):
            switch word.lowercased() {
            case "true": return true
            case "false": return false
            case "null": return .null
            case let name where peek() == .mark("("): return try call(name, depth: depth)
            default: throw CQLError("expected a value, not \(word.prefix(50))")
            }
        case .mark(let mark): throw CQLError("expected a value, not \(mark)")
        }
    }

    private mutating func call(_ name: String, depth: Int) throws(CQLError) -> JSONValue {
        try require("(")
        var arguments: [JSONValue] = []
        if peek() != .mark(")") {
            repeat { arguments.append(try value(depth: depth + 1)) } while take(",")
        }
        try require(")")
        switch (name, arguments.count) {
        case ("date", 1): return ["__type": "Date", "iso": arguments[0]]
        case ("pointer", 2):
            return ["__type": "Pointer", "className": arguments[0], "objectId": arguments[1]]
        case ("geopoint", 2):
            return ["__type": "GeoPoint", "latitude": arguments[0], "longitude": arguments[1]]
        case ("date", _), ("pointer", _), ("geopoint", _):
            throw CQLError("\(name) has a wrong number of arguments")
        default: throw CQLError("the function \(name.prefix(50)) is not supported")
        }
    }
}
