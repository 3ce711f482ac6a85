/// Markup that escapes by construction.
///
/// Only literals of the source become markup: the parts of a literal are `StaticString`s. A `String`
/// in an interpolation is text, and is escaped. So text of an app or a person never becomes markup:
///
///     let row: HTML = "<td class=\"num\">\(device.name)</td>"
///
/// Attributes are written in double quotes. An attribute that is an address takes an `Address` and
/// no `String`, so that text never becomes a `javascript:` link.
struct HTML: Sendable, Equatable {
    private(set) var markup: String

    static let empty: HTML = ""

    var isEmpty: Bool { markup.isEmpty }

    init() { markup = "" }

    /// Makes text, escaped.
    init(text: String) {
        markup = ""
        Self.append(text, to: &markup)
    }

    fileprivate init(markup: String) { self.markup = markup }

    static func + (left: HTML, right: HTML) -> HTML {
        HTML(markup: left.markup + right.markup)
    }

    static func += (left: inout HTML, right: HTML) { left.markup += right.markup }

    /// Appends a text with its special characters escaped, for text and for quoted attributes.
    fileprivate static func append(_ text: String, to markup: inout String) {
        var rest = text.utf8[...]
        while let index = rest.firstIndex(where: isSpecial) {
            markup += String(Substring(rest[..<index]))
            markup += escape(rest[index])
            rest = rest[rest.index(after: index)...]
        }
        markup += String(Substring(rest))
    }

    private static func isSpecial(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "&"), UInt8(ascii: "<"), UInt8(ascii: ">"), UInt8(ascii: "\""),
            UInt8(ascii: "'"):
            true
        // A browser drops or replaces control characters; the replacement character shows them.
        case 0..<0x20: byte != 0x09 && byte != 0x0A && byte != 0x0D
        default: byte == 0x7F
        }
    }

    private static func escape(_ byte: UInt8) -> String {
        switch byte {
        case UInt8(ascii: "&"): "&amp;"
        case UInt8(ascii: "<"): "&lt;"
        case UInt8(ascii: ">"): "&gt;"
        case UInt8(ascii: "\""): "&quot;"
        case UInt8(ascii: "'"): "&#39;"
        default: "\u{FFFD}"
        }
    }
}

extension HTML: ExpressibleByStringInterpolation {
    typealias StringLiteralType = StaticString

    init(stringLiteral value: StaticString) { markup = value.description }

    init(stringInterpolation: Interpolation) { markup = stringInterpolation.markup }

    typealias StringInterpolation = Interpolation

    struct Interpolation: StringInterpolationProtocol {
        typealias StringLiteralType = StaticString

        fileprivate var markup: String

        init(literalCapacity: Int, interpolationCount: Int) {
            markup = ""
            markup.reserveCapacity(literalCapacity + 32 * interpolationCount)
        }

        mutating func appendLiteral(_ literal: StaticString) {
            markup += literal.description
        }

        /// Appends text, escaped. In an attribute that is an address it is replaced by `#`.
        mutating func appendInterpolation(_ text: String) {
            guard !isInAddress else {
                assertionFailure("an address must be an Address, not a String")
                markup += "#"
                return
            }
            HTML.append(text, to: &markup)
        }

        mutating func appendInterpolation(_ text: String?) {
            if let text { appendInterpolation(text) }
        }

        mutating func appendInterpolation(_ part: HTML) { markup += part.markup }

        mutating func appendInterpolation(_ part: HTML?) {
            if let part { markup += part.markup }
        }

        mutating func appendInterpolation(_ parts: [HTML]) {
            for part in parts { markup += part.markup }
        }

        mutating func appendInterpolation(_ number: Int) { markup += String(number) }

        mutating func appendInterpolation(_ address: Address) {
            HTML.append(address.text, to: &markup)
        }

        /// Appends the name of an attribute that has no value, if it is set.
        mutating func appendInterpolation(_ attribute: StaticString, if isSet: Bool) {
            if isSet { markup += " " + attribute.description }
        }

        /// Whether the value of an attribute that is an address begins or continues here.
        private var isInAddress: Bool {
            guard let quote = markup.utf8.last, quote == UInt8(ascii: "\"") else { return false }
            return Self.addressAttributes.contains { markup.hasSuffix($0) }
        }

        private static let addressAttributes = [
            " href=\"", " src=\"", " action=\"", " formaction=\"", " data-src=\"",
        ]
    }
}

extension [HTML] {
    func joined(by separator: HTML = "") -> HTML {
        var all = HTML()
        for (index, part) in enumerated() {
            if index > 0 { all += separator }
            all += part
        }
        return all
    }
}
