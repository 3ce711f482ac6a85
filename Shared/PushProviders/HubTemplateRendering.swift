package import JSON
package import PushCore

/// One device's template, to be filled with the values of a send. Pure.
package struct DeviceTemplate: Sendable {
    private let body: String
    private let headers: JSONObject
    private let expiry: String?

    /// Reads the installation's stored template: an object of `body`, `headers` and `expiry`.
    package init(stored: String) throws(RenderingError) {
        guard let object = (try? JSONValue.parse(Array(stored.utf8)))?.object,
            let body = object["body"]?.string
        else { throw .invalid(field: "the device's template", problem: "cannot be read") }
        self.body = body
        headers = object["headers"]?.object ?? [:]
        expiry = object["expiry"]?.string
    }

    /// Returns the message for one platform, in the form of a native push.
    package func native(
        for platform: Platform,
        _ properties: ExactStringMap<String>,
        now: Instant
    ) throws(RenderingError) -> PushRequest.NativePayloads {
        // Headers and the expiry may be expressions, as strings of the body may.
        var room = HubExpression.maximumBytes
        func filled(_ text: String) -> String {
            HubExpression(text)?.text(properties, room: &room) ?? text
        }
        let expiry = expiry.map(filled)
        // Earlier versions stored the time as it was given. A time without a zone is in UTC.
        let expiresAt = expiry.flatMap { Instant(iso8601: $0) ?? Instant(iso8601: $0 + "Z") }
        if let expiresAt, expiresAt <= now {
            throw .expiredTemplate
        }
        var headers = headers
        for (name, value) in headers { headers[name] = value.string.map { .string(filled($0)) } }
        guard room >= 0 else { throw Self.tooLarge }
        // Send now or never.
        if platform == .apns, expiry == "0", headers["apns-expiration"] == nil {
            headers["apns-expiration"] = "0"
        }
        var native = PushRequest.NativePayloads()
        switch platform {
        case .apns:
            native.apns = ["headers": .object(headers), "payload": .object(try json(properties))]
        case .fcm:
            let filled = try json(properties)
            if filled["message"]?.object != nil {
                native.fcm = filled
            } else {
                do throws(GCMMessage.Problem) {
                    native.fcm = ["message": .object(try GCMMessage.message(from: filled))]
                } catch {
                    throw .invalid(
                        field: "the device's template: \(error.field)",
                        problem: error.problem
                    )
                }
            }
        case .wns:
            let type = Self.take("x-wns-type", from: &headers)
            let text = try text(properties)
            native.wns = [
                "type": .string(type ?? WindowsPayload.type(of: text) ?? "wns/raw"),
                "headers": .object(headers), "body": .string(text),
            ]
        case .mpns:
            native.mpns = [
                "headers": .object(headers), "body": .string(try text(properties)),
            ]
        // Templates cannot be registered for a connection.
        case .connection: throw .noContent(.connection)
        }
        return native
    }

    private static func take(_ name: String, from headers: inout JSONObject) -> String? {
        guard let key = headers.keys.first(where: { $0.lowercased() == name }) else { return nil }
        return headers.removeValue(forKey: key)?.string
    }

    private func json(_ properties: ExactStringMap<String>) throws(RenderingError) -> JSONObject {
        guard let value = try? JSONValue.parse(Array(body.utf8)), value.object != nil else {
            throw .invalid(field: "the device's template", problem: "must be a JSON object")
        }
        guard let filled = HubExpression.fill(value, properties)?.object else {
            throw Self.tooLarge
        }
        return filled
    }

    private static let tooLarge = RenderingError.invalid(
        field: "the device's template",
        problem: "becomes too large for any push service"
    )

    /// Fills the body: XML, JSON, or a single expression.
    private func text(_ properties: ExactStringMap<String>) throws(RenderingError) -> String {
        if body.unicodeScalars.first(where: { !$0.properties.isWhitespace }) == "<" {
            guard let filled = HubExpression.fill(xml: body, properties) else {
                throw .invalid(
                    field: "the device's template",
                    problem: "must be XML, and not become too large for any push service"
                )
            }
            return filled
        }
        var room = HubExpression.maximumBytes
        if let value = try? JSONValue.parse(Array(body.utf8)), value.string == nil {
            guard let filled = HubExpression.fill(value, properties) else { throw Self.tooLarge }
            return filled.text
        }
        let text = HubExpression(body)?.text(properties, room: &room) ?? body
        guard room >= 0 else { throw Self.tooLarge }
        return text
    }
}

/// A string value of a template that is one expression.
struct HubExpression: Equatable {
    enum Part: Equatable {
        case literal(String)
        case property(String, Form)
    }

    enum Form: Equatable {
        case plain
        case first(Int)
        case clipped(Int)
        case percentEncoded
        case number
    }

