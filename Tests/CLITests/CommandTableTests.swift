import ServiceKit
import Support
import Testing

@testable import CLI

@Suite("The commands' table", .timeLimit(.minutes(1)))
struct CommandTableTests {
    @Test("No command's words begin with another's: each is found by its own")
    func found() {
        for command in CommandTable.all {
            #expect(CommandTable.find(command.words)?.name == command.name)
            #expect(command.operands.count >= command.requiredOperands)
            let names = command.allOptions.map(\.name)
            #expect(Set(names).count == names.count, "\(command.name)")
        }
    }

    @Test("Every command is in the help")
    func helped() {
        let help = CommandTable.help(of: [])
        for command in CommandTable.all { #expect(help.contains("  \(command.name) ")) }
        #expect(!CommandTable.help(of: ["push"]).contains("app create"))
    }

    @Test(
        "bash completes words, options, choices and groups of words",
        arguments: [
            (["pu"], "push"), (["push", "sh"], "show"), (["credentials", "set", "m"], "mpns"),
            (["credentials", "se"], "set"), (["push", "send", "shop", "--ale"], "--alert"),
            (["app", "rotate-key", "shop", "--key", "m"], "master"),
            (["config", "token", "cr"], "create"), (["config", "rol"], "rollback"),
            (["config", "get", "shop", "--namespace", "firebase-"], "firebase-server"),
            (["config", "put", "shop", "--val"], "--validate-only"),
            (["app", "unlink", "shop", "--fcm"], "--fcm-project"),
            (["identity", "set"], "set-secret"), (["secure", "l"], "list"),
            (["ingest", "type", "p"], "put"), (["dead-letters", "re"], "replay"),
            (["ingest", "type", "put", "shop", "T", "--sch"], "--schema"),
            (["completions", "z"], "zsh"), (["push", "send", "shop", "--alert", "--w"], ""),
            (["push", "send", "shop", "--file", "/etc/hostn"], "/etc/hostname"),
        ]
    )
    func completes(words: [String], expected: String) async throws {
        let script =
            Completions(for: .bash).script
            + "COMP_WORDS=(carillon \(words.joined(separator: " ")))\n"
            + "COMP_CWORD=\(words.count)\n_carillon\necho \"${COMPREPLY[@]}\"\n"
        let answer = try await run("/bin/bash", ["-c", script])
        #expect(answer.errors == "")
        #expect(answer.output == expected)
    }

    @Test("What zsh gets names every command")
    func zsh() {
        let script = Completions(for: .zsh).script
        #expect(script.hasPrefix("#compdef carillon\n"))
        for command in CommandTable.all { #expect(script.contains("\"\(command.name) \"*)")) }
    }
}
