/// One migration as a file of SQL, such as `0036_shards_lane.sql`: the name begins with its version.
///
/// The file begins with comments: `-- oldest usable: 1`, then `-- whole` if the migration is, then
/// an empty comment and the reasons. A statement ends with `;` at the end of a line, outside of
/// quotes, dollar quotes and comments. Comments before a statement are for people; comments inside
/// a statement are part of it.
struct MigrationFile: Sendable {
    /// The file's name, without `.sql`.
    let name: String
    let text: [UInt8]

    init(_ name: String, _ text: [UInt8]) {
        self.name = name
        self.text = text
    }

    struct Fault: Error, Equatable, CustomStringConvertible {
        let file: String
        let line: Int
        let problem: String

        var description: String { "\(file).sql:\(line): \(problem)" }
    }

    /// - Throws: `Fault`, also if the versions are not 1, 2, 3 and so on.
    static func migrations(_ files: [MigrationFile]) throws(Fault) -> [Migration] {
        var migrations: [Migration] = []
        for file in files {
            let migration = try file.migration()
            guard migration.version == migrations.count + 1 else {
                throw file.fault(at: 0, "must have version \(migrations.count + 1)")
            }
            migrations.append(migration)
        }
        return migrations
    }

    func migration() throws(Fault) -> Migration {
        guard name.wholeMatch(of: /[0-9]{4}_[a-z0-9_]+/) != nil, let version = Int(name.prefix(4))
        else { throw fault(at: 0, "the name must be four digits and words, as in 0001_a_b") }
        let (header, end) = header()
        guard let first = header.first, first.hasPrefix("-- oldest usable: "),
            let oldestUsable = Int(first.dropFirst(18)), (1...version).contains(oldestUsable)
        else {
            throw fault(at: 0, "the first line must be `-- oldest usable: N`, N 1...\(version)")
        }
        let isWhole = header.dropFirst().first == "-- whole"
        let reasons = header.dropFirst(isWhole ? 2 : 1)
        guard reasons.first == "--", reasons.count > 1 else {
            throw fault(at: 0, "the header must end with an empty comment and the reasons")
        }
        return Migration(
            version: version,
            oldestUsable: oldestUsable,
            isWhole: isWhole,
            statements: try statements(from: end)
        )
    }

    /// Returns the comments at the beginning, one a line, and where they end.
    private func header() -> (lines: [String], end: Int) {
        var lines: [String] = []
        var position = 0
        while text[position...].starts(with: "--".utf8) {
            let end = endOfLine(from: position)
            lines.append(String(decoding: text[position..<end], as: UTF8.self))
            position = min(end + 1, text.count)
        }
        return (lines, position)
    }

    private func statements(from header: Int) throws(Fault) -> [String] {
        var found: [String] = []
        var start: Int?
        var position = header
        while position < text.count {
            let byte = text[position]
            let rest = text[position...]
            if Self.isSpace(byte) {
                position += 1
                continue
            }
            if rest.starts(with: "--".utf8) {
                position = endOfLine(from: position)
                continue
            }
            if byte == UInt8(ascii: ";") {
                guard let begin = start else { throw fault(at: position, "an empty statement") }
                let line = text[position + 1..<endOfLine(from: position)]
                guard line.allSatisfy(Self.isSpace) else {
                    throw fault(at: position, "a statement must end its line")
                }
                var end = position
                while Self.isSpace(text[end - 1]) { end -= 1 }
                found.append(String(decoding: text[begin..<end], as: UTF8.self))
                start = nil
                position += 1
                continue
            }
            if rest.starts(with: "/*".utf8) { throw fault(at: position, "use `--` for comments") }
            start = start ?? position
            position = try endOfToken(from: position)
        }
        if let start { throw fault(at: start, "a statement must end with `;`") }
        guard !found.isEmpty else { throw fault(at: header, "must have a statement") }
        return found
    }

    /// Returns the end of the quoted string at `position`, or the next position if no string begins
    /// there. A doubled quote ends one string and begins another.
    private func endOfToken(from position: Int) throws(Fault) -> Int {
        let mark: [UInt8]
        switch text[position] {
        case UInt8(ascii: "'"), UInt8(ascii: "\""): mark = [text[position]]
        case UInt8(ascii: "$"):
            let tag = text[(position + 1)...].prefix { $0 == 0x5f || (0x61...0x7a).contains($0) }
            mark = [UInt8(ascii: "$")] + tag + [UInt8(ascii: "$")]
            guard text[position...].starts(with: mark) else { return position + 1 }
        default: return position + 1
        }
        guard let end = text[(position + mark.count)...].firstRange(of: mark)?.upperBound else {
            throw fault(at: position, "a quote that does not end")
        }
        return end
    }

    private func endOfLine(from position: Int) -> Int {
        text[position...].firstIndex(of: UInt8(ascii: "\n")) ?? text.count
    }

    private func fault(at position: Int, _ problem: String) -> Fault {
        let line = 1 + text[..<position].count { $0 == UInt8(ascii: "\n") }
        return Fault(file: name, line: line, problem: problem)
    }

    private static func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x0a }
}