    private var parts: [Part]
    private var isJoined: Bool

    /// - Returns: `nil` if the string is not an expression.
    init?(_ text: String) {
        var reader = ExpressionReader(text)
        guard let (parts, isJoined) = reader.whole() else { return nil }
        self.parts = parts
        self.isJoined = isJoined
    }

    /// The most bytes of all inserted values of one template. No provider accepts more.
    static let maximumBytes = 16 * 1024

    /// Returns the filled string. Stops early when `room` is negative, as the limit is exceeded.
    func text(_ properties: ExactStringMap<String>, room: inout Int) -> String {
        var result = ""
        for part in parts where room >= 0 {
            let text =
                switch part {
                case .literal(let text): text
                case .property(let name, let form): form.applied(to: properties[name] ?? "")
                }
            room -= text.utf8.count
            result += text
        }
        return result
    }

    /// Returns the value in a JSON template. It is a number if the expression requests one and the
    /// value is a number.
    private func value(_ properties: ExactStringMap<String>, room: inout Int) -> JSONValue {
        if !isJoined, parts.count == 1, case .property(let name, .number) = parts[0],
            let text = properties[name], Self.isNumber(text)
        {
            room -= text.utf8.count
            return .number(text)
        }
        return .string(text(properties, room: &room))
    }

    /// Whether the string is a number in JSON's form, without a sign.
    private static func isNumber(_ text: String) -> Bool {
        guard let first = text.utf8.first, (48...57).contains(first),
            let value = try? JSONValue.parse(Array(text.utf8))
        else { return false }
        switch value {
        case .integer, .double, .number: return text.utf8.last.map { $0 > 0x20 } ?? false
        case .null, .bool, .string, .array, .object: return false
        }
    }

    // MARK: Templates

    /// Fills a JSON template. Only its string values are expressions.
    ///
    /// - Returns: `nil` if the values exceed `maximumBytes`.
    static func fill(_ value: JSONValue, _ properties: ExactStringMap<String>) -> JSONValue? {
        var room = maximumBytes
        let filled = fill(value, properties, room: &room)
        guard room >= 0 else { return nil }
        return filled
    }

    private static func fill(
        _ value: JSONValue,
        _ properties: ExactStringMap<String>,
        room: inout Int
    ) -> JSONValue {
        guard room >= 0 else { return value }
        switch value {
        case .string(let text):
            return HubExpression(text)?.value(properties, room: &room) ?? value
        case .array(let elements):
            var filled: [JSONValue] = []
            for element in elements { filled.append(fill(element, properties, room: &room)) }
            return .array(filled)
        case .object(var object):
            for (key, value) in object { object[key] = fill(value, properties, room: &room) }
            return .object(object)
        case .null, .bool, .integer, .double, .number: return value
        }
    }

    /// Fills an XML template. The text of its elements and its attributes are expressions.
    ///
    /// - Returns: `nil` if it is not XML or declares a document type, or if the values exceed
    ///   `maximumBytes`.
    static func fill(xml: String, _ properties: ExactStringMap<String>) -> String? {
        var room = maximumBytes
        var result = ""
        var rest = xml[...]
        while let open = rest.firstIndex(of: "<") {
            result += filled(run: rest[..<open], properties, room: &room)
            guard room >= 0 else { return nil }
            rest = rest[open...]
            var end: Substring.Index?
            if rest.hasPrefix("<!--") {
                end = rest.firstRange(of: "-->")?.upperBound
            } else if rest.hasPrefix("<![CDATA[") {
                end = rest.firstRange(of: "]]>")?.upperBound
            } else if rest.hasPrefix("<?") {
                end = rest.firstRange(of: "?>")?.upperBound
            } else if rest.hasPrefix("<!") {
                return nil
            } else {
                guard let (tag, after) = filled(tag: rest, properties, room: &room) else {
                    return nil
                }
                result += tag
                rest = rest[after...]
                continue
            }
            guard let end else { return nil }
            result += rest[..<end]
            rest = rest[end...]
        }
        return result + rest
    }

    /// Fills character data. Blanks at its start and end stay.
    private static func filled(
        run: Substring,
        _ properties: ExactStringMap<String>,
        room: inout Int
    ) -> String {
        let inner = run.drop { $0.isWhitespace }
        let head = run[..<inner.startIndex]
        let last = inner.lastIndex { !$0.isWhitespace }
        guard let last else { return String(run) }
        let text = inner[...last]
        guard let expression = HubExpression(unescaped(text)) else { return String(run) }
        let filled = xmlEscaped(expression.text(properties, room: &room))
        return head + filled + inner[inner.index(after: last)...]
    }

