import EventLoop
import Postgres
import Support
import Synchronization
import Testing

@testable import Storage

/// The effect of a migration on services of the version before, which keep running.
@Suite(
    .timeLimit(.minutes(4)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct MigrationLoadTests {
    /// A schema in use: the next migrations lock all tables that are written to.
    private static let before = 20

    private static let setting = """
        insert into apps (id, id_folded, app_key_sealed, app_key_digest, master_key_sealed,
            master_key_digest) values ('shop', 'shop', 'a', 'a', 'a', 'a');
        insert into installations (app, object_id, device_type)
            select 'shop', 'device-' || n, 'ios' from generate_series(0, 9) n;
        insert into pushes (id, app, event_source, event_id, request, status)
            values ('00000000-0000-0000-0000-000000000001', 'shop', 's', 'e', '{}', 'done')
        """

    private static func run(_ body: (StorageFixture) async throws -> Void) async throws {
        try await StorageFixture.run(migrated: false) { fixture in
            _ = try await fixture.database.schema.migrate(to: before)
            _ = try await fixture.server.query(setting)
            try await body(fixture)
        }
    }

    /// Runs the transaction of a single push, in the dispatchers' order: the event, the push, its
    /// delivery, the badge.
    private static func single(_ number: Int, _ transaction: PostgresTransaction) async throws {
        for sql in [
            """
            insert into event_keys (app, source, id, push_id)
            values ('shop', 's', 'event-\(number)', gen_random_uuid())
            """,
            "update pushes set delivered = delivered + 1 where app = 'shop'",
            """
            insert into deliveries (day, push_id, target, app, provider, token, lane)
            values (current_date, gen_random_uuid(), 'device', 'shop', 'apns', 't', 0)
            """,
            "update installations set badge = badge + 1 where object_id = 'device-\(number % 10)'",
            "insert into outbox (kafka_topic, value) values ('t', 'v')",
            "select settings from apps where id = 'shop' for share",
        ] {
            _ = try await transaction.execute(sql, isPrepared: false)
        }
    }

    @Test("Promise 11: a migration fails no push, badge or save that is written meanwhile")
    func underLoad() async throws {
        for _ in 0..<3 {
            try await Self.run { fixture in
                let pool = fixture.database.database.pool
                let done = Count()
                try await withThrowingTaskGroup { group in
                    for writer in 0..<6 {
                        group.addTask {
                            var number = writer
                            while !Task.isCancelled {
                                let current = number
                                do {
                                    try await pool.transaction { transaction in
                                        try await Self.single(current, transaction)
                                    }
                                } catch {
                                    if Task.isCancelled { return }
                                    throw error
                                }
                                done.value.add(1, ordering: .relaxed)
                                number += 6
                            }
                        }
                    }
                    _ = try await eventually("all write") {
                        done.value.load(ordering: .relaxed) > 50 ? true : nil
                    }
                    try await fixture.another { other in
                        let applied = try await other.migrate()
                        #expect(applied.last == PushDatabase.schemaVersion)
                    }
                    group.cancelAll()
                    try await group.waitForAll()
                }
                let errors = try await fixture.server.query(
                    "select deadlocks from pg_stat_database where datname = current_database()"
                )
                #expect(errors == ["0"])
            }
        }
    }

    @Test("Promise 11: a migration whose table is locked lets saves go first, repeatedly")
    func givesWay() async throws {
        try await Self.run { fixture in
            let pool = fixture.database.database.pool
            let isFree = Gate()
            let blocker = Task {
                try await pool.transaction { transaction in
                    for table in ["pushes", "installations", "event_keys", "outbox", "apps"] {
                        let column = table == "outbox" ? "kafka_topic" : "app"
                        _ = try await transaction.execute(
                            "delete from \(table) where \(table == "apps" ? "id" : column) = 'none'"
                        )
                    }
                    await isFree.wait()
                }
            }
            let migrating = Task(executorPreference: fixture.loop) {
                var applied: [Int] = []
                try await fixture.another { applied = try await $0.migrate() }
                return applied
            }
            var waits = 0
            var saves = 0
            while waits < 3 {
                let number = 1 + saves
                // Each of these would wait for a migration that holds the lock queue for seconds.
                try await pool.transaction { transaction in
                    _ = try await transaction.execute("set local lock_timeout = '1s'")
                    try await Self.single(number, transaction)
                }
                saves += 1
                let waiting = try await pool.execute(
                    """
                    select count(*)::int as number from pg_stat_activity
                    where datname = current_database() and wait_event_type = 'Lock'
                        and pid <> pg_backend_pid() and query ~* '^ *(alter|create|drop) '
                    """
                )
                waits += try waiting.first?.integer("number") ?? 0
            }
            #expect(saves > 0)
            await isFree.open()
            try await blocker.value
            #expect(try await migrating.value.last == PushDatabase.schemaVersion)
        }
    }

    /// The entire schema as text; names that Postgres chose are left out.
    private static let shape = """
        select 'column ' || table_name || ' ' || column_name || ' ' || data_type || ' ' || is_nullable
            || ' ' || coalesce(column_default, '') || ' ' || is_generated
        from information_schema.columns where table_schema = current_schema()
        union all select 'index ' || indexdef from pg_indexes where schemaname = current_schema()
        union all select 'constraint ' || conrelid::regclass || ' ' || pg_get_constraintdef(oid)
            from pg_constraint where connamespace = current_schema()::regnamespace
        union all select 'trigger ' || pg_get_triggerdef(oid) from pg_trigger where not tgisinternal
        union all select 'function ' || proname from pg_proc
            where pronamespace = current_schema()::regnamespace
        union all select 'invalid ' || indexrelid::regclass from pg_index where not indisvalid
        union all select 'step ' || version || ' ' || step from carillon_schema_steps
        order by 1
        """

    @Test(
        "Promise 11: an interrupted migration is completed by the next, with the same result"
    )
    func endedAnywhere() async throws {
        var whole: [String] = []
        try await Self.run { fixture in
            _ = try await fixture.database.migrate()
            whole = try await fixture.server.query(Self.shape)
        }
        try await Self.run { fixture in
            var ends = 0
            while true {
                let steps =
                    "(select count(*) from carillon_schema_steps) || ' ' || (select max(version)"
                    + " from carillon_schema)"
                let start = try await fixture.server.query("select \(steps)")
                let migrating = Task(executorPreference: fixture.loop) {
                    try await fixture.another { _ = try await $0.migrate() }
                }
                let isOver = Count()
                let watch = Task {
                    _ = await migrating.result
                    isOver.value.store(1, ordering: .relaxed)
                }
                while isOver.value.load(ordering: .relaxed) == 0,
                    try await fixture.server.query("select \(steps)") == start
                {}
                // Its connections end with it.
                _ = try await fixture.server.query(
                    """
                    select pg_terminate_backend(pid) from pg_stat_activity
                    where datname = current_database() and pid <> pg_backend_pid()
                    """
                )
                migrating.cancel()
                await watch.value
                ends += 1
                let version = try await fixture.server.query(
                    "select max(version) from carillon_schema"
                )
                if version == ["\(PushDatabase.schemaVersion)"] { break }
            }
            #expect(ends > 1)
            #expect(try await fixture.server.query(Self.shape) == whole)
        }
    }

    @Test("Indexes of large tables are built without blocking writes, also for partitioned ones")
    func largeTables() async throws {
        try await Self.run { fixture in
            _ = try await fixture.server.query(
                """
                insert into pushes (id, app, event_source, event_id, request, status)
                select gen_random_uuid(), 'shop', 's', 'e', '{}', 'done' from generate_series(1, 20000);
                create table deliveries_20200101 partition of deliveries
                    for values from ('2020-01-01') to ('2020-01-02');
                insert into deliveries (day, push_id, target, app, provider, token, lane)
                select '2020-01-01', gen_random_uuid(), 'd', 'shop', 'apns', 't', 0
                from generate_series(1, 20000)
                """
            )
            let migration = Migration(
                version: before21,
                oldestUsable: 1,
                statements: [
                    "CREATE INDEX pushes_large ON pushes (app, id) WHERE status = 'done'",
                    """
                    CREATE INDEX deliveries_large
                        ON deliveries (provider, lane) WHERE state = 0
                    """,
                ]
            )
            let schema = fixture.database.schema
            #expect(try await schema.apply(migration, isNew: false))
            #expect(try await !schema.apply(migration, isNew: false))
            let indexes = try await fixture.server.query(
                """
                select indexrelid::regclass from pg_index
                where indexrelid::regclass::text like '%large' and indisvalid
                """
            )
            #expect(
                Set(indexes) == [
                    "pushes_large", "deliveries_large", "deliveries_20200101_deliveries_large",
                ]
            )
        }
    }

    private let before21 = Self.before + 1

    @Test("Every statement of a migration blocks others for a moment at most")
    func statements() {
        // The tables are small, or older than the rule: a generated column rewrites a table.
        let exceptions: [Int: Set<String>] = [
            8: ["ALTER TABLE pushes ADD COLUMN is_planning"],
            12: ["ALTER TABLE installations ADD COLUMN seen_on"],
            16: ["UPDATE credentials c"],
            // Erasures in progress.
            31: ["WITH begun AS (DELETE FROM erasures"],
        ]
        for migration in Migration.all {
            for step in MigrationStep.steps(of: migration.statements) {
                let text = step.sql.split(whereSeparator: \.isWhitespace).joined(separator: " ")
                let isException = exceptions[migration.version, default: []].contains {
                    text.hasPrefix($0)
                }
                switch step.kind {
                case .brief, .index: #expect(!isException)
                case .wholeTable, .unknown:
                    #expect(isException, "migration \(migration.version): \(text)")
                }
            }
            #expect(migration.isWhole == [8, 12].contains(migration.version))
        }
    }

    @Test(
        "A statement that reads or writes every row is distinguished from a change of the catalogue",
        arguments: [
            ("ALTER TABLE pushes ADD COLUMN a text NOT NULL DEFAULT ''", .brief),
            ("ALTER TABLE pushes ADD COLUMN a int GENERATED ALWAYS AS (1) STORED", .wholeTable),
            ("ALTER TABLE pushes ALTER COLUMN app TYPE bytea", .wholeTable),
            ("ALTER TABLE pushes ADD CONSTRAINT a CHECK (true)", .wholeTable),
            ("ALTER TABLE pushes ADD CONSTRAINT a CHECK (true) NOT VALID", .brief),
            ("ALTER TABLE pushes ADD COLUMN a uuid DEFAULT gen_random_uuid()", .wholeTable),
            ("ALTER TABLE pushes ALTER COLUMN app SET NOT NULL", .unknown),
            ("ALTER TABLE pushes CLUSTER ON a", .unknown),
            ("UPDATE pushes SET app = ''", .wholeTable),
            ("INSERT INTO a SELECT * FROM pushes", .wholeTable),
            ("CREATE UNIQUE INDEX a\n    ON pushes (app)", .index(name: "a", table: "pushes")),
            ("CREATE INDEX a ON pushes USING hash (app)", .index(name: "a", table: "pushes")),
            ("VACUUM FULL pushes", .unknown),
            ("DO $$ BEGIN END $$", .unknown),
        ] as [(String, MigrationStep.Kind)]
    )
    func kinds(_ sql: String, _ kind: MigrationStep.Kind) {
        #expect(MigrationStep.steps(of: [sql]).map(\.kind) == [kind])
        let made = MigrationStep.steps(of: ["CREATE TABLE pushes (a int)", sql])
        if case .index = kind { #expect(made[1].kind == .brief) }
    }
}

private final class Count: Sendable {
    let value = Atomic(0)
}
