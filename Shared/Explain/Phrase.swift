package import JSON
package import PushCore

/// A text with named values: the English template is the key by which a page finds its translation.
package struct Phrase: Sendable, Equatable, ExpressibleByStringLiteral {
    /// A value of a phrase. A page formats it by its own language and time zone.
    package enum Value: Sendable, Equatable {
        case text(String)
        case count(Int)
        case time(Instant)
        case milliseconds(Int64)
        case flag(Bool)
        /// A phrase within a phrase.
        case phrase(Phrase)
    }

    /// English, with `{name}` for each value.
    package let template: String
    package let values: [Named]

    package struct Named: Sendable, Equatable {
        package let name: String
        package let value: Value
    }

    package init(_ template: String, _ values: KeyValuePairs<String, Value> = [:]) {
        self.template = template
        self.values = values.map { Named(name: $0.key, value: $0.value) }
    }

    package init(stringLiteral template: String) { self.init(template) }

    /// The English text. Times are in UTC.
    package var text: String {
        var text = ""
        var rest = template[...]
        while let open = rest.firstIndex(of: "{") {
            guard let close = rest[open...].firstIndex(of: "}") else { break }
            text += rest[..<open]
            let name = String(rest[rest.index(after: open)..<close])
            let value = values.first { $0.name == name }?.value
            text += value?.text ?? "{\(name)}"
            rest = rest[rest.index(after: close)...]
        }
        return text + rest
    }

    /// The values by name, times as ISO 8601.
    package var json: JSONObject {
        JSONObject(values.map { ($0.name, $0.value.json) })
    }
}

extension Phrase.Value {
    /// The English text.
    package var text: String {
        switch self {
        case .text(let text): text
        case .count(let count): String(count)
        case .time(let time): Self.text(of: time)
        case .milliseconds(let milliseconds): Self.text(ofMilliseconds: milliseconds)
        case .flag(let isTrue): isTrue ? "yes" : "no"
        case .phrase(let phrase): phrase.text
        }
    }

    package var json: JSONValue {
        switch self {
        case .text(let text): .string(text)
        case .count(let count): JSONValue(count)
        case .time(let time): .string(time.iso8601)
        case .milliseconds(let milliseconds): .integer(milliseconds)
        case .flag(let isTrue): .bool(isTrue)
        case .phrase(let phrase): .string(phrase.text)
        }
    }

    /// Formats a time to the second: `2026-11-28 14:00:02 UTC`.
    private static func text(of time: Instant) -> String {
        let text = time.iso8601
        return "\(text.prefix(10)) \(text.dropFirst(11).prefix(8)) UTC"
    }

    /// Formats a period by its two largest units: `4 min 12 s`.
    private static func text(ofMilliseconds milliseconds: Int64) -> String {
        let milliseconds = abs(milliseconds)
        guard milliseconds >= 1000 else { return "\(milliseconds) ms" }
        var rest = milliseconds / 1000
        var parts: [String] = []
        for (unit, seconds) in [("d", Int64(86_400)), ("h", 3600), ("min", 60), ("s", 1)] {
            let count = rest / seconds
            rest %= seconds
            if count > 0 { parts.append("\(count) \(unit)") }
        }
        return parts.prefix(2).joined(separator: " ")
    }
}
