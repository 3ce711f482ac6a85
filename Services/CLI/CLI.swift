import EventLoop
import Glibc
import ServiceKit
import Settings
import Storage

// The operator's command. It reads the same variables as the services, and connects to Postgres and
// Kafka itself but to no service, so it works while no service runs.
//
// Exit codes: 0 done; 1 failed; 64 an invalid command line; 78 an invalid variable; with
// `push send --wait` also 3, some were not delivered, and 4, no device was targeted.

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
            Terminal.printError("carillon: \(error)")
            exit(1)
        }
    }

    static func run(_ words: [String], on loop: EventLoop) async -> Int32 {
        do {
            return try await answer(words, on: loop)
        } catch {
            Terminal.printError("carillon: \(error)")
            return switch error {
            case is ConfigurationError, is SchemaTooNew: 78
            case let failure as CommandFailure: failure.exitCode
            default: 1
            }
        }
    }

    private static func answer(_ words: [String], on loop: EventLoop) async throws -> Int32 {
        switch words.first {
        case nil, "--help", "-h", "help":
            Terminal.printLine(CommandTable.help(of: []))
            return words.isEmpty ? 64 : 0
        case "--version":
            Terminal.printLine("carillon \(carillonVersion)")
            return 0
        default: break
        }
        let leading = words.prefix { !$0.hasPrefix("-") }
        let asksForHelp = words.contains("--help") || words.contains("-h")
        guard let command = CommandTable.find(leading) else {
            guard asksForHelp, !CommandTable.next(behind: leading).isEmpty else {
                throw CommandTable.refusal(of: words)
            }
            Terminal.printLine(CommandTable.help(of: Array(leading)))
            return 0
        }
        if asksForHelp {
            Terminal.printLine(command.help)
            return 0
        }
        do {
            let context = CommandContext(reader: try .ofProcess(), loop: loop)
            let arguments = try command.arguments(Array(words.dropFirst(command.words.count)))
            do {
                let code = try await command.run(arguments, context)
                await context.close()
                return code
            } catch {
                await context.close()
                throw error
            }
        } catch let error as ArgumentsError {
            throw CommandFailure.usage(
                error.description,
                see: "carillon \(command.name) --help"
            )
        }
    }
}
