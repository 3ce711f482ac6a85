import Foundation
import ServiceKit
import Support
import Testing

@testable import CLI

@Suite("The command table", .timeLimit(.minutes(1)))
struct CommandTableTests {
    @Test("No command's words begin with those of another, so each is found by its own")
    func found() {
        for command in CommandTable.all {
            #expect(CommandTable.find(command.words)?.name == command.name)
            #expect((0...command.operands.count).contains(command.requiredOperands))
            let names = command.allOptions.map(\.name)
            #expect(Set(names).count == names.count, "\(command.name)")
        }
    }

    @Test("Words and operands are parsed from a command's usage")
    func read() throws {
        let command = Command("app tell <app> [<push id>] …", "Tell", options: []) { _, _ in 0 }
        #expect(command.words == ["app", "tell"])
        #expect(command.operands == ["app", "push id"] && command.requiredOperands == 1)
        #expect(command.usage == "carillon app tell <app> [<push id>] …")
        #expect(try command.arguments(["a", "b", "c"]).operands == ["a", "b", "c"])
        #expect(throws: ArgumentsError("app is missing")) { try command.arguments([]) }
        let one = Command("show [<app>]", "Show") { _, _ in 0 }
        #expect(one.words == ["show"] && one.requiredOperands == 0)
        #expect(one.usage == "carillon show [<app>] [options]")
        #expect(throws: ArgumentsError("unexpected \"b\"")) { try one.arguments(["a", "b"]) }
    }

    @Test("A summary is one short imperative sentence", arguments: CommandTable.all.map(\.name))
    func summaries(command: String) throws {
        let summary = try #require(CommandTable.all.first { $0.name == command }).summary
        #expect(summary.contains(#/^[A-Z][a-z]+ /#), "a verb comes first")
        #expect(summary.contains(#/^[A-Z][a-z]*[^s ] /#), "the verb is imperative")
        #expect(summary.count <= 72 && !summary.hasSuffix("."))
    }

    @Test("The help of every command is as recorded")
    func recorded() throws {
        let file = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "help.txt")
        let help = CommandTable.all.map(\.help).joined(separator: "\n")
        if ProcessInfo.processInfo.environment["CARILLON_RENEW_HELP"] == "1" {
            try help.write(to: file, atomically: true, encoding: .utf8)
        }
        let recorded = try String(contentsOf: file, encoding: .utf8)
        #expect(recorded == help, "CARILLON_RENEW_HELP=1 records it again")
    }

    @Test("Every command is in the help")
    func helped() {
        let help = CommandTable.help(of: [])
        for command in CommandTable.all { #expect(help.contains("  \(command.name) ")) }
        #expect(!CommandTable.help(of: ["push"]).contains("app create"))
    }

    @Test(
        "Completion in bash offers words, options, choices and groups of words",
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

    @Test("The completion script for zsh has every command")
    func zsh() {
        let script = Completions(for: .zsh).script
        #expect(script.hasPrefix("#compdef carillon\n"))
        for command in CommandTable.all { #expect(script.contains("\"\(command.name) \"*)")) }
    }
}
