import EventLoop
import Glibc
import Importing
import InstallationStorage
import JSON
import PushCore
import ServiceKit
import Storage

extension Command {
    static let imports: [Command] =
        ImportFormat.allCases.map(importing) + [importList, importShow]

    private static func importing(_ format: ImportFormat) -> Command {
        var options: [Arguments.Option] = [
            .flag("--dry-run", "validate everything and change nothing"),
            .value(
                "--existing",
                "<rule>",
                "existing devices: newer (the default) keeps what changed last; keep; replace"
            ),
            .value(
                "--report",
                "<file>",
                "write all rejected lines with their reasons, as JSON lines"
            ),
            .flag("--restart", "begin again at the first line, and forget an unfinished import"),
            json,
        ]
        if format == .csv {
            options.insert(
                .values("--map", "<column=field>", "the field of a column; skip leaves it out"),
                at: 0
            )
        }
        return Command(
            "import \(format.rawValue) <app> <file>",
            summary(format),
            options: options
        ) { arguments, context in
            let (database, app) = try await context.openApp(
                arguments,
                keys: context.namesMasterKeys ? try context.masterKeys() : nil
            )
            return try await ImportCommand(format, app, arguments, database, context).run()
        }
    }

    private static func summary(_ format: ImportFormat) -> String {
        switch format {
        case .leancloud: "Import LeanCloud's export of _Installation; - is stdin"
        case .parse: "Import mongoexport of Parse's _Installation; - is stdin"
        case .csv: "Import devices from CSV with a header line; - is stdin"
        case .sns: "Import the endpoints of an Amazon SNS application; - is stdin"
        case .azure: "Import the registrations of an Azure hub; - is stdin"
        }
    }

    static let importList = Command(
        "import list <app>",
        "List the imports of an app, newest first",
        options: [
            .value("--limit", "<n>", "maximum number of results, 1 to 1000; default 100"), json,
        ]
    ) { arguments, context in
        let limit = try arguments.integer("--limit", in: 1...1000, default: 100)
        let (database, app) = try await context.existingApp(arguments)
        return Listing(
            try await database.imports.list(app: app, limit: limit),
            columns: [
                .members(\.json), .cell("ID") { String($0.id) }, .cell("FORMAT", \.format.rawValue),
                .cell("FILE") { Terminal.short($0.fileName, 50) }, .cell("STATE", \.state.rawValue),
                .cell("READ") { $0.share.map(ImportJob.percent) ?? "-" },
                .cell("IMPORTED") { String($0.counts.imported) },
                .cell("UPDATED") { String($0.counts.updated) },
                .cell("SKIPPED") { String($0.counts.skipped) },
                .cell("REJECTED") { String($0.counts.rejected) },
                .cell("STARTED", \.createdAt.iso8601),
            ],
            empty: "no imports yet"
        ).say(arguments)
    }

    static let importShow = Command(
        "import show <app> <id>",
        "Show an import with the reasons of its rejected lines"
    ) { arguments, context in
        let (database, app) = try await context.existingApp(arguments)
        let text = try arguments.operand(1, "id")
        guard let id = Int(text) else { throw ArgumentsError("id must be a number of import list") }
        guard let job = try await database.imports.find(app: app, id: id) else {
            throw CommandFailure("\(app) has no import \(id)")
        }
        let end = ImportEnd(job: job, reasons: try await database.imports.reasons(id))
        return arguments.answer(end.json, end.text)
    }
}

/// One run of an import from the command line.
private struct ImportCommand {
    private let format: ImportFormat
    private let app: String
    private let path: String
    private let options: ImportOptions
    private let arguments: Arguments
    private let database: PushDatabase
    private let context: CommandContext

