import Compression
import JSON
import PushCore
import Storage
import StorageAdmin
import Support
import Testing

@testable import Importing

@Suite(
    "Uploaded imports",
    .timeLimit(.minutes(3)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct ImportUploadTests {
    private static let app = StorageFixture.app
    private static let runner = "00000000-0000-4000-8000-000000000001"

    private static func line(_ number: Int) -> String {
        let digits = String(number, radix: 16)
        let id = String(repeating: "0", count: 24 - digits.count) + digits
        return number % 100 == 3
            ? "{broken"
            : #"{"objectId":"\#(id)","deviceType":"ios","deviceToken":"\#(id)","channels":["news"],"#
                + #""note":"\#(String(repeating: "x", count: 400))"}"#
    }

    private static func text(_ count: Int) -> [UInt8] {
        Array((0..<count).map { line($0) }.joined(separator: "\n").utf8)
    }

    /// Stores a file as the console does.
    private static func upload(
        _ bytes: [UInt8],
        _ database: PushDatabase,
        app: String = app,
        format: ImportFormat = .leancloud
    ) async throws -> Int {
        let uploads = database.importUploads
        let id = try #require(
            try await uploads.begin(
                app: app,
                format: format,
                fileName: "devices.jsonl",
                options: ImportOptions(),
                author: "test"
            )
        )
        var number = 0
        for start in stride(from: 0, to: bytes.count, by: ImportParts.partBytes) {
            let end = min(start + ImportParts.partBytes, bytes.count)
            try await uploads.append(Array(bytes[start..<end]), number: number, to: id)
            number += 1
        }
        try await uploads.finish(
            id,
            parts: number,
            bytes: bytes.count,
            isGzip: bytes.starts(with: [0x1f, 0x8b])
        )
        return id
    }

    private static func order(
        _ task: ImportUpload.Task,
        _ id: Int,
        _ database: PushDatabase,
        app: String = app
    ) async throws -> Bool {
        try await database.importUploads.order(task, id, app: app, options: nil)
    }

    @Test("A dry run counts, a run imports; both plain and gzip; the file is deleted at the end")
    func runs() async throws {
        let bytes = Self.text(6000)
        #expect(bytes.count > 2 * ImportParts.partBytes)
        for content in [bytes, try Compression.gzip.compress(bytes)] {
            try await StorageFixture.run { fixture in
                let (database, uploads) = (fixture.database, fixture.database.importUploads)
                let worker = ImportWorker(database)
                let id = try await Self.upload(content, database)
                // Nothing happens by itself.
                #expect(try await !worker.round())
                #expect(try await Self.order(.dryRun, id, database))
                #expect(try await !Self.order(.run, id, database))
                #expect(try await worker.round())
                let tried = try #require(try await uploads.find(id, app: Self.app))
                let result = try #require(tried.dryRun)
                #expect(tried.task == nil && !tried.isClaimed && result.failure == nil)
                #expect(result.counts.imported == 5940 && result.counts.rejected == 60)
                #expect(result.reasons.map(\.lines) == [60])
                #expect(
                    try await fixture.server.query("SELECT count(*) FROM installations") == ["0"]
                )
                #expect(try await Self.order(.run, id, database))
                #expect(try await worker.round())
                let job = try #require(try await database.imports.find(app: Self.app, id: id))
                #expect(job.state == .finished && job.share == 1)
                #expect(job.counts.imported == 5940 && job.counts.rejected == 60)
                #expect(
                    try await fixture.server.query("SELECT count(*) FROM installations") == ["5940"]
                )
                #expect(
                    try await fixture.server.query("SELECT count(*) FROM import_parts") == ["0"]
                )
                #expect(try await uploads.find(id, app: Self.app) == nil)
                #expect(try await !worker.round())
            }
        }
    }

    @Test("A run that another replica takes over between two parts imports each line once")
    func takenOver() async throws {
        let bytes = Self.text(6000)
        for content in [bytes, try Compression.gzip.compress(bytes)] {
            try await StorageFixture.run { fixture in
                let (database, uploads) = (fixture.database, fixture.database.importUploads)
                let id = try await Self.upload(content, database)
                #expect(try await Self.order(.run, id, database))
                // A replica that ends after one batch without a word.
                let claimed = try #require(try await uploads.claim(Self.runner))
                #expect(claimed.id == id)
                let input = ImportInput.parts(uploads.parts(of: claimed))
                for _ in 0..<5 {
                    _ = try await ImportRun(database, input, isStopping: { true })
                        .run(id, app: Self.app)
                }
                _ = try await fixture.server.query(
                    "UPDATE imports SET state = 'running' WHERE id = \(id) RETURNING 1"
                )
                #expect(try await uploads.renew(id, Self.runner))
                let isGzip = content != bytes
                let left = try await fixture.server.query(
                    "SELECT number FROM import_parts ORDER BY 1"
                )
                #expect(left == (isGzip ? ["0"] : ["0", "2", "3"]), "read parts are deleted")
                let worker = ImportWorker(database)
                #expect(try await !worker.round(), "the lease is valid")
                _ = try await fixture.server.query(
                    "UPDATE import_uploads SET leased_until = now() - interval '1 second' RETURNING 1"
                )
                #expect(try await worker.round())
                #expect(try await !uploads.renew(id, Self.runner))
                let job = try #require(try await database.imports.find(app: Self.app, id: id))
                #expect(job.state == .finished && job.counts.records == 6000)
                #expect(job.counts.imported == 5940 && job.counts.rejected == 60)
                #expect(try await database.imports.reasons(id).map(\.lines) == [60])
                #expect(
                    try await fixture.server.query("SELECT count(*) FROM installations") == ["5940"]
                )
            }
        }
    }

    @Test("One app has one running import, and its pause, stop and file are its own")
    func acts() async throws {
        try await StorageFixture.run { fixture in
            let (database, uploads) = (fixture.database, fixture.database.importUploads)
            try await fixture.createApp("other")
            let first = try await Self.upload(Self.text(100), database)
            let second = try await Self.upload(Self.text(100), database)
            let third = try await Self.upload(Self.text(100), database, app: "other")
            #expect(try await Self.order(.run, first, database))
            #expect(try await Self.order(.run, second, database))
            #expect(try await Self.order(.run, third, database, app: "other"))
            #expect(try await uploads.claim(Self.runner)?.id == first)
            #expect(try await uploads.claim(Self.runner)?.id == third)
            #expect(try await uploads.claim(Self.runner) == nil)
            // Another app sees and changes nothing.
            #expect(try await uploads.find(first, app: "other") == nil)
            #expect(try await !uploads.pause(first, app: "other"))
            #expect(try await !uploads.stop(first, app: "other"))
            #expect(try await !Self.order(.dryRun, second, database, app: "other"))
            // A pause takes the task back, and the claim cannot be renewed.
            #expect(try await uploads.pause(first, app: Self.app))
            #expect(try await !uploads.renew(first, Self.runner))
            try await uploads.release(first, Self.runner, isDone: false)
            #expect(try await uploads.claim(Self.runner)?.id == second)
            #expect(try await uploads.stop(second, app: Self.app))
            #expect(try await !uploads.stop(second, app: Self.app))
            #expect(try await !uploads.renew(second, Self.runner))
            // A stopped import does not begin again, though a replica has claimed it.
            let worker = ImportRun(
                database,
                .parts(ImportParts(count: 1) { _ in Self.text(1) })
            )
            await #expect(throws: ImportError.self) {
                _ = try await worker.run(second, app: Self.app)
            }
            #expect(
                try await fixture.server.query("SELECT state FROM imports WHERE id = \(second)")
                    == ["stopped"]
            )
            // A paused one continues.
            #expect(try await Self.order(.run, first, database))
            #expect(try await ImportWorker(database).round())
            #expect(
                try await fixture.server.query("SELECT state FROM imports WHERE id = \(first)")
                    == ["finished"]
            )
        }
    }

    @Test("A file that is imported in part is not tried: a dry run would miss its deleted parts")
    func partial() async throws {
        try await StorageFixture.run { fixture in
            let (database, uploads) = (fixture.database, fixture.database.importUploads)
            let id = try await Self.upload(Self.text(6000), database)
            #expect(try await Self.order(.run, id, database))
            let claimed = try #require(try await uploads.claim(Self.runner))
            _ = try await ImportRun(
                database,
                .parts(uploads.parts(of: claimed)),
                isStopping: { true }
            )
            .run(id, app: Self.app)
            #expect(try await uploads.pause(id, app: Self.app))
            try await uploads.release(id, Self.runner, isDone: false)
            let job = try #require(try await database.imports.find(app: Self.app, id: id))
            #expect(job.state == .paused && (1..<6000).contains(job.counts.records))
            #expect(try await !Self.order(.dryRun, id, database))
            #expect(try await Self.order(.run, id, database))
            #expect(try await ImportWorker(database).round())
            let end = try #require(try await database.imports.find(app: Self.app, id: id))
            #expect(end.state == .finished && end.counts.imported == 5940)
        }
    }

    @Test("An import that is ordered while a paused dry run ends is not lost with it")
    func orderedAgain() async throws {
        try await StorageFixture.run { fixture in
            let (database, uploads) = (fixture.database, fixture.database.importUploads)
            let id = try await Self.upload(Self.text(10), database)
            #expect(try await Self.order(.dryRun, id, database))
            #expect(try await uploads.claim(Self.runner)?.id == id)
            #expect(try await uploads.pause(id, app: Self.app))
            #expect(try await Self.order(.run, id, database))
            #expect(try await !uploads.renew(id, Self.runner), "its claim is lost")
            try await uploads.release(id, Self.runner, isDone: true)
            #expect(try await uploads.find(id, app: Self.app)?.task == .run)
            #expect(try await ImportWorker(database).round())
            let job = try await database.imports.find(app: Self.app, id: id)
            #expect(job?.state == .finished)
        }
    }

    @Test("An app has a bounded number of stored files, and the end of one makes room")
    func bounded() async throws {
        try await StorageFixture.run { fixture in
            let (database, uploads) = (fixture.database, fixture.database.importUploads)
            var ids: [Int] = []
            for _ in 0..<ImportUploadStore.mostFiles {
                ids.append(try await Self.upload(Self.text(1), database))
            }
            func begin() async throws -> Int? {
                try await uploads.begin(
                    app: Self.app,
                    format: .csv,
                    fileName: "a.csv",
                    options: ImportOptions(),
                    author: "test"
                )
            }
            #expect(try await begin() == nil)
            #expect(try await database.imports.find(app: Self.app, id: ids[4] + 1) == nil)
            #expect(try await uploads.stop(ids[0], app: Self.app))
            #expect(try await begin() != nil)
        }
    }

    @Test("An upload that does not become whole is not run, and is deleted after a day")
    func unfinished() async throws {
        try await StorageFixture.run { fixture in
            let (database, uploads) = (fixture.database, fixture.database.importUploads)
            func begin() async throws -> Int {
                let id = try #require(
                    try await uploads.begin(
                        app: Self.app,
                        format: .csv,
                        fileName: "a.csv",
                        options: ImportOptions(),
                        author: "test"
                    )
                )
                try await uploads.append([1, 2, 3], number: 0, to: id)
                return id
            }
            let first = try await begin()
            #expect(try await !Self.order(.run, first, database))
            try await uploads.abandon(first)
            #expect(try await database.imports.find(app: Self.app, id: first) == nil)
            let whole = try await Self.upload(Self.text(1), database)
            try await uploads.abandon(whole)
            #expect(try await uploads.find(whole, app: Self.app) != nil)
            let second = try await begin()
            _ = try await fixture.server.query(
                "UPDATE imports SET updated_at = now() - interval '2 days' RETURNING 1"
            )
            _ = try await database.maintenance.maintain(hostTime: .now())
            #expect(try await database.imports.find(app: Self.app, id: second) == nil)
            #expect(try await uploads.find(whole, app: Self.app) != nil)
            _ = try await fixture.server.query(
                "UPDATE import_uploads SET updated_at = now() - interval '8 days' RETURNING 1"
            )
            _ = try await database.maintenance.maintain(hostTime: .now())
            #expect(try await uploads.find(whole, app: Self.app) == nil)
            #expect(try await fixture.server.query("SELECT count(*) FROM import_parts") == ["0"])
        }
    }

    @Test("A file that cannot be read fails its import, with the reason")
    func unreadable() async throws {
        try await StorageFixture.run { fixture in
            let (database, worker) = (fixture.database, ImportWorker(fixture.database))
            let whole = try Compression.gzip.compress(Self.text(3000))
            let id = try await Self.upload(Array(whole.dropLast(100)), database)
            #expect(try await Self.order(.run, id, database))
            #expect(try await worker.round())
            let job = try #require(try await database.imports.find(app: Self.app, id: id))
            #expect(job.state == .failed)
            #expect(job.failure == "the gzip file is damaged or ends too early")
            // A CSV without a column for an address cannot be tried, either.
            let csv = try await Self.upload(Array("a,b\n1,2\n".utf8), database, format: .csv)
            #expect(try await Self.order(.dryRun, csv, database))
            #expect(try await worker.round())
            let tried = try #require(
                try await database.importUploads.find(csv, app: Self.app)?.dryRun
            )
            #expect(tried.failure?.hasPrefix("no column has a device's address") == true)
        }
    }
}
