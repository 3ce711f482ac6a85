import Foundation
import Storage
import Support
import Testing

/// `Shared/Storage/Schema/schema.sql` shows the tables after all migrations.
@Suite(
    "The schema in one file",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct SchemaFileTests {
    private static let file = URL(filePath: #filePath)
        .deletingLastPathComponent()
        .appending(path: "../../../Shared/Storage/Schema/schema.sql")

    private static let heading = """
        -- What all migrations together leave, as a reference: nothing reads this file but a test, which
        -- compares it with a migrated database. After a new migration:
        --
        --     UPDATE_SCHEMA=1 deploy/test --filter SchemaFileTests
        --
        -- Partitions are left out, as they are made by the day.

        """

    @Test("schema.sql matches a migrated database")
    func file() async throws {
        try await StorageFixture.run(migrated: false) { fixture in
            _ = try await fixture.database.migrate()
            var found = Self.heading + "\n"
            for sql in [Self.tables, Self.views, Self.functions] {
                found += try await fixture.server.query(sql).joined(separator: "\n") + "\n"
            }
            if TestEnvironment.value("UPDATE_SCHEMA") != nil {
                try Data(found.utf8).write(to: Self.file)
            }
            let written = String(decoding: try Data(contentsOf: Self.file), as: UTF8.self)
            for (line, other) in zip(lines(written), lines(found)) { try #require(line == other) }
            #expect(lines(written).count == lines(found).count)
        }
    }

    private func lines(_ text: String) -> [Substring] {
        text.split(separator: "\n", omittingEmptySubsequences: false)
    }

    /// One table after another: columns, constraints, then indexes and triggers.
    private static let tables = """
        WITH tables AS (
            SELECT c.oid, c.oid::regclass::text AS name, c.relkind FROM pg_class c
            WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
                AND NOT c.relispartition
        ), columns AS (
            SELECT t.oid, string_agg(format('    %I %s%s%s', a.attname,
                    format_type(a.atttypid, a.atttypmod)
                        || CASE WHEN a.attcollation NOT IN (0, y.typcollation)
                            THEN ' COLLATE ' || quote_ident(o.collname) ELSE '' END,
                    CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END,
                    CASE WHEN a.attgenerated = 's'
                            THEN ' GENERATED ALWAYS AS (' || pg_get_expr(d.adbin, d.adrelid) || ') STORED'
                        WHEN a.attidentity <> '' THEN ' GENERATED AS IDENTITY'
                        WHEN d.adbin IS NOT NULL THEN ' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid)
                        ELSE '' END),
                E',\\n' ORDER BY a.attnum) AS lines
            FROM tables t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0
                AND NOT a.attisdropped
            JOIN pg_type y ON y.oid = a.atttypid
            LEFT JOIN pg_collation o ON o.oid = a.attcollation
            LEFT JOIN pg_attrdef d ON d.adrelid = t.oid AND d.adnum = a.attnum
            GROUP BY t.oid
        ), constraints AS (
            SELECT t.oid, string_agg('    ' || pg_get_constraintdef(k.oid), E',\\n'
                ORDER BY k.contype DESC, pg_get_constraintdef(k.oid)) AS lines
            FROM tables t JOIN pg_constraint k ON k.conrelid = t.oid AND k.contype IN ('p', 'u', 'f', 'c')
            GROUP BY t.oid
        ), others AS (
            SELECT i.oid, string_agg(i.definition, E'\\n' ORDER BY i.definition) AS lines
            FROM (
                SELECT t.oid, pg_get_indexdef(x.indexrelid) || ';' AS definition
                FROM tables t JOIN pg_index x ON x.indrelid = t.oid
                WHERE NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = x.indexrelid
                    AND k.conrelid = t.oid AND k.contype IN ('p', 'u'))
                UNION ALL
                SELECT t.oid, pg_get_triggerdef(g.oid) || ';'
                FROM tables t JOIN pg_trigger g ON g.tgrelid = t.oid AND NOT g.tgisinternal) i
            GROUP BY i.oid
        )
        SELECT format(E'CREATE TABLE %s (\\n%s\\n)%s;%s\\n', t.name,
            concat_ws(E',\\n', c.lines, k.lines),
            CASE WHEN t.relkind = 'p' THEN ' PARTITION BY ' || pg_get_partkeydef(t.oid) ELSE '' END,
            E'\\n' || o.lines)
        FROM tables t JOIN columns c USING (oid) LEFT JOIN constraints k USING (oid)
        LEFT JOIN others o USING (oid) ORDER BY t.name COLLATE "C"
        """

    /// Only their columns, as Postgres prints a query differently by version.
    private static let views = """
        SELECT format(E'-- VIEW %s (\\n%s\\n-- )', c.oid::regclass,
            string_agg(format('--     %I %s', a.attname, format_type(a.atttypid, a.atttypmod)),
                E',\\n' ORDER BY a.attnum))
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'v'
        GROUP BY c.oid ORDER BY c.oid::regclass::text COLLATE "C"
        """

    private static let functions = """
        SELECT pg_get_functiondef(p.oid) || E';\\n' FROM pg_proc p
        WHERE p.pronamespace = 'public'::regnamespace ORDER BY p.proname COLLATE "C"
        """
}