    init(
        _ format: ImportFormat,
        _ app: String,
        _ arguments: Arguments,
        _ database: PushDatabase,
        _ context: CommandContext
    ) throws {
        (self.format, self.app, self.arguments) = (format, app, arguments)
        (self.database, self.context) = (database, context)
        path = try arguments.operand(1, "file")
        let rule = arguments.value("--existing") ?? ExistingRule.newer.rawValue
        guard let existing = ExistingRule(rawValue: rule) else {
            throw ArgumentsError("--existing takes newer, keep or replace")
        }
        var columns: [String: String] = [:]
        for pair in arguments.values("--map") {
            guard let mark = pair.lastIndex(of: "="), mark != pair.startIndex else {
                throw ArgumentsError("--map takes column=field")
            }
            let column = String(pair[..<mark])
            guard columns[column] == nil else {
                throw ArgumentsError("--map names the column \"\(column)\" twice")
            }
            columns[column] = String(pair[pair.index(after: mark)...])
        }
        options = ImportOptions(existing: existing, columns: columns)
    }

    private var isPipe: Bool { path == "-" }
    private var input: ImportInput { isPipe ? .pipe(STDIN_FILENO) : .file(path) }

    func run() async throws -> Int32 {
        do {
            return try await runToEnd()
        } catch let error as ImportError {
            throw CommandFailure(
                error.description,
                exitCode: error.kind == .unusable ? 64 : 1
            )
        }
    }

    private func runToEnd() async throws -> Int32 {
        let interruption = Interruption()
        let meter = ImportMeter(isTerminal: isatty(STDERR_FILENO) == 1)
        let run = ImportRun(
            database,
            input,
            report: try arguments.value("--report").map { path throws(ImportError) in
                try ImportReport(path: path)
            },
            isStopping: { interruption.hasCome },
            progress: { meter.show($0) }
        )
        if arguments.has("--dry-run") {
            let signals = interruption.watch(on: context.loop)
            defer { for signal in signals { signal.close() } }
            let end = try await run.dryRun(app: app, format: format, options: options)
            meter.end()
            return say(ImportEnd(job: end.job, reasons: end.reasons, isDryRun: true))
        }
        let job = try await job()
        try await context.audit("import \(format.rawValue)", app, [String(job.id)])
        let signals = interruption.watch(on: context.loop)
        defer { for signal in signals { signal.close() } }
        do {
            let end = try await run.run(job.id, app: app)
            meter.end()
            return say(ImportEnd(job: end.job, reasons: end.reasons))
        } catch {
            meter.end()
            if !isPipe { Terminal.printError("carillon: \(resumeHint)") }
            throw error
        }
    }

    private var resumeHint: String {
        "the same command continues the import after the last batch that was stored"
    }

    /// Returns the unfinished job of the file, or a new one.
    private func job() async throws -> ImportJob {
        // Also tells that the file cannot be opened, before a job is stored.
        let file = try input.open().fingerprint
        if let file, !arguments.has("--restart"),
            let job = try await database.imports.unfinished(app: app, format: format, file: file)
        {
            guard job.options == options else {
                throw CommandFailure(
                    "import \(job.id) of this file is unfinished and has other options; repeat them to"
                        + " continue it, or use --restart",
                    exitCode: 64
                )
            }
            if job.counts.records > 0 {
                Terminal.printError(
                    "continuing import \(job.id) at line \(job.position.line), after"
                        + " \(job.counts.records) records"
                )
            }
            return job
        }
        if isPipe {
            Terminal.printError(
                "standard input cannot be read again: if this import is interrupted, it begins at the"
                    + " first line"
            )
        }
        return try await database.imports.create(
            app: app,
            format: format,
            file: file,
            options: options,
            author: CommandContext.actor
        )
    }

    /// Prints the end of an import, and returns the exit code.
    private func say(_ end: ImportEnd) -> Int32 {
        arguments.answer(end.json, end.text)
        switch end.job.state {
        case .paused, .stopped:
            if !isPipe { Terminal.printError("interrupted; \(resumeHint)") }
            return Interruption.exitCode
        case .failed: return 1
        case .running, .finished: return end.job.counts.rejected > 0 ? 3 : 0
        }
    }
}

