/// One statement of a migration, by the locks that it takes while services of the previous version work.
///
/// A migration blocks other statements only while it waits for locks and holds them. So each
/// statement is a separate transaction, which locks one existing table, and the tables that a
/// reference names. Indexes of large tables are built concurrently with writes.
struct MigrationStep: Equatable, Sendable {
    enum Kind: Equatable, Sendable {
        /// Creates something or changes the catalogue alone: its locks last for a moment.
        case brief
        /// An index of an existing table, which may be large.
        case index(name: String, table: String)
        /// Reads or writes all rows of an existing table, under a lock. Only for tables that grow
        /// slowly.
        case wholeTable
        /// Any other statement: it must be reviewed before it is used.
        case unknown
    }

    let sql: String
    let kind: Kind

    /// Returns the steps of statements in their order: indexes of a table that one of them creates are brief.
    static func steps(of statements: [String]) -> [MigrationStep] {
        var made: Set<String> = []
        return statements.map { sql in
            let words = words(of: sql)
            if let table = newTable(words) { made.insert(table) }
            return MigrationStep(sql: sql, kind: kind(of: words, made: made))
        }
    }

    /// Splits a statement into words. All migrations have names in lower case.
    private static func words(of sql: String) -> [String] {
        sql.split { $0.isWhitespace || $0 == "(" || $0 == ")" || $0 == "," || $0 == ";" }
            .map(String.init)
    }

    private static func newTable(_ words: [String]) -> String? {
        guard words.count > 2, words[0] == "CREATE", words[1] == "TABLE" else { return nil }
        return words[2]
    }

    private static func kind(of words: [String], made: Set<String>) -> Kind {
        guard words.count > 2 else { return .unknown }
        switch (words[0], words[1]) {
        case ("CREATE", "INDEX"), ("CREATE", "UNIQUE"):
            let rest = words[1] == "UNIQUE" ? words.dropFirst(3) : words.dropFirst(2)
            guard rest.count > 3, let name = rest.first, rest.dropFirst().first == "ON",
                let table = rest.dropFirst(2).first
            else { return .unknown }
            return made.contains(table) ? .brief : .index(name: name, table: table)
        case ("CREATE", "TABLE"), ("CREATE", "FUNCTION"), ("CREATE", "TRIGGER"), ("CREATE", "VIEW"),
            ("CREATE", "SEQUENCE"), ("CREATE", "OR"), ("DROP", "INDEX"), ("DROP", "TRIGGER"),
            ("DROP", "VIEW"), ("DROP", "FUNCTION"), ("DROP", "TABLE"), ("ALTER", "INDEX"):
            return .brief
        case ("ALTER", "TABLE"): return made.contains(words[2]) ? .brief : alteration(words)
        case ("INSERT", "INTO"): return words.contains("VALUES") ? .brief : .wholeTable
        case ("UPDATE", _), ("DELETE", "FROM"): return .wholeTable
        default: return .unknown
        }
    }

    /// Returns the kind of an ALTER TABLE. Changes of the catalogue alone are listed; all others may read or write
    /// every row.
    private static func alteration(_ words: [String]) -> Kind {
        // A stored column is computed for each row, and a constraint is checked for each row.
        let slow: Set<String> = [
            "STORED", "TYPE", "CHECK", "UNIQUE", "PRIMARY", "FOREIGN", "REFERENCES", "IDENTITY",
            "clock_timestamp", "random", "gen_random_uuid", "LOGGED", "UNLOGGED", "TABLESPACE",
        ]
        // A check that is not validated reads no existing row.
        if words.contains("CHECK"), words.suffix(2) == ["NOT", "VALID"] { return .brief }
        if words.contains(where: slow.contains) { return .wholeTable }
        let text = words.dropFirst(3).joined(separator: " ")
        let brief = ["ADD COLUMN ", "DROP COLUMN ", "SET fillfactor", "SET autovacuum"]
        if brief.contains(where: text.hasPrefix) { return .brief }
        guard text.hasPrefix("ALTER COLUMN ") else { return .unknown }
        let change = words.dropFirst(6).prefix(2).joined(separator: " ")
        return ["SET STORAGE", "SET DEFAULT", "DROP DEFAULT", "DROP NOT", "RESTART WITH"]
            .contains(change) || change.hasPrefix("RESTART") ? .brief : .unknown
    }
}
