// Settings: a variable is declared once, as a value, by the room that reads it. The check at start,
// `--help` and the table of deploy/guides/variables.md come from the declaration. No state, no I/O
// but reading the environment and the file that it names.

/// What people are told of one variable.
package struct SettingEntry: Sendable, Hashable {
    package let name: String
    /// Its range and unit: `1 to 100000`, `100ms to 1h`, `true or false`.
    package let takes: String
    /// As one would write it; `required`; empty: none.
    package let fallback: String
    package let meaning: String
}

/// One variable, declared. `ConfigurationReader` reads it.
package struct Setting<Value: Sendable>: Sendable {
    package let entry: SettingEntry
    package let fallback: Value?
    /// An error says what is taken, and for a secret nothing of its value.
    let parse: @Sendable (String) throws(ConfigurationError) -> Value

    package var name: String { entry.name }

    /// - Parameters:
    ///   - name: The variable.
    ///   - takes: Its range and unit.
    ///   - fallback: What stands in for it where it is not set.
    ///   - shown: The default as people are told it.
    ///   - meaning: What it does, and what goes wrong at the extremes.
    ///   - parse: The value of a text; `nil` is refused with `takes`.
    package init(
        _ name: String,
        takes: String,
        default fallback: Value?,
        shown: String,
        _ meaning: String,
        parse: @escaping @Sendable (String) -> Value?
    ) {
        entry = SettingEntry(name: name, takes: takes, fallback: shown, meaning: meaning)
        self.fallback = fallback
        self.parse = { (text) throws(ConfigurationError) in
            guard let value = parse(text) else {
                throw ConfigurationError(name, "is \"\(text)\"; it takes \(takes)")
            }
            return value
        }
    }

    /// A variable without a default, of which errors show nothing. `read` throws what is wrong with
    /// a value, without it.
    package static func secret(
        _ name: String,
        takes: String,
        _ meaning: String,
        read: @escaping @Sendable (String) throws -> Value
    ) -> Setting {
        Setting(
            entry: SettingEntry(name: name, takes: takes, fallback: "required", meaning: meaning),
            fallback: nil
        ) { (text) throws(ConfigurationError) in
            do {
                return try read(text)
            } catch {
                throw ConfigurationError(name, "cannot be used: \(error)")
            }
        }
    }

    private init(
        entry: SettingEntry,
        fallback: Value?,
        parse: @escaping @Sendable (String) throws(ConfigurationError) -> Value
    ) {
        self.entry = entry
        self.fallback = fallback
        self.parse = parse
    }
}

/// Variables that begin alike, such as librdkafka's properties.
package struct SettingFamily: Sendable {
    package let prefix: String
    package let entry: SettingEntry

    package init(_ prefix: String, rest: String, takes: String, _ meaning: String) {
        self.prefix = prefix
        entry = SettingEntry(name: prefix + rest, takes: takes, fallback: "", meaning: meaning)
    }
}

// MARK: Kinds

extension Setting where Value == Int {
    package enum Unit: Sendable {
        case bytes
        /// The meaning says what is counted.
        case count
    }

    /// `none` is what people are told of a variable without a default: `no limit`.
    package init(
        _ name: String,
        in range: ClosedRange<Int>,
        unit: Unit = .count,
        default fallback: Int?,
        none: String = "",
        _ meaning: String
    ) {
        let takes =
            switch unit {
            case .bytes: "\(byteText(range.lowerBound)) to \(byteText(range.upperBound)), in bytes"
            case .count: "\(range.lowerBound) to \(range.upperBound)"
            }
        let shown = fallback.map { value in
            let round = byteText(value)
            return unit == .bytes && round != "\(value)" ? "\(value) (\(round))" : "\(value)"
        }
        self.init(name, takes: takes, default: fallback, shown: shown ?? none, meaning) { text in
            Int(text).flatMap { range.contains($0) ? $0 : nil }
        }
    }
}

