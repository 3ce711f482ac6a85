extension SettingEntry {
    /// Renders variables for `--help`: each with its default, and below it its values and meaning.
    package static func help(_ entries: [SettingEntry]) -> String {
        entries.map { entry in
            let head =
                switch entry.fallback {
                case "": entry.name
                case "required": "\(entry.name) (required)"
                case let fallback: "\(entry.name)=\(fallback)"
                }
            let lines = wrapped("\(entry.meaning). Takes \(entry.takes).", width: 90)
            return "  \(head)\n" + lines.map { "      \($0)" }.joined(separator: "\n")
        }.joined(separator: "\n")
    }

    /// Renders the variables of several executables as the rows of a Markdown table: equal
    /// declarations share one row, and other declarations of the same name follow it.
    package static func table(_ services: [(name: String, entries: [SettingEntry])]) -> String {
        var order: [String] = []
        var rows: [String: [(entry: SettingEntry, readers: [String])]] = [:]
        for service in services {
            for entry in service.entries {
                if rows[entry.name] == nil { order.append(entry.name) }
                if let index = rows[entry.name]?.firstIndex(where: { $0.entry == entry }) {
                    rows[entry.name]?[index].readers.append(service.name)
                } else {
                    rows[entry.name, default: []].append((entry, [service.name]))
                }
            }
        }
        let lines = order.flatMap { rows[$0] ?? [] }.map { row in
            let fallback = row.entry.fallback.isEmpty ? "–" : row.entry.fallback
            return "| `\(row.entry.name)` | \(row.readers.joined(separator: ", ")) | \(fallback) |"
                + " \(row.entry.takes) | \(row.entry.meaning) |"
        }
        return """
            | Variable | Read by | Default | Takes | Meaning |
            |---|---|---|---|---|
            \(lines.joined(separator: "\n"))

            """
    }
}

private func wrapped(_ text: String, width: Int) -> [String] {
    var lines: [String] = []
    var line = ""
    for word in text.split(separator: " ") {
        if !line.isEmpty && line.count + 1 + word.count > width {
            lines.append(line)
            line = ""
        }
        line += line.isEmpty ? word : " " + word
    }
    return line.isEmpty ? lines : lines + [line]
}
