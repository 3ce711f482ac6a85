import Glibc
import JSON
import Observability

/// The terminal. All text that the command prints goes through here, and through `PrintableText`:
/// stored data cannot move a cursor, or turn a line's direction.
enum Terminal {
    static func printLine(_ text: String) { write(text.hasSuffix("\n") ? text : text + "\n") }

    static func printLine(_ value: JSONValue) { printLine(value.text) }

    /// Writes without a line's end.
    static func write(_ text: String) { Log.standardOutput(PrintableText.bytes(of: text)) }

    /// Writes a line that the next line replaces.
    static func write(passing line: String) {
        Log.standardOutput(passing(line))
    }

    static func printError(_ text: String) {
        write(PrintableText.bytes(of: text + "\n"), to: STDERR_FILENO)
    }

    /// Writes a line that the next line replaces, to the standard error.
    static func printError(passing line: String) { write(passing(line), to: STDERR_FILENO) }

    private static func passing(_ line: String) -> [UInt8] {
        Array("\r".utf8) + PrintableText.bytes(of: line) + Array("\u{1B}[K".utf8)
    }

    private static func write(_ bytes: [UInt8], to descriptor: Int32) {
        unsafe bytes.withUnsafeBytes { buffer in
            _ = unsafe Glibc.write(descriptor, buffer.baseAddress, buffer.count)
        }
    }

    /// Whether a person can be asked.
    static var canAsk: Bool { isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1 }

    /// Asks a question; returns the answer, one line, or `nil` at the end of the input.
    static func ask(_ question: String) -> String? {
        write(PrintableText.bytes(of: question), to: STDERR_FILENO)
        return readLine(strippingNewline: true)
    }

    /// Writes a file, or replaces an existing one.
    ///
    /// - Returns: Whether all of it is written.
    static func write(_ bytes: [UInt8], toFile path: String) -> Bool {
        let descriptor = unsafe open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o666)
        guard descriptor >= 0 else { return false }
        var isWritten = true
        var rest = bytes[...]
        while isWritten, !rest.isEmpty {
            let count = unsafe rest.withUnsafeBytes { buffer in
                unsafe Glibc.write(descriptor, buffer.baseAddress, buffer.count)
            }
            if count < 0 && errno == EINTR { continue }
            isWritten = count > 0
            rest = rest.dropFirst(max(count, 0))
        }
        return close(descriptor) == 0 && isWritten
    }

    /// Shortens a string to one line of this many characters, without characters that a terminal interprets.
    static func short(_ text: String, _ limit: Int) -> String {
        let printable = text.unicodeScalars.prefix(4 * limit).map { scalar in
            PrintableText.isPrintable(scalar) && scalar != "\n" && scalar != "\t"
                ? Character(scalar) : " "
        }
        let line = String(printable)
        return line.count <= limit ? line : line.prefix(limit - 1) + "…"
    }

    /// Formats aligned columns, two blanks apart. Each cell is one line.
    static func table(_ rows: [[String]]) -> String {
        let rows = rows.map { $0.map(PrintableText.line) }
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

extension JSONValue {
    /// The value for people: `topic com.example.shop, key id ABC123DEFG`.
    var plain: String { plain(isNested: false) }

    private func plain(isNested: Bool) -> String {
        switch self {
        case .null: "none"
        case .bool(let isTrue): isTrue ? "yes" : "no"
        case .string(let text): Terminal.short(text, 1000)
        case .integer, .double, .number: text
        case .array(let items):
            items.isEmpty ? "none" : items.map { $0.plain(isNested: true) }.joined(separator: ", ")
        case .object(let object):
            (isNested ? "(" : "")
                + object.map { "\(Self.words(of: $0)) \($1.plain(isNested: true))" }
                .joined(separator: ", ") + (isNested ? ")" : "")
        }
    }

    /// Returns the words of `keyId` and `keyID` for people: `key id`.
    static func words(of name: String) -> String {
        var words = ""
        var isInCapitals = true
        for letter in name {
            if letter.isUppercase && !isInCapitals { words.append(" ") }
            words += letter.lowercased()
            isInCapitals = letter.isUppercase
        }
        return words
    }
}
