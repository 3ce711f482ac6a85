import EventLoop
import Glibc
import PushStorage
import ServiceKit
import Settings

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

    static func run(_ words: [String], on loop: EventLoop) async -> Int32 {
        do {
            return try await answer(words, on: loop)
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
            Terminal.say(CommandTable.help(of: []))
            return words.isEmpty ? 64 : 0
        case "--version":
            Terminal.say("carillon \(carillonVersion)")
            return 0
        default: break
        }
        let leading = words.prefix { !$0.hasPrefix("-") }
        let asksForHelp = words.contains("--help") || words.contains("-h")
        guard let command = CommandTable.find(leading) else {
            guard asksForHelp, !CommandTable.next(behind: leading).isEmpty else {
                throw CommandTable.refusal(of: words)
            }
            Terminal.say(CommandTable.help(of: Array(leading)))
            return 0
        }
        if asksForHelp {
            Terminal.say(command.help)
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
