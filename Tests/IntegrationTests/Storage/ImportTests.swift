import Foundation
import InstallationStorage
import JSON
import Postgres
import PushCore
import Storage
import StorageAdmin
import Support
import Testing

@testable import Importing

@Suite(
    "Imports",
    .timeLimit(.minutes(3)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct ImportTests {
    private static let app = StorageFixture.app

    private static func withFile<Value>(
        _ text: String,
        _ body: (String) async throws -> Value
    ) async throws -> Value {
        let url = FileManager.default.temporaryDirectory
            .appending(path: "carillon-import-\(UUID().uuidString)")
        try Data(text.utf8).write(to: url)
        defer { try? FileManager.default.removeItem(at: url) }
        return try await body(url.path(percentEncoded: false))
    }

    private static func line(
        _ id: String,
        token: String? = nil,
        updated: String = "2026-01-02T03:04:05.678Z",
        _ more: JSONObject = [:]
    ) -> String {
        var object: JSONObject = [
            "objectId": .string(id), "deviceType": "ios", "channels": ["news"],
            "createdAt": "2020-01-02T03:04:05.678Z", "updatedAt": .string(updated),
        ]
        object["deviceToken"] = .string(token ?? hex(id))
        for (name, value) in more { object[name] = value }
        return JSONValue.object(object).text
    }

    private static func hex(_ text: String) -> String {
        let digits = text.utf8.map { String($0, radix: 16) }.joined()
        return digits + String(repeating: "0", count: max(0, 64 - digits.count))
    }

    /// Imports a text as a file of its own.
    @discardableResult
    private static func importing(
        _ text: String,
        _ database: PushDatabase,
        _ format: ImportFormat = .leancloud,
        options: ImportOptions = ImportOptions()
    ) async throws -> ImportRun.End {
        try await withFile(text) { path in
            let input = ImportInput.file(path)
            let job = try await database.imports.create(
                app: app,
                format: format,
                file: try input.open().fingerprint,
                options: options,
                author: "test"
            )
            return try await ImportRun(database, input).run(job.id, app: app)
        }
    }

    private static func counts(_ end: ImportRun.End) -> [Int] {
        let counts = end.job.counts
        #expect(
            counts.records
                == counts.imported + counts.updated + counts.skipped + counts.rejected
        )
        return [counts.imported, counts.updated, counts.skipped, counts.rejected]
    }

    @Test(
        "Devices keep their ids, times and fields, are found, and a second import changes nothing"
    )
    func imports() async throws {
        let text = (0..<2500).map { number in
            Self.line(
                "id\(number)",
                [
                    "city": "Oslo", "plan": .integer(Int64(number % 100)),
                    "identity": "u\(number / 2)",
                ]
            )
        }.joined(separator: "\n")
        try await StorageFixture.run { fixture in
            let first = try await Self.importing(text, fixture.database)
            #expect(Self.counts(first) == [2500, 0, 0, 0] && first.job.state == .finished)
            #expect(first.job.position.line == 2500 && first.job.share == 1)
            let found = try await fixture.database.installations.find(
                app: Self.app,
                objectID: "id7"
            )
            let device = try #require(found)
            #expect(device.createdAt.iso8601 == "2020-01-02T03:04:05.678Z")
            #expect(device.updatedAt.iso8601 == "2026-01-02T03:04:05.678Z")
            #expect(device.token == Self.hex("id7") && device.platform == .apns)
            #expect(device.channels == ["news"] && device.identity == "u3" && device.isValid)
            #expect(device.fields["city"] == "Oslo" && device.tokenUpdatedAt == device.updatedAt)
            let plan = try Where.parse(["plan": 7, "channels": "news"])
            let matching = try await fixture.database.installations.count(
                app: Self.app,
                where: plan
            )
            #expect(matching == 25)
            let types = try await fixture.database.fields.list(app: Self.app)
            #expect(types.map(\.name) == ["city", "plan"])
            let rows = "SELECT md5(string_agg(i::text, '' ORDER BY object_id)) FROM installations i"
            let before = try await fixture.server.query(rows)
            let second = try await Self.importing(text, fixture.database)
            #expect(Self.counts(second) == [0, 0, 2500, 0])
            #expect(try await fixture.server.query(rows) == before)
            // A save by the token finds the imported device.
            let saved = try await fixture.install(fixture.iPhone(Self.hex("id7")))
            #expect(saved.objectID == "id7" && saved.fields["city"] == "Oslo")
        }
    }

    @Test("Of two devices with one id, token or installationId, the rule decides")
    func existing() async throws {
        let (old, new) = ("2021-01-01T00:00:00.000Z", "2026-06-01T00:00:00.000Z")
        try await StorageFixture.run { fixture in
            let database = fixture.database
            func city(_ id: String) async throws -> String? {
                let found = try await database.installations.find(app: Self.app, objectID: id)
                return found?.fields["city"]?.string
            }
            try await Self.importing(
                [
                    Self.line("a", updated: "2025-01-01T00:00:00.000Z", ["city": "Oslo"]),
                    Self.line("b", updated: "2025-01-01T00:00:00.000Z", ["city": "Oslo"]),
                ].joined(separator: "\n"),
                database
            )
            let text = [
                Self.line("a", updated: old, ["city": "Rome"]),
                Self.line("b", updated: new, ["city": "Rome"]),
                // The token of "a" under another id, and older.
                Self.line("c", token: Self.hex("a"), updated: old, ["city": "Rome"]),
            ].joined(separator: "\n")
            #expect(
                Self.counts(
                    try await Self.importing(text, database, options: .init(existing: .keep))
                ) == [0, 0, 3, 0]
            )
            #expect(Self.counts(try await Self.importing(text, database)) == [0, 1, 2, 0])
            #expect(try await [city("a"), city("b"), city("c")] == ["Oslo", "Rome", nil])
            #expect(
                Self.counts(
                    try await Self.importing(text, database, options: .init(existing: .replace))
                ) == [0, 3, 0, 0]
            )
            #expect(try await [city("a"), city("b"), city("c")] == [nil, "Rome", "Rome"])
            // Two devices swap their tokens, and one gets its id back, in one batch.
            let swap = [
                Self.line("b", token: Self.hex("a"), updated: "2026-07-01T00:00:00.000Z"),
                Self.line("c", token: Self.hex("b"), updated: "2026-07-01T00:00:00.000Z"),
                Self.line("b", token: Self.hex("x"), updated: "2026-08-01T00:00:00.000Z"),
            ].joined(separator: "\n")
            #expect(Self.counts(try await Self.importing(swap, database)) == [1, 2, 0, 0])
            let tokens = try await fixture.server.query(
                "SELECT object_id || ' ' || left(token, 4) FROM installations ORDER BY 1"
            )
            #expect(tokens == ["b 7800", "c 6200"])
        }
    }

    @Test("Rejected lines are counted by reason, the first 1,000 are listed, the others imported")
    func rejections() async throws {
        let lines =
            (0..<1200).map { #"{"objectId":"x\#($0)","deviceType":"ios","badge":"no"}"# }
            + [Self.line("a", ["plan": 1]), Self.line("b", ["plan": "gold"]), "{"]
        try await StorageFixture.run { fixture in
            try await Self.withFile(lines.joined(separator: "\n")) { path in
                let database = fixture.database
                let report = path + ".rejected"
                defer { try? FileManager.default.removeItem(atPath: report) }
                let job = try await database.imports.create(
                    app: Self.app,
                    format: .leancloud,
                    file: nil,
                    options: ImportOptions(),
                    author: "test"
                )
                let end = try await ImportRun(
                    database,
                    .file(path),
                    report: try ImportReport(path: report)
                ).run(job.id, app: Self.app)
                #expect(Self.counts(end) == [1, 0, 0, 1202])
                #expect(
                    end.reasons.map(\.reason) == [
                        "badge must be a whole number", "invalid JSON: expected a key in quotes",
                        "plan must be of the type Number",
                    ]
                )
                #expect(end.reasons.map(\.lines) == [1200, 1, 1])
                #expect(end.reasons.map(\.examples) == [[1, 2, 3, 4, 5], [1203], [1202]])
                let listed = try await database.imports.rejections(job.id, after: 998, limit: 100)
                #expect(listed.map(\.line) == [999, 1000])
                let entries = try String(contentsOfFile: report, encoding: .utf8)
                    .split(separator: "\n").map { try JSONValue.parse(String($0)) }
                #expect(
                    entries.map { $0["line"]?.integer } == (1...1200).map { $0 } + [1202, 1203]
                )
                #expect(entries.last?["record"] == "{")
                let mode = try FileManager.default.attributesOfItem(atPath: report)
                #expect(mode[.posixPermissions] as? Int == 0o600)
            }
        }
    }

    @Test("A run that pauses after every batch imports each line once; a dry run changes nothing")
    func pauses() async throws {
        let lines = (0..<4321).map { number in
            number % 10 == 3 ? "{broken" : Self.line("id\(number)")
        }
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await Self.withFile(lines.joined(separator: "\n")) { path in
                let input = ImportInput.file(path)
                let dry = try await ImportRun(database, input).dryRun(
                    app: Self.app,
                    format: .leancloud,
                    options: ImportOptions()
                )
                #expect(Self.counts(dry) == [3889, 0, 0, 432])
                #expect(
                    try await fixture.server.query("SELECT count(*) FROM installations") == ["0"]
                )
                #expect(try await fixture.server.query("SELECT count(*) FROM app_fields") == ["0"])
                let file = try #require(try input.open().fingerprint)
                let job = try await database.imports.create(
                    app: Self.app,
                    format: .leancloud,
                    file: file,
                    options: ImportOptions(),
                    author: "test"
                )
                var runs = 0
                while let next = try await database.imports.unfinished(
                    app: Self.app,
                    format: .leancloud,
                    file: file
                ) {
                    #expect(next.id == job.id)
                    _ = try await ImportRun(database, input, isStopping: { true })
                        .run(next.id, app: Self.app)
                    runs += 1
                }
                #expect(runs == 5)
                let found = try await database.imports.find(app: Self.app, id: job.id)
                let ended = try #require(found)
                #expect(ended.state == .finished && ended.counts.records == 4321)
                #expect(ended.counts.imported == 3889 && ended.counts.rejected == 432)
                #expect(try await database.imports.reasons(job.id).map(\.lines) == [432])
                #expect(
                    try await fixture.server.query("SELECT count(*) FROM installations") == ["3889"]
                )
                await #expect(throws: ImportError.self) {
                    _ = try await ImportRun(database, input).run(job.id, app: Self.app)
                }
            }
        }
    }

    @Test("A run whose job another process takes over, or someone pauses, stops at its next batch")
    func takenOver() async throws {
        let text = (0..<5000).map { Self.line("id\($0)") }.joined(separator: "\n")
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await Self.withFile(text) { path in
                let input = ImportInput.file(path)
                let job = try await database.imports.create(
                    app: Self.app,
                    format: .leancloud,
                    file: try input.open().fingerprint,
                    options: ImportOptions(),
                    author: "test"
                )
                let (begun, runner) = try await database.imports.begin(job.id, app: Self.app)
                // The last of several that begin continues; the others stop.
                let ends = await withTaskGroup(of: ImportRun.End?.self) { group in
                    for _ in 0..<3 {
                        group.addTask {
                            try? await ImportRun(database, input).run(job.id, app: Self.app)
                        }
                    }
                    return await group.reduce(into: []) { ends, end in ends.append(end) }
                }
                #expect(ends.compactMap { $0 }.filter { $0.job.state == .finished }.count == 1)
                #expect(
                    try await fixture.server.query(
                        "SELECT records, imported FROM imports WHERE id = \(job.id)"
                    ) == ["5000|5000"]
                )
                await #expect(
                    throws: ImportError(.taken, "another process continues this import")
                ) {
                    try await database.database.transaction { transaction in
                        try await ImportStore.lock(begun, runner, transaction)
                    }
                }
            }
            try await Self.withFile(text) { path in
                let input = ImportInput.file(path)
                let job = try await database.imports.create(
                    app: Self.app,
                    format: .leancloud,
                    file: try input.open().fingerprint,
                    options: ImportOptions(existing: .replace),
                    author: "test"
                )
                let (_, runner) = try await database.imports.begin(job.id, app: Self.app)
                #expect(try await database.imports.end(job.id, as: .stopped))
                await #expect(throws: ImportError(.taken, "the import is stopped")) {
                    try await database.database.transaction { transaction in
                        try await ImportStore.lock(job, runner, transaction)
                    }
                }
                let end = try await ImportRun(database, input).run(job.id, app: Self.app)
                #expect(Self.counts(end) == [0, 5000, 0, 0])
            }
        }
    }

    @Test("An export from before an erasure does not bring the person back")
    func erased() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let text = [
                Self.line("a", ["identity": "ann"]), Self.line("b", ["identity": "bob"]),
            ].joined(separator: "\n")
            try await Self.importing(text, database)
            _ = try await database.erasures.erase(
                Subject(app: Self.app, .identity, "ann"),
                by: AuditEntry(app: Self.app, actor: "test", action: "erase", status: 200)
            )
            let again = try await Self.importing(text, database)
            #expect(Self.counts(again) == [0, 0, 1, 1])
            #expect(again.reasons.map(\.reason) == [InstallationImport.erasedReason])
        }
    }

    @Test("The devices of every format are stored, and a broken list keeps what came before")
    func formats() async throws {
        let token = Self.hex("token")
        let files: [(ImportFormat, String, [Int])] = [
            (.parse, #"{"_id":"p1","deviceType":"ios","deviceToken":"\#(token)"}"#, [1, 0, 0, 0]),
            (.csv, "token,platform,user\nf:1,android,ann\nf:1,android,ann\n", [1, 0, 1, 0]),
            (
                .sns,
                #"{"Endpoints":[{"EndpointArn":"arn:aws:sns:r:1:endpoint/GCM/a/e1","#
                    + #""Attributes":{"Token":"f:2","Enabled":"true"}}]}"#, [1, 0, 0, 0]
            ),
            (
                .azure,
                #"{"installationId":"z1","platform":"fcmv1","pushChannel":"f:3","templates":"#
                    + #"{"t":{"body":"{\"a\":\"$(m)\"}"}}}"#, [1, 0, 0, 0]
            ),
        ]
        try await StorageFixture.run { fixture in
            for (format, text, expected) in files {
                #expect(
                    Self.counts(try await Self.importing(text, fixture.database, format))
                        == expected,
                    "\(format)"
                )
            }
            #expect(try await fixture.database.hubTemplates.names(app: Self.app) == ["t"])
            let whole = (0..<1500).map { Self.line("l\($0)") }.joined(separator: ",")
            await #expect(throws: ImportError.self) {
                try await Self.importing("[\(whole),{\"objectId\"", fixture.database)
            }
            let stored = try await fixture.server.query(
                "SELECT state, imported, failure FROM imports ORDER BY id DESC LIMIT 1"
            )
            #expect(stored == ["failed|1500|the file ends inside its list, at record 1501"])
        }
    }
}
