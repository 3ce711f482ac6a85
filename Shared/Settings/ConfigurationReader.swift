internal import Glibc

/// Reads variables: from the environment, else from the file named by `CARILLON_CONFIG`, which has
/// `NAME=value` lines. An empty value counts as unset.
package struct ConfigurationReader: Sendable {
    private let values: [String: String]
    /// The variables set to an empty string, which for `HTTP_PORT` means "none".
    private let empty: Set<String>
    private let asked: (@Sendable (String) -> Void)?

    /// Makes a reader; `asked` gets the name of each variable that is read, for a test that
    /// `--help` names all of them.
    package init(_ variables: [String: String], asked: (@Sendable (String) -> Void)? = nil) {
        values = variables.filter { !$0.value.isEmpty }
        empty = Set(variables.filter { $0.value.isEmpty }.keys)
        self.asked = asked
    }

    package static let file = Setting<String>(
        "CARILLON_CONFIG",
        takes: "the path of a file of NAME=value lines",
        "variables in a file; the environment wins"
    )

    /// - Throws: `ConfigurationError` if the file cannot be read or has a line that is not
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

    /// Returns the value of the variable, else its default.
    package func value<Value>(of setting: Setting<Value>) throws(ConfigurationError) -> Value {
        if let value = try optional(setting) { return value }
        guard let fallback = setting.fallback else {
            throw ConfigurationError(setting.name, "is not set, and has no default")
        }
        return fallback
    }

    /// Returns the value of the variable; `nil` if it is not set, whatever its default.
    package func optional<Value>(_ setting: Setting<Value>) throws(ConfigurationError) -> Value? {
        asked?(setting.name)
        guard let text = values[setting.name] else { return nil }
        return try setting.parse(text)
    }

    package func isSet<Value>(_ setting: Setting<Value>) -> Bool { values[setting.name] != nil }

    /// Whether it is set to an empty string.
    package func isSetEmpty<Value>(_ setting: Setting<Value>) -> Bool {
        empty.contains(setting.name)
    }

    /// Returns every variable of the family, by the rest of its name.
    package func all(of family: SettingFamily) -> [String: String] {
        asked?(family.entry.name)
        var found: [String: String] = [:]
        for (name, value) in values where name.hasPrefix(family.prefix) && name != family.prefix {
            found[String(name.dropFirst(family.prefix.count))] = value
        }
        return found
    }
}

func trimmed(_ text: some StringProtocol) -> String {
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
