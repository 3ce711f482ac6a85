import ServiceKit

/// One command: its words, what it takes, and what it does.
struct Command: Sendable {
    let words: [String]
    let summary: String
    /// The names of its operands, the required ones first; one that is `a|b` takes these words.
    var operands: [String] = []
    var requiredOperands = 0
    /// Whether the last operand may come many times.
    var repeatsLastOperand = false
    var options: [Arguments.Option] = []
    let run: @Sendable (Arguments, CommandContext) async throws -> Int32

    var name: String { words.joined(separator: " ") }

    var usage: String {
        let operands = operands.enumerated().map { index, operand in
            let name = index < requiredOperands ? " <\(operand)>" : " [<\(operand)>]"
            return name + (repeatsLastOperand && index == self.operands.count - 1 ? " …" : "")
        }
        return "carillon \(name)\(operands.joined())\(options.isEmpty ? "" : " [options]")"
    }

    var help: String {
        """
        \(usage)

        \(summary).

        \(Arguments.help(allOptions))

        """
    }

    var allOptions: [Arguments.Option] { options + [.flag("--help", "this text")] }

    /// The words behind the command's own, its required operands among them.
    func arguments(_ words: [String]) throws(ArgumentsError) -> Arguments {
        let arguments = try Arguments(
            words,
            options: options,
            maximumOperands: repeatsLastOperand ? 1000 : operands.count
        )
        for (index, operand) in operands.enumerated() where index < requiredOperands {
            _ = try arguments.operand(index, operand)
        }
        return arguments
    }

    static let json = Arguments.Option.flag("--json", "print JSON")
}

/// A command that could not do what it was asked. Safe to show.
struct CommandFailure: Error, CustomStringConvertible {
    let description: String
    let exitCode: Int32

    init(_ description: String, exitCode: Int32 = 1) {
        self.description = description
        self.exitCode = exitCode
    }

    /// A command line that cannot be used, and which help says what can.
    static func usage(_ problem: String, see help: String) -> CommandFailure {
        CommandFailure("\(problem); see \(help)", exitCode: 64)
    }
}
