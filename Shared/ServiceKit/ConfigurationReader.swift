internal import Glibc

/// What is wrong with one variable. The process ends with exit code 78 (`EX_CONFIG`).
package struct ConfigurationError: Error, Equatable, CustomStringConvertible {
    package let variable: String
    package let problem: String

    /// `problem` says what was expected; it never holds the value of a secret.
    package init(_ variable: String, _ problem: String) {
        self.variable = variable
        self.problem = problem
    }

    package var description: String { "\(variable) \(problem)" }
}

/// Reads variables: from the environment, else from the file that `CARILLON_CONFIG` names, which
/// holds `NAME=value` lines. An empty value counts as none.
package struct ConfigurationReader: Sendable {
    private let values: [String: String]
    /// Those set to an empty text, which for `HTTP_PORT` means "none".
    private let empty: Set<String>

    package init(_ variables: [String: String]) {
        values = variables.filter { !$0.value.isEmpty }
        empty = Set(variables.filter { $0.value.isEmpty }.keys)
    }

    /// - Throws: `ConfigurationError` when the file cannot be read or has a line that is not
    ///   `NAME=value`, blank or a comment.
    package static func ofProcess() throws(ConfigurationError) -> ConfigurationReader {
        let environment = readEnvironment()
        guard let path = environment["CARILLON_CONFIG"], !path.isEmpty else {
            return ConfigurationReader(environment)
        }
        guard let text = readTextFile(path) else {
            throw ConfigurationError("CARILLON_CONFIG", "names a file that cannot be read: \(path)")
        }
        let file = try parseFile(text)
        return ConfigurationReader(file.merging(environment) { _, ours in ours })
    }

    static func parseFile(_ text: String) throws(ConfigurationError) -> [String: String] {
        var values: [String: String] = [:]
        for (number, rawLine) in text.split(separator: "\n", omittingEmptySubsequences: false)
            .enumerated()
        {
            let line = trimmed(rawLine)
            if line.isEmpty || line.hasPrefix("#") { continue }
            guard let equals = line.firstIndex(of: "="), equals != line.startIndex else {
                throw ConfigurationError(
                    "CARILLON_CONFIG",
                    "has a line that is not NAME=value: line \(number + 1)"
                )
            }
            var value = trimmed(line[line.index(after: equals)...])
            if value.count >= 2, let quote = value.first, quote == "\"" || quote == "'",
                value.last == quote
            {
                value = String(value.dropFirst().dropLast())
            }
            values[trimmed(line[..<equals])] = value
        }
        return values
    }

    // MARK: Values

    package func optional(_ name: String) -> String? { values[name] }

    /// Whether it is there, with an empty text.
    package func isSetEmpty(_ name: String) -> Bool { empty.contains(name) }

    package func string(_ name: String, default fallback: String) -> String {
        values[name] ?? fallback
    }

    package func required(_ name: String) throws(ConfigurationError) -> String {
        guard let value = values[name] else {
            throw ConfigurationError(name, "is not set, and has no default")
        }
        return value
    }

    /// As `required`; errors of its later use must not show it. `problem` says what is wrong with a
    /// value, without it; `nil` where it can be used.
    package func secret(
        _ name: String,
        problem: (String) -> String? = { _ in nil }
    ) throws(ConfigurationError) -> String {
        let value = try required(name)
        if let problem = problem(value) { throw ConfigurationError(name, problem) }
        return value
    }

    package func integer(
        _ name: String,
        in range: ClosedRange<Int>,
        default fallback: Int
    ) throws(ConfigurationError) -> Int {
        guard let text = values[name] else { return fallback }
        guard let value = Int(text), range.contains(value) else {
            throw ConfigurationError(
                name,
                "is \"\(text)\"; it takes a whole number from \(range.lowerBound)"
                    + " to \(range.upperBound)"
            )
        }
        return value
    }

    package func boolean(
        _ name: String,
        default fallback: Bool
    ) throws(ConfigurationError) -> Bool {
        switch values[name]?.lowercased() {
        case nil: return fallback
        case "true", "1", "on", "yes": return true
        case "false", "0", "off", "no": return false
        case let other?:
            throw ConfigurationError(name, "is \"\(other)\"; it takes true or false")
        }
    }

    /// Durations carry a unit: `500ms`, `25s`, `10m`, `2h`, `7d`.
    package func duration(
        _ name: String,
        in range: ClosedRange<Duration>,
        default fallback: Duration
    ) throws(ConfigurationError) -> Duration {
        guard let text = values[name] else { return fallback }
        guard let value = parseDuration(text) else {
            throw ConfigurationError(
                name,
                "is \"\(text)\"; it takes a number with its unit: 500ms, 25s, 10m, 2h, 7d"
            )
        }
        guard range.contains(value) else {
            throw ConfigurationError(
                name,
                "is \"\(text)\"; it takes \(range.lowerBound) to \(range.upperBound)"
            )
        }
        return value
    }

    /// A comma list, without blanks and empty members.
    package func list(_ name: String, default fallback: [String] = []) -> [String] {
        guard let text = values[name] else { return fallback }
        return text.split(separator: ",").map { trimmed($0) }.filter { !$0.isEmpty }
    }

    package func oneOf<Choice: RawRepresentable & CaseIterable>(
        _ name: String,
        default fallback: Choice
    ) throws(ConfigurationError) -> Choice where Choice.RawValue == String {
        guard let text = values[name] else { return fallback }
        guard let choice = Choice(rawValue: text) else {
            let choices = Choice.allCases.map(\.rawValue).joined(separator: ", ")
            throw ConfigurationError(name, "is \"\(text)\"; it takes one of \(choices)")
        }
        return choice
    }

    /// Every variable that begins with `prefix`, by the rest of its name.
    package func all(prefix: String) -> [String: String] {
        var found: [String: String] = [:]
        for (name, value) in values where name.hasPrefix(prefix) && name != prefix {
            found[String(name.dropFirst(prefix.count))] = value
        }
        return found
    }

    /// librdkafka's properties: `KAFKA_CONFIG_<NAME>` with dots as underscores, beside
    /// `KAFKA_SECURITY_PROTOCOL` and `KAFKA_SASL_*`.
    package func kafkaProperties() -> [String: String] {
        var properties: [String: String] = [:]
        for (name, value) in all(prefix: "KAFKA_SASL_") {
            properties["sasl." + dotted(name)] = value
        }
        if let security = optional("KAFKA_SECURITY_PROTOCOL") {
            properties["security.protocol"] = security
        }
        for (name, value) in all(prefix: "KAFKA_CONFIG_") { properties[dotted(name)] = value }
        return properties
    }
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

private func dotted(_ name: String) -> String {
    name.lowercased().split(separator: "_").joined(separator: ".")
}

private func trimmed(_ text: some StringProtocol) -> String {
    let blanks: Set<Character> = [" ", "\t", "\r"]
    let front = text.drop { blanks.contains($0) }
    guard let last = front.lastIndex(where: { !blanks.contains($0) }) else { return "" }
    return String(front[...last])
}

private func readEnvironment() -> [String: String] {
    var variables: [String: String] = [:]
    var entry = unsafe environ
    while let text = unsafe entry.pointee {
        let line = unsafe String(cString: text)
        if let equals = line.firstIndex(of: "=") {
            variables[String(line[..<equals])] = String(line[line.index(after: equals)...])
        }
        unsafe entry += 1
    }
    return variables
}

/// The whole of a file of at most 1 MiB as text, or `nil` where it cannot be read.
package func readTextFile(_ path: String) -> String? {
    guard let bytes = readFile(path, maximumBytes: 1 << 20) else { return nil }
    return String(validating: bytes, as: UTF8.self)
}

/// The whole of a file, or `nil` where it cannot be read or is larger than `maximumBytes`.
package func readFile(_ path: String, maximumBytes: Int) -> [UInt8]? {
    let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 65_536)
    while true {
        let count = unsafe read(descriptor, &chunk, chunk.count)
        if count < 0 && errno == EINTR { continue }
        guard count >= 0, bytes.count + count <= maximumBytes else { return nil }
        if count == 0 { return bytes }
        bytes.append(contentsOf: chunk[..<count])
    }
}
