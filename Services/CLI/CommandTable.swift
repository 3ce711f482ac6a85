import ServiceKit
import Settings

/// All commands. Help, completions, and the hints in errors are generated from this table.
enum CommandTable {
    static let all: [Command] =
        [
            .migrate, .appCreate, .appList, .appShow, .appSet, .appRotateKey, .appDelete,
            .appLink, .appUnlink,
            .credentialsSetAPNs, .credentialsSetFCM, .credentialsSetWNS, .credentialsSetMPNS,
            .credentialsList, .credentialsCheck, .credentialsRemove,
            .configGet, .configPut, .configVersions, .configRollback, .configStatus,
            .configTokenCreate, .configTokenList, .configTokenRemove,
            .identitySetSecret, .identityRemoveSecret, .secureList, .secureDelete,
            .syncShow, .connections,
            .ingestTypePut, .ingestTypeList, .ingestTypeShow,
            .ingestRealmStatus,
            .deadLettersList, .deadLettersShow, .deadLettersReplay,
            .loginSet, .loginList, .loginRemove, .loginCheck,
            .consoleLoginSet, .consoleLoginList, .consoleLoginRemove,
            .pushSend, .pushShow, .pushExplain, .pushFailures, .pushList, .pushCancel,
            .audienceExplain, .appFields, .appIndex,
            .installationsList, .installationsShow, .installationsExplain, .installationsRestore,
            .keysStatus, .keysRotate, .audit, .export, .erase, .doctor, .top, .completions,
        ] + Command.imports

    /// Returns the command that the words begin with.
    static func find(_ words: some Sequence<String>) -> Command? {
        all.first { words.starts(with: $0.words) }
    }

    /// Returns the words that may follow this beginning of a command: each once, in order.
    static func next(behind words: some Collection<String>) -> [String] {
        var found: [String] = []
        for command in all where command.words.starts(with: words) {
            guard let word = command.words.dropFirst(words.count).first else { continue }
            if !found.contains(word) { found.append(word) }
        }
        return found
    }

    /// The incomplete beginnings of commands, the longest first: `credentials set`.
    static var groups: [[String]] {
        var found: [[String]] = []
        for command in all {
            for count in stride(from: command.words.count - 1, to: 0, by: -1) {
                let group = Array(command.words.prefix(count))
                if !found.contains(group) { found.append(group) }
            }
        }
        return found.sorted { $0.count > $1.count }
    }

    /// Returns the failure for words that are not a command, with the help to read.
    static func refusal(of words: [String]) -> CommandFailure {
        let leading = words.prefix { !$0.hasPrefix("-") }
        var group = Array(leading)
        while !group.isEmpty, next(behind: group).isEmpty { group.removeLast() }
        let choices = next(behind: group)
        let name = group.joined(separator: " ")
        let help = group.isEmpty ? "carillon --help" : "carillon \(name) --help"
        guard let unknownWord = leading.dropFirst(group.count).first else {
            return .usage(
                "\"\(name)\" takes one of: \(choices.joined(separator: ", "))",
                see: help
            )
        }
        let near = nearestWord(to: unknownWord, among: choices).map { word in
            "; did you mean \"\((["carillon"] + group + [word]).joined(separator: " "))\"?"
        }
        let whole = (group + [unknownWord]).joined(separator: " ")
        let others =
            group.isEmpty || near != nil
            ? "" : ": \"\(name)\" takes one of: \(choices.joined(separator: ", "))"
        return .usage("unknown command \"\(whole)\"\(near ?? others)", see: help)
    }

    /// Returns the help of all commands, or of those that begin with these words.
    static func help(of group: [String]) -> String {
        let commands = all.filter { $0.words.starts(with: group) }
        let width = commands.map(\.name.count).max() ?? 0
        let lines = commands.map { command in
            let gap = String(repeating: " ", count: width - command.name.count + 2)
            return "  \(command.name)\(gap)\(command.summary)"
        }
        let title = group.isEmpty ? "" : " " + group.joined(separator: " ")
        return """
            carillon\(title): \(group.isEmpty ? "the operator's command" : "its commands")

            \(lines.joined(separator: "\n"))

            "carillon <command> --help" shows a command's options; "carillon --version" the version.
            It reads these variables, as the services do, from the environment or from a file;
            most commands need only the first few.

            \(SettingEntry.help(CommandContext.variables))

            """
    }
}