    /// Fills the attributes of a tag. Returns the tag and the position after it.
    private static func filled(
        tag: Substring,
        _ properties: ExactStringMap<String>,
        room: inout Int
    ) -> (String, Substring.Index)? {
        var result = ""
        var index = tag.startIndex
        while index < tag.endIndex {
            let character = tag[index]
            let next = tag.index(after: index)
            guard character == "\"" || character == "'" else {
                result.append(character)
                index = next
                if character == ">" { return (result, index) }
                continue
            }
            guard let close = tag[next...].firstIndex(of: character) else { return nil }
            let value = tag[next..<close]
            result.append(character)
            if let expression = HubExpression(unescaped(value)) {
                result += xmlEscaped(expression.text(properties, room: &room))
                guard room >= 0 else { return nil }
            } else {
                result += value
            }
            result.append(character)
            index = tag.index(after: close)
        }
        return nil
    }

    private static func unescaped(_ text: Substring) -> String {
        guard text.contains("&") else { return String(text) }
        var result = String(text)
        for (name, character) in [
            ("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#39;", "'"),
            ("&amp;", "&"),
        ] {
            result = result.split(separator: name, omittingEmptySubsequences: false)
                .joined(separator: character)
        }
        return result
    }
}

extension HubExpression.Form {
    func applied(to value: String) -> String {
        switch self {
        case .plain, .number: return value
        case .first(let count): return String(value.prefix(count))
        case .clipped(let count):
            // Reads only as far as needed, as a template may clip one long value many times.
            let end = value.index(value.startIndex, offsetBy: count, limitedBy: value.endIndex)
            guard let end, end < value.endIndex else { return value }
            let dots = String(repeating: ".", count: min(3, count))
            return value.prefix(count - dots.count) + dots
        case .percentEncoded:
            var result = ""
            for byte in value.utf8 {
                let isPlain = ASCII.isAlphanumeric(byte) || "-._~".utf8.contains(byte)
                if isPlain {
                    result.unicodeScalars.append(Unicode.Scalar(byte))
                } else {
                    let digits = String(byte, radix: 16, uppercase: true)
                    result += "%" + (digits.count == 1 ? "0" : "") + digits
                }
            }
            return result
        }
    }
}

/// A parser of an expression.
private struct ExpressionReader {
    private let characters: [Character]
    private var index = 0

    init(_ text: String) { characters = Array(text) }

    private var next: Character? { index < characters.count ? characters[index] : nil }

    private mutating func skipBlanks() {
        while next?.isWhitespace == true { index += 1 }
    }

    private mutating func take(_ character: Character) -> Bool {
        guard next == character else { return false }
        index += 1
        return true
    }

    mutating func whole() -> (parts: [HubExpression.Part], isJoined: Bool)? {
        skipBlanks()
        let isJoined = take("{")
        var parts: [HubExpression.Part] = []
        if isJoined {
            repeat {
                skipBlanks()
                guard let part = operand() else { return nil }
                parts.append(part)
                skipBlanks()
            } while take("+")
            guard take("}") else { return nil }
        } else {
            guard let part = operand() else { return nil }
            parts = [part]
        }
        skipBlanks()
        return next == nil ? (parts, isJoined) : nil
    }

    private mutating func operand() -> HubExpression.Part? {
        guard let mark = next else { return nil }
        index += 1
        switch mark {
        case "'", "\"": return literal(until: mark)
        case "$", ".", "%", "#": return property(mark)
        default: return nil
        }
    }

    private mutating func literal(until quote: Character) -> HubExpression.Part? {
        var text = ""
        while let character = next, character != quote {
            text.append(character)
            index += 1
        }
        return take(quote) ? .literal(text) : nil
    }

    private mutating func property(_ mark: Character) -> HubExpression.Part? {
        guard take("(") else { return nil }
        var name = ""
        while let character = next, character != ")", character != "," {
            guard !"('\"{}".contains(character) else { return nil }
            name.append(character)
            index += 1
        }
        name = name.trimmedBlanks.lowercased()
        guard !name.isEmpty else { return nil }
        var count: Int?
        if take(",") {
            skipBlanks()
            var digits = ""
            while let character = next, character.isASCII, character.isNumber {
                digits.append(character)
                index += 1
            }
            skipBlanks()
            guard let number = Int(digits) else { return nil }
            count = number
        }
        guard take(")") else { return nil }
        switch (mark, count) {
        case ("$", nil): return .property(name, .plain)
        case ("$", let count?): return .property(name, .first(count))
        case (".", let count?): return .property(name, .clipped(count))
        case ("%", nil): return .property(name, .percentEncoded)
        case ("#", nil): return .property(name, .number)
        default: return nil
        }
    }
}

extension String {
    fileprivate var trimmedBlanks: String {
        let inner = drop { $0.isWhitespace }
        guard let last = inner.lastIndex(where: { !$0.isWhitespace }) else { return "" }
        return String(inner[...last])
    }
}
