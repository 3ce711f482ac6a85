import JSON
import PushCore

/// Says everything on one page in the reader's language, and formats numbers and times for it.
///
/// A text is named by its English form, with placeholders: `{name}`. A test collects all texts from
/// the sources and requires a translation of each.
struct Words: Sendable {
    let language: Language
    /// The time at which the page is rendered.
    let now: Instant
    private let table: [String: [String]]

    init(_ language: Language, now: Instant = .now()) {
        self.language = language
        self.now = now
        table = Language.tables[language] ?? [:]
    }

    // MARK: Texts

    func callAsFunction(_ text: StaticString) -> String { translated(text.description) }

    func callAsFunction(
        _ text: StaticString,
        _ values: KeyValuePairs<String, String>
    ) -> String {
        filled(translated(text.description), values.map { ($0.key, $0.value) })
    }

    /// Returns a text with a number, which is also formatted as `{count}`.
    func count(
        _ count: Int,
        one: StaticString,
        other: StaticString,
        _ values: KeyValuePairs<String, String> = [:]
    ) -> String {
        let form = isOne(count)
        let forms = table[other.description] ?? [one.description, other.description]
        let text = form ? forms.first : forms.last
        return filled(
            text ?? other.description,
            [("count", number(count))] + values.map { ($0.key, $0.value) }
        )
    }

    /// Returns a text whose placeholders are filled with markup.
    func html(_ text: StaticString, _ values: KeyValuePairs<String, HTML>) -> HTML {
        var parts = HTML()
        let known = Dictionary(uniqueKeysWithValues: values.map { ($0.key, $0.value) })
        Self.walk(translated(text.description)) { piece, isName in
            if isName, let value = known[piece] {
                parts += value
            } else {
                parts += HTML(text: isName ? "{\(piece)}" : piece)
            }
        }
        return parts
    }

    /// Returns a text that is made elsewhere, with its placeholders filled.
    func phrase(_ text: String, _ values: [(String, String)] = []) -> String {
        filled(translated(text), values)
    }

    private func translated(_ text: String) -> String { table[text]?.last ?? text }

    private func filled(_ text: String, _ values: [(String, String)]) -> String {
        var filled = ""
        Self.walk(text) { piece, isName in
            guard isName else { return filled += piece }
            filled += values.first { $0.0 == piece }?.1 ?? "{\(piece)}"
        }
        return filled
    }

    /// Calls `body` with each piece of a text, and whether it is the name of a placeholder.
    private static func walk(_ text: String, _ body: (String, Bool) -> Void) {
        var rest = text[...]
        while let open = rest.firstIndex(of: "{"), let close = rest[open...].firstIndex(of: "}") {
            if open > rest.startIndex { body(String(rest[..<open]), false) }
            body(String(rest[rest.index(after: open)..<close]), true)
            rest = rest[rest.index(after: close)...]
        }
        if !rest.isEmpty { body(String(rest), false) }
    }

    private func isOne(_ count: Int) -> Bool {
        switch language {
        case .english: count == 1
        case .portuguese: count == 0 || count == 1
        case .chinese: false
        }
    }

    // MARK: Numbers and times

    /// Returns a whole number, grouped by thousands.
    func number(_ number: Int) -> String {
        let separator: Character = language == .portuguese ? "." : ","
        var text = ""
        let digits = String(number.magnitude)
        for (index, digit) in digits.enumerated() {
            if index > 0, (digits.utf8.count - index) % 3 == 0 { text.append(separator) }
            text.append(digit)
        }
        return number < 0 ? "-" + text : text
    }

    /// Returns a share in percent with one decimal: `< 0.1%` for a small one, and `100%` only if it
    /// is all.
    func share(_ part: Int, of whole: Int) -> String {
        guard whole > 0 else { return "" }
        if part == whole { return "100%" }
        if part == 0 { return "0%" }
        let point = language == .portuguese ? "," : "."
        let tenths = part.multipliedReportingOverflow(by: 1000).partialValue / whole
        if tenths == 0 { return "< 0\(point)1%" }
        let shown = min(tenths, 999)
        return "\(shown / 10)\(point)\(shown % 10)%"
    }

    /// Returns a latency: `412 ms`, `1.2 s` or `7 min`.
    func duration(milliseconds: Int) -> String {
        if milliseconds < 1000 { return "\(milliseconds) ms" }
        let tenths = milliseconds / 100
        guard tenths < 600 else { return "\(number(tenths / 600)) min" }
        return "\(tenths / 10)\(language == .portuguese ? "," : ".")\(tenths % 10) s"
    }

    /// Returns a time in UTC: only the time of day if it is today, else the date, too.
    func time(_ instant: Instant) -> HTML {
        let iso = instant.iso8601
        let shown = instant.day == now.day ? clock(instant) : date(instant)
        return "<time datetime=\"\(iso)\" title=\"\(iso)\">\(shown)</time>"
    }

    /// Returns a time in UTC with its zone, for sentences.
    func moment(_ instant: Instant) -> String {
        (instant.day == now.day ? clock(instant) : date(instant)) + " UTC"
    }

    /// `14:02:09`.
    func clock(_ instant: Instant) -> String {
        String(instant.iso8601.dropFirst(11).prefix(8))
    }

    /// `2026-11-25 14:02`.
    private func date(_ instant: Instant) -> String {
        let iso = instant.iso8601
        return String(iso.prefix(10)) + " " + String(iso.dropFirst(11).prefix(5))
    }

    /// Returns how long it is until a time: in days from two days on, else in hours or minutes.
    func span(until instant: Instant) -> String {
        let seconds = max(0, instant.seconds - now.seconds)
        if seconds >= 172_800 {
            return count(Int(seconds / 86_400), one: "in {count} day", other: "in {count} days")
        }
        if seconds >= 7200 {
            return count(Int(seconds / 3600), one: "in {count} hour", other: "in {count} hours")
        }
        return count(
            Int(seconds / 60),
            one: "in {count} minute",
            other: "in {count} minutes"
        )
    }
}