/// The result of an import, for people and programs.
struct ImportEnd {
    let job: ImportJob
    let reasons: [ImportReason]
    var isDryRun = false

    var json: JSONObject {
        var object = job.json
        if isDryRun {
            object["dryRun"] = true
            object.removeValue(forKey: "id")
        }
        object["reasons"] = .array(
            reasons.map { reason in
                [
                    "reason": .string(reason.reason), "lines": JSONValue(reason.lines),
                    "examples": .array(reason.examples.map { JSONValue($0) }),
                ]
            }
        )
        return object
    }

    var text: String {
        let counts = job.counts
        var lines = [
            "\(counts.records) records: \(counts.imported) imported, \(counts.updated) updated,"
                + " \(counts.skipped) skipped, \(counts.rejected) rejected"
        ]
        if isDryRun { lines[0] = "a dry run, nothing was changed; " + lines[0] }
        if !isDryRun { lines.append("import \(job.id) is \(job.state.rawValue)") }
        if let failure = job.failure { lines.append(failure) }
        if !reasons.isEmpty {
            let table = reasons.map { reason in
                [
                    reason.reason, String(reason.lines),
                    "line " + reason.examples.map(String.init).joined(separator: ", "),
                ]
            }
            lines += ["", Terminal.table([["REJECTED", "LINES", "EXAMPLES"]] + table)]
        }
        return lines.joined(separator: "\n")
    }
}

extension ImportJob {
    static func percent(_ share: Double) -> String {
        let permille = Int(share * 1000)
        return "\(permille / 10).\(permille % 10) %"
    }

    var json: JSONObject {
        var object: JSONObject = [
            "id": JSONValue(id), "app": .string(app), "format": .string(format.rawValue),
            "file": .string(fileName), "state": .string(state.rawValue),
            "existing": .string(options.existing.rawValue), "line": JSONValue(position.line),
            "records": JSONValue(counts.records), "imported": JSONValue(counts.imported),
            "updated": JSONValue(counts.updated), "skipped": JSONValue(counts.skipped),
            "rejected": JSONValue(counts.rejected), "author": .string(author),
            "createdAt": .string(createdAt.iso8601), "updatedAt": .string(updatedAt.iso8601),
        ]
        if let share { object["share"] = .double((share * 1000).rounded(.down) / 1000) }
        if let failure { object["failure"] = .string(failure) }
        if let finishedAt { object["finishedAt"] = .string(finishedAt.iso8601) }
        return object
    }
}

/// Shows the progress of an import on a terminal: one line, which is rewritten. Confined to the loop.
private final class ImportMeter: @unchecked Sendable {
    private let isTerminal: Bool
    private var records = ProgressMeter()
    private var bytes = ProgressMeter()
    private var shownAt = ContinuousClock.now - .seconds(1)

    init(isTerminal: Bool) { self.isTerminal = isTerminal }

    func show(_ job: ImportJob) {
        guard isTerminal else { return }
        let now = Instant.now()
        records.take(done: job.counts.records, at: now)
        bytes.take(done: job.position.consumed, at: now)
        guard ContinuousClock.now - shownAt >= .milliseconds(200) else { return }
        shownAt = .now
        var line = "\(job.counts.records) records, \(job.counts.rejected) rejected"
        if let share = job.share { line += ", \(ImportJob.percent(share))" }
        if let rate = records.rate { line += ", \(Int(rate))/s" }
        if let size = job.fileBytes,
            let seconds = bytes.secondsLeft(pending: max(0, size - job.position.consumed))
        {
            line += ", \(ProgressMeter.text(seconds: seconds)) left"
        }
        Terminal.printError(passing: line)
    }

    func end() {
        if isTerminal { Terminal.printError("") }
    }
}
