import ServiceKit

extension Command {
    static let completions = Command(
        "completions <bash|zsh>",
        "Print a shell completion script: source <(carillon completions bash)",
        options: []
    ) { arguments, _ in
        let name = try arguments.operand(0, "bash|zsh")
        guard let shell = Completions.Shell(rawValue: name) else {
            throw ArgumentsError("there are completions for bash and zsh, not for \"\(name)\"")
        }
        Terminal.write(Completions(for: shell).script)
        return 0
    }
}

/// The script that completes this command in a shell: one `case` over the words before the cursor,
/// generated from the table of commands.
struct Completions {
    enum Shell: String, CaseIterable { case bash, zsh }

    let shell: Shell

    init(for shell: Shell) { self.shell = shell }

    var script: String {
        switch shell {
        case .bash:
            """
            _carillon() {
                local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
                local line="${COMP_WORDS[*]:1:COMP_CWORD-1}"
                COMPREPLY=()
            \(cases)
            }
            complete -F _carillon carillon

            """
        case .zsh:
            """
            #compdef carillon
            _carillon() {
                local previous="${words[CURRENT-1]}"
                local line="${(j: :)words[2,CURRENT-1]}"
            \(cases)
            }
            if [ "$funcstack[1]" = "_carillon" ]; then
                _carillon "$@"
            else
                compdef _carillon carillon
            fi

            """
        }
    }

    private var cases: String {
        // A longer command comes before its own prefix.
        let commands = CommandTable.all.sorted { $0.words.count > $1.words.count }
        var lines = ["    case \"$line \" in"]
        for command in commands {
            lines.append("    \"\(command.name) \"*)")
            lines += values(of: command)
            let words = command.operands.flatMap(choices) + command.allOptions.map(\.name)
            lines.append("        \(offer(words)) ;;")
        }
        for group in CommandTable.groups {
            let name = group.joined(separator: " ")
            lines.append("    \"\(name) \") \(offer(CommandTable.next(behind: group))) ;;")
        }
        let first = CommandTable.next(behind: [String]()) + ["--help", "--version"]
        lines.append("    \" \") \(offer(first)) ;;")
        lines.append("    esac")
        return lines.joined(separator: "\n")
    }

    /// Returns the completions of an option's value.
    private func values(of command: Command) -> [String] {
        let options = command.options.filter { !$0.placeholder.isEmpty }
        guard !options.isEmpty else { return [] }
        var lines = ["        case \"$previous\" in"]
        for option in options {
            let words = choices(option.placeholder)
            let isFile =
                ["<file>", "<json-file>", "<pem>", "<p8>", "<request.json>"]
                .contains(option.placeholder) || option.name.hasSuffix("-file")
            let action =
                isFile ? files : words.isEmpty ? "return" : "\(offer(words)); return"
            lines.append("        \(option.name)) \(action) ;;")
        }
        lines.append("        esac")
        return lines
    }

    /// Splits `app|master` into these words.
    private func choices(_ placeholder: String) -> [String] {
        guard placeholder.contains("|") else { return [] }
        return placeholder.split(separator: "|").map(String.init)
    }

    private func offer(_ words: [String]) -> String {
        let list = words.joined(separator: " ")
        return switch shell {
        case .bash: "COMPREPLY=($(compgen -W \"\(list)\" -- \"$current\"))"
        case .zsh: "compadd -- \(list)"
        }
    }

    private var files: String {
        switch shell {
        case .bash: "COMPREPLY=($(compgen -f -- \"$current\")); return"
        case .zsh: "_files; return"
        }
    }
}
