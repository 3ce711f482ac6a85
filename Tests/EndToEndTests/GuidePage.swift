import Foundation
import Support

/// A page for people, with its fenced blocks.
struct GuidePage {
    struct Block {
        /// The words after the fence: `sh run`.
        let info: String
        let text: String
    }

    static let root = URL(filePath: #filePath).deletingLastPathComponent()
        .appending(path: "../..").standardizedFileURL

    let blocks: [Block]

    init(_ name: String) throws {
        let text = try String(contentsOf: Self.root.appending(path: name), encoding: .utf8)
        var blocks: [Block] = []
        var open: (info: String, lines: [String])?
        for line in text.components(separatedBy: "\n") {
            if line.hasPrefix("```") {
                if let block = open {
                    blocks.append(
                        Block(info: block.info, text: block.lines.joined(separator: "\n"))
                    )
                    open = nil
                } else {
                    open = (String(line.dropFirst(3)), [])
                }
            } else {
                open?.lines.append(line)
            }
        }
        guard open == nil else { throw TestFailure("\(name) leaves a fenced block open") }
        self.blocks = blocks
    }

    var runs: Int { blocks.count { $0.info == "sh run" } }

    /// Returns its commands in one shell, from top to bottom, up to the first that fails.
    ///
    /// - Parameter python: Runs the blocks in Python, with the variables that the shell has
    ///   exported;
    ///   `nil` leaves them out.
    /// - Returns: The script; `nil` if there is nothing to run.
    func script(python: String?) -> String? {
        guard runs > 0 else { return nil }
        var script = "set -eEuo pipefail\ntrap 'echo \"failed: $BASH_COMMAND\" >&2' ERR\n"
        // A listener in the background would keep the output open. A test's children block SIGTERM.
        script += "trap 'jobs=$(jobs -p); [[ -z $jobs ]] || kill -KILL $jobs' EXIT\n"
        for (index, block) in blocks.enumerated() {
            if block.info == "sh run" {
                script += "printf '\\n\(Self.mark) \(index)\\n'\n\(block.text)\n"
            } else if block.info == "python run", let python {
                script += "'\(python)' - <<'PYTHON'\n\(block.text)\nPYTHON\n"
            }
        }
        return script
    }

    /// Returns the text of blocks that is shown (`text shown`, an `…` stands for anything) but was
    /// not printed by the commands before them.
    func missing(in output: String) -> [String] {
        let shown = output.components(separatedBy: Self.mark + " ").dropFirst()
        var lines: [Int: [String]] = [:]
        for part in shown {
            let all = part.components(separatedBy: "\n")
            if let index = all.first.flatMap({ Int($0) }) { lines[index] = Array(all.dropFirst()) }
        }
        var missing: [String] = []
        var last = 0
        for (index, block) in blocks.enumerated() {
            if block.info == "sh run" { last = index }
            guard block.info == "text shown" else { continue }
            for line in block.text.components(separatedBy: "\n") {
                let isThere = (lines[last] ?? []).contains { Self.matches($0, line) }
                if !isThere { missing.append(line) }
            }
        }
        return missing
    }

    private static let mark = "=== block"

    private static func matches(_ line: String, _ pattern: String) -> Bool {
        let parts = pattern.components(separatedBy: "…")
        var rest = line[...]
        for (number, part) in parts.enumerated() where !part.isEmpty {
            guard let found = rest.range(of: part) else { return false }
            if number == 0 && found.lowerBound != rest.startIndex { return false }
            rest = rest[found.upperBound...]
        }
        return parts.last == "" || rest.isEmpty
    }
}