extension Setting where Value == Duration {
    /// A duration carries its unit: `500ms`, `25s`, `10m`, `2h`, `7d`.
    package init(
        _ name: String,
        in range: ClosedRange<Duration>,
        default fallback: Duration,
        _ meaning: String
    ) {
        self.init(
            name,
            takes: "\(durationText(range.lowerBound)) to \(durationText(range.upperBound))",
            default: fallback,
            shown: durationText(fallback),
            meaning
        ) { text in
            parseDuration(text).flatMap { range.contains($0) ? $0 : nil }
        }
    }
}

extension Setting where Value == Bool {
    package init(_ name: String, default fallback: Bool, _ meaning: String) {
        self.init(
            name,
            takes: "true or false",
            default: fallback,
            shown: "\(fallback)",
            meaning
        ) { text in
            switch text.lowercased() {
            case "true", "1", "on", "yes": true
            case "false", "0", "off", "no": false
            default: nil
            }
        }
    }
}

extension Setting where Value == String {
    /// `shown` is the default as people are told it, where it is made of another variable.
    package init(
        _ name: String,
        takes: String,
        default fallback: String? = nil,
        shown: String? = nil,
        _ meaning: String
    ) {
        self.init(
            name,
            takes: takes,
            default: fallback,
            shown: shown ?? fallback ?? "",
            meaning
        ) { $0 }
    }

    /// The path of a file that can be read as text.
    package static func file(_ name: String, takes: String, _ meaning: String) -> Setting {
        Setting(
            entry: SettingEntry(name: name, takes: takes, fallback: "", meaning: meaning),
            fallback: nil
        ) { (path) throws(ConfigurationError) in
            guard readTextFile(path) != nil else {
                throw ConfigurationError(name, "names a file that cannot be read: \(path)")
            }
            return path
        }
    }
}

extension Setting where Value == [String] {
    /// A comma list, without blanks and empty members.
    package init(
        _ name: String,
        takes: String,
        default fallback: [String] = [],
        _ meaning: String
    ) {
        self.init(
            name,
            takes: takes,
            default: fallback,
            shown: fallback.joined(separator: ","),
            meaning,
            parse: commaList
        )
    }
}

extension Setting where Value: RawRepresentable & CaseIterable, Value.RawValue == String {
    package init(
        _ name: String,
        default fallback: Value?,
        shown: String? = nil,
        _ meaning: String
    ) {
        self.init(
            name,
            takes: Value.allCases.map(\.rawValue).joined(separator: ", "),
            default: fallback,
            shown: shown ?? fallback?.rawValue ?? "",
            meaning,
            parse: Value.init(rawValue:)
        )
    }
}

// MARK: Texts

package func commaList(_ text: String) -> [String] {
    text.split(separator: ",").map { trimmed($0) }.filter { !$0.isEmpty }
}

/// A duration with its unit, or `nil`.
package func parseDuration(_ text: String) -> Duration? {
    let digits = text.prefix { $0.isASCII && $0.isNumber }
    guard !digits.isEmpty, digits.count <= 12, let number = Int64(digits) else { return nil }
    switch text.dropFirst(digits.count) {
    case "ms": return .milliseconds(number)
    case "s": return .seconds(number)
    case "m": return .seconds(number * 60)
    case "h": return .seconds(number * 3600)
    case "d": return .seconds(number * 86_400)
    default: return nil
    }
}

/// As `parseDuration` reads it, in the largest unit that says it whole.
package func durationText(_ duration: Duration) -> String {
    let milliseconds = Int(duration / .milliseconds(1))
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)]
    for (unit, size) in units where milliseconds > 0 && milliseconds.isMultiple(of: size) {
        return "\(milliseconds / size)\(unit)"
    }
    return "\(milliseconds)ms"
}

/// `1 MiB` where it is so many whole ones.
private func byteText(_ count: Int) -> String {
    for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        let size = 1 << shift
        if count >= size && count.isMultiple(of: size) { return "\(count / size) \(unit)" }
    }
    return "\(count)"
}
