import ServiceKit

/// One command: its words, its operands and options, and its action.
struct Command: Sendable {
    /// The syntax in its help: `app index <app> [<field>]`. A last operand with `…` may be
    /// repeated; an operand `a|b` accepts these two words.
    private let syntax: String
    let words: [String]
    let summary: String
    /// The names of the operands, the required ones first.
    let operands: [String]
    let requiredOperands: Int
    let options: [Arguments.Option]
    let run: @Sendable (Arguments, CommandContext) async throws -> Int32

    init(
        _ syntax: String,
        _ summary: String,
        options: [Arguments.Option] = [json],
        run: @escaping @Sendable (Arguments, CommandContext) async throws -> Int32
    ) {
        (self.syntax, self.summary, self.options, self.run) = (syntax, summary, options, run)
        let parts = syntax.split(separator: "<")
        words = (parts.first ?? "").split { $0 == " " || $0 == "[" }.map(String.init)
        operands = parts.dropFirst().map { part in String(part.prefix { $0 != ">" }) }
        requiredOperands = operands.count - syntax.count { $0 == "[" }
    }

    var name: String { words.joined(separator: " ") }

    var usage: String { "carillon \(syntax)\(options.isEmpty ? "" : " [options]")" }

    var help: String {
        """
        \(usage)

        \(summary).

        \(Arguments.help(allOptions))

        """
    }

    var allOptions: [Arguments.Option] { options + [.flag("--help", "this text")] }

    /// Parses the words after the command's own words, and requires the required operands.
    func arguments(_ words: [String]) throws(ArgumentsError) -> Arguments {
        let arguments = try Arguments(
            words,
            options: options,
            maximumOperands: syntax.hasSuffix("…") ? 1000 : operands.count
        )
        for (index, operand) in operands.enumerated() where index < requiredOperands {
            _ = try arguments.operand(index, operand)
        }
        return arguments
    }

    static let json = Arguments.Option.flag("--json", "print JSON")
}

extension Arguments {
    /// Returns an option's whole number.
    func integer(
        _ name: String,
        in range: ClosedRange<Int>,
        default standard: Int,
        called what: String = "a whole number"
    ) throws(ArgumentsError) -> Int {
        guard let text = value(name) else { return standard }
        guard let number = Int(text), range.contains(number) else {
            throw ArgumentsError(
                "\(name) takes \(what) from \(range.lowerBound) to \(range.upperBound)"
            )
        }
        return number
    }
}

/// Makes a value from the command line. An error is reported as an invalid command line, after
/// `words`.
func argument<Value>(
    _ words: String = "",
    _ make: () throws -> Value
) throws(ArgumentsError) -> Value {
    do {
        return try make()
    } catch {
        throw ArgumentsError("\(words)\(error)")
    }
}

/// Makes a value from a file, or from stored data. An error is reported as the command's failure,
/// after `words`.
func content<Value>(
    _ words: String,
    _ make: () throws -> Value
) throws(CommandFailure) -> Value {
    do {
        return try make()
    } catch {
        throw CommandFailure("\(words)\(error)")
    }
}

/// The failure of a command. Safe to show.
struct CommandFailure: Error, CustomStringConvertible {
    let description: String
    let exitCode: Int32

    init(_ description: String, exitCode: Int32 = 1) {
        self.description = description
        self.exitCode = exitCode
    }

    /// Returns the failure of an invalid command line, with the help to read.
    static func usage(_ problem: String, see help: String) -> CommandFailure {
        CommandFailure("\(problem); see \(help)", exitCode: 64)
    }
}
