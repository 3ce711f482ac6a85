import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Moving in", .serialized, .timeLimit(.minutes(3)))
    struct ImportCommandTests {
        private static func withFile<Value>(
            _ text: String,
            _ body: (String) async throws -> Value
        ) async throws -> Value {
            let url = FileManager.default.temporaryDirectory
                .appending(path: "carillon-import-\(UUID().uuidString).jsonl")
            try Data(text.utf8).write(to: url)
            defer {
                try? FileManager.default.removeItem(at: url)
                try? FileManager.default.removeItem(atPath: url.path() + ".rejected")
            }
            return try await body(url.path(percentEncoded: false))
        }

        private static func line(_ number: Int, _ token: String? = nil) -> String {
            let digits = String(number, radix: 16)
            let padded = String(repeating: "0", count: 24 - digits.count) + digits
            return """
                {"objectId":"\(padded)","deviceType":"ios","deviceToken":"\(token ?? padded)",\
                "channels":["moved"],"city":"Oslo","plan":\(number % 100),\
                "createdAt":"2020-01-02T03:04:05.678Z","updatedAt":"2026-01-02T03:04:05.678Z"}
                """
        }

        /// Returns a statement that holds a token, so that no import can write it.
        private static func holding(_ token: String, seconds: Int) -> String {
            """
            SELECT count(pg_advisory_lock(
                hashtextextended(current_schema() || 'token shop \(token)', 0)));
            SELECT pg_sleep(\(seconds))
            """
        }

        private static let holders = """
            SELECT pid FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event = 'PgSleep'
            """

        private static let rollbacks = """
            SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()
            """

        private static func endHolder(on database: TestDatabase) async throws {
            _ = try await database.query(
                "SELECT count(pg_terminate_backend(pid)) FROM (\(holders)) h"
            )
        }

        private static func waitForHolder(on database: TestDatabase) async throws {
            _ = try await eventually("the lock is held") {
                try await database.query(holders).isEmpty ? nil : true
            }
        }

        @Test(
            "An import that is killed again and again has each line once, and reports each rejection"
        )
        func killed() async throws {
            let count = 40_000
            let lines = (0..<count).map { $0 % 1000 == 7 ? "{broken" : Self.line($0) }
            let bad = (0..<count).filter { $0 % 1000 == 7 }.map { $0 + 1 }
            try await withOperator { carillon in
                try await carillon.says("migrate")
                try await carillon.says("app", "create", "shop")
                try await Self.withFile(lines.joined(separator: "\n")) { path in
                    func records() async throws -> Int {
                        try await carillon.database.query("SELECT sum(records) FROM imports")
                            .first.flatMap { Int($0) } ?? 0
                    }
                    let words = [
                        "import", "leancloud", "shop", path, "--report", path + ".rejected",
                    ]
                    var kills = 0
                    while kills < 6 {
                        let before = try await records()
                        let process = try await carillon.start(
                            words[0],
                            words[1],
                            words[2],
                            words[3],
                            words[4],
                            words[5]
                        )
                        let reached = try await eventually("the import advances") {
                            let now = try await records()
                            return now > before ? now : nil
                        }
                        guard reached < count else {
                            _ = await process.exit()
                            break
                        }
                        process.signal(SIGKILL)
                        _ = await process.exit()
                        kills += 1
                    }
                    #expect(kills >= 3, "the import was too fast to be killed")
                    let last = try await carillon(words + ["--json"])
                    #expect(last.exit == .status(3), "\(last.errors)")
                    let end = try JSONValue.parse(last.output)
                    #expect(end["state"] == "finished" && end["records"] == .integer(Int64(count)))
                    #expect(end["imported"] == .integer(Int64(count - bad.count)))
                    #expect(end["rejected"] == .integer(Int64(bad.count)))
                    let rows = try await carillon.database.query(
                        """
                        SELECT count(*), count(DISTINCT token), sum((fields->>'plan')::int),
                            min(updated_at)::timestamptz AT TIME ZONE 'UTC' FROM installations
                        """
                    )
                    let plans = (0..<count).filter { $0 % 1000 != 7 }.reduce(0) { $0 + $1 % 100 }
                    #expect(
                        rows == [
                            "\(count - bad.count)|\(count - bad.count)|\(plans)|2026-01-02 03:04:05.678"
                        ]
                    )
                    let reported = try String(contentsOfFile: path + ".rejected", encoding: .utf8)
                        .split(separator: "\n").map { try JSONValue.parse(String($0)) }
                    #expect(reported.compactMap { $0["line"]?.integer } == bad)
                    // All lines are there: a second import changes nothing.
                    let again = try await carillon(words.dropLast(2) + ["--json"])
                    #expect(try JSONValue.parse(again.output)["skipped"] == end["imported"])
                    let list = try await carillon.json("import", "list", "shop")
                    #expect(list.array?.count == 2 && list[0]?["state"] == "finished")
                    let shown = try await carillon.says("import", "show", "shop", "1")
                    #expect(shown.contains("invalid JSON") && shown.contains("line 8, 1008"))
                }
            }
        }

        @Test(
            "Ctrl-C ends an import after its batch, and a pipe, a dry run and errors have their codes"
        )
        func codes() async throws {
            try await withOperator { carillon in
                try await carillon.says("migrate")
                try await carillon.says("app", "create", "shop")
                let lines = (0..<30_000).map { Self.line($0) }.joined(separator: "\n")
                try await Self.withFile(lines) { path in
                    // It cannot end before the signal.
                    let last = try #require(
                        try JSONValue.parse(Self.line(29_999))["deviceToken"]?.string
                    )
                    async let holder = carillon.database.query(Self.holding(last, seconds: 60))
                    try await Self.waitForHolder(on: carillon.database)
                    let process = try await carillon.start("import", "leancloud", "shop", path)
                    _ = try await eventually("the import advances") {
                        try await carillon.database.query(
                            "SELECT id FROM imports WHERE records > 0"
                        )
                        .isEmpty ? nil : true
                    }
                    process.signal(SIGINT)
                    try await Self.endHolder(on: carillon.database)
                    _ = try? await holder
                    #expect(await process.exit() == .status(130))
                    #expect(process.lines(of: .errors).contains { $0.contains("the same command") })
                    let other = try await carillon(
                        ["import", "leancloud", "shop", path, "--existing", "keep"]
                    )
                    #expect(other.exit == .status(64) && other.errors.contains("--restart"))
                    let end = try await carillon.json("import", "leancloud", "shop", path)
                    #expect(end["imported"] == 30_000 && end["id"] == 1)
                }
                let csv = "token,platform\nf:1,android\nf:2,fcm\n"
                let dry = try await carillon(
                    ["import", "csv", "shop", "-", "--dry-run", "--json"],
                    input: csv
                )
                #expect(try JSONValue.parse(dry.output)["imported"] == 2 && dry.exit == .status(0))
                let piped = try await carillon(["import", "csv", "shop", "-"], input: csv)
                #expect(piped.exit == .status(0) && piped.errors.contains("cannot be read again"))
                #expect(piped.output.contains("2 imported"))
                _ = try await carillon.refuses("import", "csv", "shop", "/none.csv", code: 64)
                _ = try await carillon.refuses("import", "csv", "none", "-", input: csv)
                #expect(
                    try await carillon.refuses(
                        "import",
                        "csv",
                        "shop",
                        "-",
                        input: "a,b\n",
                        code: 64
                    )
                    .contains("no column has a device's address")
                )
            }
        }

        @Test("A device in several batches is imported once, with its last values")
        func severalBatches() async throws {
            let (devices, times) = (1500, 4)
            let lines = (0..<times).flatMap { time in
                (0..<devices).map { device in
                    Self.line(device).replacing("2026-01-02", with: "2026-01-0\(time + 2)")
                }
            }
            try await withOperator { carillon in
                try await carillon.says("migrate")
                try await carillon.says("app", "create", "shop")
                try await Self.withFile(lines.joined(separator: "\n")) { path in
                    let end = try await carillon.json("import", "leancloud", "shop", path)
                    #expect(end["imported"]?.integer == devices)
                    #expect(end["updated"]?.integer == devices * (times - 1))
                }
                let rows = try await carillon.database.query(
                    """
                    SELECT count(*), count(DISTINCT token), min(updated_at AT TIME ZONE 'UTC')
                    FROM installations
                    """
                )
                #expect(rows == ["\(devices)|\(devices)|2026-01-05 03:04:05.678"])
            }
        }

        @Test("Batches that decide the types of fields never wait for each other in the database")
        func newFields() async throws {
            let count = 1500
            let lines = (0..<count).map { Self.line($0) }.joined(separator: "\n")
            try await withOperator { carillon in
                try await carillon.says("migrate")
                try await carillon.says("app", "create", "shop")
                let before = try await carillon.database.query(Self.rollbacks)
                try await Self.withFile(lines) { path in
                    let end = try await carillon.json("import", "leancloud", "shop", path)
                    #expect(end["imported"]?.integer == count)
                }
                #expect(try await carillon.database.query(Self.rollbacks) == before)
            }
        }

        @Test("A batch that has to be repeated does not change the order of the commits")
        func repeated() async throws {
            let count = 6000
            let lines = (0..<count).map { Self.line($0) }.joined(separator: "\n")
            let held = try #require(try JSONValue.parse(Self.line(2500))["deviceToken"]?.string)
            try await withOperator { carillon in
                try await carillon.says("migrate")
                try await carillon.says("app", "create", "shop")
                let before = try await carillon.database.query(Self.rollbacks)
                async let holder = carillon.database.query(Self.holding(held, seconds: 60))
                try await Self.waitForHolder(on: carillon.database)
                try await Self.withFile(lines) { path in
                    async let end = carillon.json("import", "leancloud", "shop", path)
                    _ = try await eventually("a batch is rolled back") {
                        try await carillon.database.query(Self.rollbacks) == before ? nil : true
                    }
                    try await Self.endHolder(on: carillon.database)
                    #expect(try await end["imported"]?.integer == count)
                }
                _ = try? await holder
                let rows = try await carillon.database.query(
                    """
                    SELECT (SELECT count(*) FROM installations), records, imported, state
                    FROM imports
                    """
                )
                #expect(rows == ["\(count)|\(count)|\(count)|finished"])
            }
        }

        @Test("An imported device gets a push to its channel")
        func push() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let dispatcher = try await stack.start("carillon-dispatcher")
                let token = makeAPNsToken()
                try await Self.withFile(Self.line(1, token)) { path in
                    let told = try await stack.carillon("import", "leancloud", app.id, path)
                    #expect(told.contains("1 imported"))
                }
                _ = try await stack.carillon(
                    "push",
                    "send",
                    app.id,
                    "--channel",
                    "moved",
                    "--where",
                    #"{"city": "Oslo"}"#,
                    "--alert",
                    "Moved",
                    "--wait"
                )
                #expect(try await stack.simulator.received(for: token).count == 1)
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }
    }
}
