import EventLoop
import Glibc
import JSON
import Observability
import PushCore
import PushStorage
import ServiceKit

// The operator's command. It reads the same variables as the services, talks to Postgres and Kafka
// itself and to no service, so it works where none of them runs.
//
// Exit codes: 0 done; 1 failed; 64 a command line that cannot be used; 78 a variable that cannot;
// with `push send --wait` also 3, some were not delivered, and 4, nobody was targeted.

@main
struct CLI {
    static func main() async {
        signal(SIGPIPE, SIG_IGN)
        do {
            let loop = try EventLoop(name: "carillon")
            let words = Array(CommandLine.arguments.dropFirst())
            let code = await Task(executorPreference: loop) {
                await run(words, on: loop)
            }.value
            exit(code)
        } catch {
            Terminal.complain("carillon: \(error)")
            exit(1)
        }
    }

    /// The commands that there are, by their words.
    static let commands: [Command] = [
        .migrate, .appCreate, .appList, .appShow, .appSet, .appRotateKey, .credentialsSetAPNs,
        .credentialsSetFCM, .credentialsSetWNS, .credentialsSetMPNS, .credentialsList,
        .credentialsCheck, .credentialsRemove, .pushSend,
        .pushShow, .pushList, .pushCancel, .audienceExplain, .appFields, .appIndex,
        .installationsRestore,
        .keysStatus,
        .keysRotate, .audit, .export, .erase, .doctor,
    ]

    /// In the contract, not in this version: refused by name.
    static let planned: [String] = [
        "app link", "push explain",
        "dead-letters list", "dead-letters show", "dead-letters replay", "ingest type",
        "identity set-secret",
    ]

    static func run(_ words: [String], on loop: EventLoop) async -> Int32 {
        do {
            return try await answer(words, on: loop)
        } catch let error as ArgumentsError {
            Terminal.complain("carillon: \(error.description); see carillon --help")
            return 64
        } catch let error as ConfigurationError {
            Terminal.complain("carillon: \(error.description)")
            return 78
        } catch let error as SchemaTooNew {
            Terminal.complain("carillon: \(error.description)")
            return 78
        } catch let error as CommandFailure {
            Terminal.complain("carillon: \(error.description)")
            return error.exitCode
        } catch {
            Terminal.complain("carillon: \(error)")
            return 1
        }
    }

    private static func answer(_ words: [String], on loop: EventLoop) async throws -> Int32 {
        switch words.first {
        case nil, "--help", "-h", "help":
            Terminal.say(help)
            return words.isEmpty ? 64 : 0
        case "--version":
            Terminal.say("carillon \(carillonVersion)")
            return 0
        default: break
        }
        let leading = words.prefix { !$0.hasPrefix("-") }
        guard let command = commands.first(where: { leading.starts(with: $0.words) }) else {
            return try refuse(words, leading)
        }
        let rest = Array(words.dropFirst(command.words.count))
        if rest.contains("--help") || rest.contains("-h") {
            Terminal.say(command.help)
            return 0
        }
        let arguments = try Arguments(
            rest,
            options: command.options,
            maximumOperands: command.operands.count
        )
        for (index, operand) in command.operands.enumerated()
        where index < command.requiredOperands {
            _ = try arguments.operand(index, operand)
        }
        let context = CommandContext(reader: try .ofProcess(), loop: loop)
        do {
            let code = try await command.run(arguments, context)
            await context.close()
            return code
        } catch {
            await context.close()
            throw error
        }
    }

    private static func refuse(
        _ words: [String],
        _ leading: ArraySlice<String>
    ) throws -> Int32 {
        let known = planned.first {
            leading.starts(with: $0.split(separator: " ").map(String.init))
        }
        if let known {
            throw CommandFailure("\"\(known)\" is not in this version", exitCode: 64)
        }
        let group = commands.filter { $0.words.first == words.first }
        guard !group.isEmpty else {
            throw ArgumentsError("unknown command \"\(words.first ?? "")\"")
        }
        if words.contains("--help") {
            Terminal.say(group.map(\.usage).joined(separator: "\n"))
            return 0
        }
        let next = group.map { $0.words.dropFirst().joined(separator: " ") }
        throw ArgumentsError(
            "\"\(words.first ?? "")\" takes one of: \(next.joined(separator: ", "))"
        )
    }

    private static var help: String {
        let width = commands.map(\.name.count).max() ?? 0
        let lines = commands.map { command in
            let gap = String(repeating: " ", count: width - command.name.count + 2)
            return "  \(command.name)\(gap)\(command.summary)"
        }
        return """
            carillon: the operator's command

            \(lines.joined(separator: "\n"))

            "carillon <command> --help" tells the options of each; "carillon --version" the version.
            It reads the variables of the services, from the environment or from the file of
            NAME=value lines that CARILLON_CONFIG names: DATABASE_URL, KAFKA_BOOTSTRAP_SERVERS,
            KAFKA_TOPIC_PREFIX, KAFKA_PARTITIONS, CARILLON_MASTER_KEYS, and the providers'.

            """
    }
}

/// One command: its words, what it takes, and what it does.
struct Command: Sendable {
    let words: [String]
    let summary: String
    /// The names of its operands, the required ones first.
    var operands: [String] = []
    var requiredOperands = 0
    var options: [Arguments.Option] = []
    let run: @Sendable (Arguments, CommandContext) async throws -> Int32

    var name: String { words.joined(separator: " ") }

    var usage: String {
        let operands = operands.enumerated().map { index, operand in
            index < requiredOperands ? " <\(operand)>" : " [<\(operand)>]"
        }
        return "carillon \(name)\(operands.joined())\(options.isEmpty ? "" : " [options]")"
    }

    var help: String {
        """
        \(usage)

        \(summary).

        \(Arguments.help(options + [.flag("--help", "this text")]))

        """
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
}

enum Terminal {
    static func say(_ text: String) {
        Log.standardOutput(Array((text.hasSuffix("\n") ? text : text + "\n").utf8))
    }

    static func say(_ value: JSONValue) { say(value.text) }

    /// As it is, without a line's end.
    static func write(_ text: String) { Log.standardOutput(Array(text.utf8)) }

    static func complain(_ text: String) {
        let bytes = Array((text + "\n").utf8)
        unsafe bytes.withUnsafeBytes { buffer in
            _ = unsafe Glibc.write(STDERR_FILENO, buffer.baseAddress, buffer.count)
        }
    }

    /// Columns, aligned, two blanks apart.
    static func table(_ rows: [[String]]) -> String {
        let columns = rows.map(\.count).max() ?? 0
        let widths = (0..<columns).map { column in
            rows.map { $0.indices.contains(column) ? $0[column].count : 0 }.max() ?? 0
        }
        return rows.map { row in
            row.enumerated().map { column, cell in
                column == row.count - 1
                    ? cell : cell + String(repeating: " ", count: widths[column] - cell.count + 2)
            }.joined()
        }.joined(separator: "\n")
    }
}
