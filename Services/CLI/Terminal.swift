import Glibc
import JSON
import Observability

/// Where a person reads and writes.
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
