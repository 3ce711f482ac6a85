import Support
import Testing

@testable import Postgres

@Suite(
    .timeLimit(.minutes(1)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct CopyRowsTests {
    private static let columns = ["i", "l", "a", "b", "c", "e", "f", "j"]

    private static func rows(_ count: Int) throws -> CopyRows {
        var constant = CopyCells()
        let isUUID = constant.uuid("6f1d3c6e-0000-8000-8000-0123456789ab")
        try #require(isUUID)
        constant.date(1_763_717_796_123_456)
        var rows = CopyRows(columns: columns.count, constant: constant, rows: count)
        for number in 0..<count {
            rows.append { cells in
                cells.smallint(-3)
                cells.integer(number)
                cells.bigint(1 << 40)
                cells.boolean(true)
                cells.text(number == 0 ? nil : "ü\(number)")
                cells.timestamp(number == 0 ? nil : 1_763_717_796_123_456)
            }
        }
        return rows
    }

    private static let table = """
        CREATE TABLE t (i uuid, l date, a smallint, b int, c bigint, e bool, f text, j timestamptz,
            CHECK (b <> 4000))
        """

    @Test("COPY in a transaction writes every cell unchanged, between other statements")
    func everyCell() async throws {
        try await TestPool.with { test in
            _ = try await test.pool.execute(Self.table)
            let rows = try Self.rows(3000)
            let seen = try await test.pool.transaction { transaction in
                #expect(
                    try await transaction.copyIn(table: "t", columns: Self.columns, rows) == 3000
                )
                _ = try await transaction.execute("DELETE FROM t WHERE b > 1")
                let empty = CopyRows(columns: 8)
                #expect(
                    try await transaction.copyIn(table: "t", columns: Self.columns, empty) == 0
                )
                return try await transaction.execute("SELECT * FROM t ORDER BY b")
            }
            #expect(seen.count == 2)
            #expect(try seen[0].textOrNil("f") == nil)
            #expect(try seen[0].timestampMicrosecondsOrNil("j") == nil)
            #expect(try seen[1].uuid("i") == "6f1d3c6e-0000-8000-8000-0123456789ab")
            #expect(try seen[1].text("l") == "2025-11-21")
            #expect(try seen[1].integer("a") == -3)
            #expect(try seen[1].integer("b") == 1)
            #expect(try seen[1].integer("c") == 1 << 40)
            #expect(try seen[1].boolean("e"))
            #expect(try seen[1].text("f") == "ü1")
            #expect(try seen[1].timestampMicroseconds("j") == 1_763_717_796_123_456)
            var notUUID = CopyCells()
            for text in ["6f1d3c6e-0000-8000-8000-0123456789ag", "6f1d3c6e"] {
                let isUUID = notUUID.uuid(text)
                #expect(!isUUID)
            }
            #expect(notUUID.bytes.isEmpty)
        }
    }

    @Test("A COPY that the server rejects rolls its transaction back, and the connection stays")
    func refused() async throws {
        try await TestPool.with { test in
            _ = try await test.pool.execute(Self.table)
            for count in [5000, 3] {
                let rows = try Self.rows(count)
                let columns = count == 3 ? Array(Self.columns.dropLast()) : Self.columns
                let error = try await postgresError {
                    try await test.pool.transaction { transaction in
                        _ = try await transaction.execute("INSERT INTO t (b) VALUES (1)")
                        _ = try await transaction.copyIn(table: "t", columns: columns, rows)
                    }
                }
                #expect(error.kind == .server)
                #expect(error.sqlState == (count == 3 ? "22P04" : "23514"))
            }
            let left = try await test.pool.transaction { transaction in
                try await transaction.execute("SELECT count(*) FROM t")
            }
            #expect(try left[0].integer(0) == 0)
        }
    }
}
