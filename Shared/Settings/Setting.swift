// Settings: a variable is declared once, as a value, by the module that reads it. The check at
// start, `--help` and the table of deploy/guides/variables.md come from the declaration. No state,
// and no I/O except reading the environment and the file that it names.

/// The documentation of one variable.
package struct SettingEntry: Sendable, Hashable {
    package let name: String
    /// Its range and unit: `1 to 100000`, `100ms to 1h`, `true or false`.
    package let takes: String
    /// The default as an operator would write it; `required`; empty: none.
    package let fallback: String
    package let meaning: String
}

/// The declaration of one variable. `ConfigurationReader` reads it.
package struct Setting<Value: Sendable>: Sendable {
    package let entry: SettingEntry
    package let fallback: Value?
    /// Parses a value. An error says what is accepted, and for a secret nothing of its value.
    let parse: @Sendable (String) throws(ConfigurationError) -> Value

    package var name: String { entry.name }

    /// - Parameters:
    ///   - name: The variable.
    ///   - takes: Its range and unit.
    ///   - fallback: The value if it is not set.
    ///   - shown: The default in the documentation.
    ///   - meaning: Its effect, and the effect of extreme values.
    ///   - parse: Returns the value of a string; `nil` is refused with `takes`.
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
                throw ConfigurationError(name, "is \"\(text)\"; expected \(takes)")
            }
            return value
        }
    }

    /// Declares a variable without a default, whose errors show nothing. `read` throws the error of
    /// a value, without the value.
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

/// Variables with a common prefix, such as librdkafka's properties.
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

    /// Declares an integer; `none` is the documentation of a missing default: `no limit`.
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
    /// Declares a duration with its unit: `500ms`, `25s`, `10m`, `2h`, `7d`.
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
    /// Declares a string; `shown` is the documented default, if it derives from another variable.
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

    /// Declares the path of a readable text file.
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
    /// Declares a comma-separated list, without blanks and empty members.
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

// MARK: Parsing and rendering

package func commaList(_ text: String) -> [String] {
    text.split(separator: ",").map { trimmed($0) }.filter { !$0.isEmpty }
}

/// Parses a duration with its unit; `nil` if it is invalid.
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

/// Renders a duration for `parseDuration`, in the largest unit that divides it.
package func durationText(_ duration: Duration) -> String {
    let milliseconds = Int(duration / .milliseconds(1))
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)]
    for (unit, size) in units where milliseconds > 0 && milliseconds.isMultiple(of: size) {
        return "\(milliseconds / size)\(unit)"
    }
    return "\(milliseconds)ms"
}

/// Renders bytes as `1 MiB` if they are a whole number of units.
private func byteText(_ count: Int) -> String {
    for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        let size = 1 << shift
        if count >= size && count.isMultiple(of: size) { return "\(count / size) \(unit)" }
    }
    return "\(count)"
}
