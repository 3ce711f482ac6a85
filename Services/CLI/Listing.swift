import JSON
import ServiceKit

/// The rows that a command prints: JSON for programs and a table for people, from one list of
/// columns.
struct Listing<Row> {
    /// A part of each row: a cell of the table, members of the JSON object, or both.
    struct Column {
        fileprivate var title = ""
        fileprivate var cell: ((Row) -> String)?
        fileprivate var members: ((Row) -> JSONObject)?

        /// Makes a column of text, the same for programs and people.
        static func text(
            _ key: String,
            title: String = "",
            _ text: @escaping (Row) -> String
        ) -> Column {
            value(key, title: title, { .string(text($0)) }, cell: text)
        }

        /// Makes a column of values for programs, with a text for people.
        static func value(
            _ key: String,
            title: String = "",
            _ value: @escaping (Row) -> JSONValue,
            cell: @escaping (Row) -> String
        ) -> Column {
            Column(title: title, cell: cell, members: { [key: value($0)] })
        }

        /// Makes a column of counts.
        static func number(
            _ key: String,
            title: String = "",
            _ number: @escaping (Row) -> Int
        ) -> Column {
            value(key, title: title, { JSONValue(number($0)) }) { String(number($0)) }
        }

        /// Makes a column for people only.
        static func cell(_ title: String = "", _ text: @escaping (Row) -> String) -> Column {
            Column(title: title, cell: text)
        }

        /// Makes a member for programs only; `nil`: omitted.
        static func member(_ key: String, _ value: @escaping (Row) -> JSONValue?) -> Column {
            members { row in JSONObject(value(row).map { [(key, $0)] } ?? []) }
        }

        /// Makes members for programs only: an object that other commands show, too.
        static func members(_ members: @escaping (Row) -> JSONObject) -> Column {
            Column(members: members)
        }
    }

    /// The form of rows for programs: one array, or one line each.
    enum Form {
        case array, lines
    }

    let rows: [Row]
    let columns: [Column]
    /// The sentence for people instead of an empty table; without it, only the titles are printed.
    let empty: String?
    let form: Form

    init(_ rows: [Row], columns: [Column], empty: String? = nil, form: Form = .array) {
        (self.rows, self.columns, self.empty, self.form) = (rows, columns, empty, form)
    }

    /// Returns one row for programs. If two columns make the same member, the later column's value
    /// is used.
    func object(_ row: Row) -> JSONObject {
        var object: JSONObject = [:]
        for (key, value) in columns.compactMap({ $0.members?(row) }).joined() {
            object[key] = value
        }
        return object
    }

    var json: JSONValue { .array(rows.map { .object(object($0)) }) }

    /// Returns the table, below its titles if it has some; `more` rows follow, such as sums.
    func table(more: [[String]] = []) -> String {
        let shown = columns.filter { $0.cell != nil }
        let titles = shown.map(\.title)
        let head = titles.allSatisfy(\.isEmpty) ? [] : [titles]
        return Terminal.table(
            head + rows.map { row in shown.compactMap { $0.cell?(row) } } + more
        )
    }

    /// Returns the output; may be empty.
    func text(isJSON: Bool) -> String {
        switch form {
        case .array where isJSON: json.text
        case .lines where isJSON:
            rows.map { JSONValue.object(object($0)).text }.joined(separator: "\n")
        case .array, .lines: rows.isEmpty ? empty ?? table() : table()
        }
    }

    /// Prints the listing, and for people a note below a table with rows.
    ///
    /// - Parameters:
    ///   - arguments: The command's arguments, perhaps with `--json`.
    ///   - note: One line; `nil`: none.
    /// - Returns: The exit code of success.
    func say(_ arguments: Arguments, note: String? = nil) -> Int32 {
        let isJSON = arguments.has("--json")
        let text = text(isJSON: isJSON)
        if !text.isEmpty { Terminal.printLine(text) }
        if let note, !isJSON, !rows.isEmpty { Terminal.printLine(note) }
        return 0
    }
}

extension Arguments {
    /// Prints one object for programs, or its words for people, and returns the exit code.
    @discardableResult
    func answer(_ object: JSONObject, _ words: String, exitCode: Int32 = 0) -> Int32 {
        Terminal.printLine(has("--json") ? JSONValue.object(object).text : words)
        return exitCode
    }

    /// Prints one record: an object for programs, lines of a name and a value for people.
    @discardableResult
    func answer(_ object: JSONObject, lines: [[String]], exitCode: Int32 = 0) -> Int32 {
        answer(object, Terminal.table(lines), exitCode: exitCode)
    }
}
