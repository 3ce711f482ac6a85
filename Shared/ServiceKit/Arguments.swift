/// An error of a command line. The process ends with exit code 64 (`EX_USAGE`).
package struct ArgumentsError: Error, Equatable, CustomStringConvertible {
    package let description: String
    package init(_ description: String) { self.description = description }
}

/// Options and operands of one command, parsed strictly: an undeclared option is an error, and so
/// is an operand too many.
package struct Arguments: Sendable {
    /// One option as it is declared.
    package struct Option: Sendable {
        package enum Kind: Sendable {
            /// `--json`
            case flag
            /// `--key <value>`; twice is an error.
            case value
            /// `--channel <value>`, any number of times.
            case values
        }

        /// With its dashes: `--app-key-file`.
        package let name: String
        package let kind: Kind
        /// The placeholder for the value in the help: `<file>`.
        package let placeholder: String
        package let help: String

        package static func flag(_ name: String, _ help: String) -> Option {
            Option(name: name, kind: .flag, placeholder: "", help: help)
        }

        package static func value(
            _ name: String,
            _ placeholder: String,
            _ help: String
        ) -> Option {
            Option(name: name, kind: .value, placeholder: placeholder, help: help)
        }

        package static func values(
            _ name: String,
            _ placeholder: String,
            _ help: String
        ) -> Option {
            Option(name: name, kind: .values, placeholder: placeholder, help: help)
        }
    }

    package private(set) var operands: [String] = []
    private var given: [String: [String]] = [:]

    /// Parses `words`, which do not include the program's name; at most `maximumOperands` of them
    /// may come without dashes.
    package init(
        _ words: [String],
        options: [Option],
        maximumOperands: Int
    ) throws(ArgumentsError) {
        let known = Dictionary(options.map { ($0.name, $0) }) { first, _ in first }
        var rest = words[...]
        while let word = rest.popFirst() {
            if word == "--" {
                operands += rest
                break
            }
            guard word.hasPrefix("-"), word != "-" else {
                operands.append(word)
                continue
            }
            let equals = word.firstIndex(of: "=")
            let name = String(word[..<(equals ?? word.endIndex)])
            guard let option = known[name] else {
                let near = didYouMean(name, among: known.keys.sorted())
                throw ArgumentsError("unknown option \(name)\(near)")
            }
            let attached = equals.map { String(word[word.index(after: $0)...]) }
            try take(option, attached: attached, from: &rest)
        }
        guard operands.count <= maximumOperands else {
            throw ArgumentsError("unexpected \"\(operands[maximumOperands])\"")
        }
    }

    private mutating func take(
        _ option: Option,
        attached: String?,
        from rest: inout ArraySlice<String>
    ) throws(ArgumentsError) {
        switch option.kind {
        case .flag:
            guard attached == nil else { throw ArgumentsError("\(option.name) takes no value") }
            given[option.name] = []
        case .value, .values:
            guard let value = attached ?? rest.popFirst() else {
                throw ArgumentsError("\(option.name) takes a value: \(option.placeholder)")
            }
            if case .value = option.kind, given[option.name] != nil {
                throw ArgumentsError("\(option.name) is given twice")
            }
            given[option.name, default: []].append(value)
        }
    }

    package func has(_ name: String) -> Bool { given[name] != nil }
    package func value(_ name: String) -> String? { given[name]?.last }
    package func values(_ name: String) -> [String] { given[name] ?? [] }

    package func required(_ name: String) throws(ArgumentsError) -> String {
        guard let value = value(name) else { throw ArgumentsError("\(name) is missing") }
        return value
    }

    package func operand(_ index: Int, _ what: String) throws(ArgumentsError) -> String {
        guard operands.indices.contains(index) else { throw ArgumentsError("\(what) is missing") }
        return operands[index]
    }

    /// Renders one line an option, aligned.
    package static func help(_ options: [Option]) -> String {
        let heads = options.map { option in
            option.placeholder.isEmpty ? option.name : "\(option.name) \(option.placeholder)"
        }
        let width = heads.map(\.count).max() ?? 0
        return zip(heads, options).map { head, option in
            "  " + head + String(repeating: " ", count: width - head.count + 2) + option.help
        }.joined(separator: "\n")
    }
}
