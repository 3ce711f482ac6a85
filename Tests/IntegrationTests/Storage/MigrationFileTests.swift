import Foundation
import Testing

@testable import Storage

/// The form of the migration files, and that the build contains all of them.
@Suite("Migration files", .timeLimit(.minutes(1)))
struct MigrationFileTests {
    private static let folder = URL(filePath: #filePath)
        .deletingLastPathComponent()
        .appending(path: "../../../Shared/Storage/Schema/Migrations")

    @Test("The embedded files are those of the folder, in order, and all are valid")
    func embedded() throws {
        let files = try FileManager.default.contentsOfDirectory(
            at: Self.folder,
            includingPropertiesForKeys: nil
        ).sorted { $0.lastPathComponent < $1.lastPathComponent }
        let embedded = MigrationFile.embedded
        #expect(embedded.map { $0.name + ".sql" } == files.map(\.lastPathComponent))
        for (file, own) in zip(files, embedded) {
            #expect(try Data(contentsOf: file) == Data(own.text), "\(own.name)")
        }
        let migrations = try MigrationFile.migrations(embedded)
        #expect(migrations.count == files.count)
        #expect(Migration.all.map(\.statements) == migrations.map(\.statements))
    }

    private static let header = "-- oldest usable: 1\n--\n-- Reasons.\n"

    private static func statements(_ body: String) throws -> [String] {
        try MigrationFile("0001_a", Array((header + body).utf8)).migration().statements
    }

    @Test("The header has the version that may use the schema, and whether the file is complete")
    func headers() throws {
        let text = "-- oldest usable: 7\n-- whole\n--\n-- Reasons,\n-- two lines.\n\nSELECT 1;\n"
        let migration = try MigrationFile("0036_shards_lane", Array(text.utf8)).migration()
        #expect(migration.version == 36)
        #expect(migration.oldestUsable == 7)
        #expect(migration.isWhole)
        #expect(migration.statements == ["SELECT 1"])
        let part = try MigrationFile("0001_a", Array((Self.header + "SELECT 1;").utf8)).migration()
        #expect(part.oldestUsable == 1)
        #expect(!part.isWhole)
    }

    @Test(
        "A statement ends with a semicolon at a line's end, outside of quotes and comments",
        arguments: [
            ("\nA\n    b;\n\nC;\n", ["A\n    b", "C"]),
            ("-- Of the header; not a statement.\nA;  \nB\n;", ["A", "B"]),
            ("\n-- One;\n-- two.\nA; \n-- last;\n", ["A"]),
            ("\nA -- b;\n    c;\n", ["A -- b;\n    c"]),
            ("\nA (\n    -- b;\n    c);\n", ["A (\n    -- b;\n    c)"]),
            ("\nA 'b;\n' || ';';\nC '';\n", ["A 'b;\n' || ';'", "C ''"]),
            ("\nA 'it''s;\n';\n", ["A 'it''s;\n'"]),
            ("\nA \"b;\n\";\n", ["A \"b;\n\""]),
            ("\nA 'it''s -- no comment';\n", ["A 'it''s -- no comment'"]),
            ("\nA $$\nb;\n'c;\n$$;\nD;\n", ["A $$\nb;\n'c;\n$$", "D"]),
            ("\nA $body$\nb; $$;\n-- c\n$body$;\nD;\n", ["A $body$\nb; $$;\n-- c\n$body$", "D"]),
            ("\nA $1;\nB $2, $1;\n", ["A $1", "B $2, $1"]),
            ("\nA - b / c;\n", ["A - b / c"]),
            ("\nA '„Ä“';\n", ["A '„Ä“'"]),
        ]
    )
    func statements(_ body: String, _ expected: [String]) throws {
        #expect(try Self.statements(body) == expected)
    }

    @Test(
        "A file in another form is refused with its line",
        arguments: [
            ("0001_a", "", 1), ("0001_a", "\nSELECT 1;", 1),
            ("0001_a", "-- oldest usable: x\n--\n-- R\n\nA;\n", 1),
            ("0001_a", "-- oldest usable: 2\n--\n-- R\n\nA;\n", 1),
            ("0001_a", "-- oldest usable: 0\n--\n-- R\n\nA;\n", 1),
            ("0001_a", "-- Oldest usable: 1\n--\n-- R\n\nA;\n", 1),
            ("0001_a", "-- oldest usable: 1\n-- Whole\n--\n-- R\n\nA;\n", 1),
            ("0001_a", "-- oldest usable: 1\n-- R\n\nA;\n", 1),
            ("0001_a", "-- oldest usable: 1\n--\n\nA;\n", 1),
            ("0001_a", header + "\nA;\n;\n", 6), ("0001_a", header + ";\n", 4),
            ("0001_a", header + "\nA;\n-- b\n;\n", 7), ("0001_a", header + "\nA; B;\n", 5),
            ("0001_a", header + "\nA; -- b\n", 5), ("0001_a", header + "\nA\n", 5),
            ("0001_a", header + "\nA;\nB\n    c\n", 6), ("0001_a", header + "\nA 'b;\n", 5),
            ("0001_a", header + "\nA $$ b;\n", 5), ("0001_a", header + "\n/* a */ B;\n", 5),
            ("0001_a", header, 4), ("0001_a", header + "-- b\n", 5),
            ("001_a", header + "A;\n", 1), ("0001", header + "A;\n", 1),
            ("0001_A", header + "A;\n", 1), ("a001_a", header + "A;\n", 1),
        ]
    )
    func faults(_ name: String, _ text: String, line: Int) {
        let error = #expect(throws: MigrationFile.Fault.self) {
            try MigrationFile(name, Array(text.utf8)).migration()
        }
        #expect(error?.line == line)
        #expect(error?.description.hasPrefix("\(name).sql:\(line): ") == true)
    }

    @Test("Versions have no gap and no duplicate", arguments: [[2], [1, 3], [1, 1], [2, 1]])
    func versions(_ versions: [Int]) {
        let text = Array((Self.header + "A;\n").utf8)
        #expect(throws: MigrationFile.Fault.self) {
            try MigrationFile.migrations(versions.map { MigrationFile("000\($0)_a", text) })
        }
    }
}
