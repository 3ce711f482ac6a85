import Glibc
import JSON
import PushCore
import ServiceKit
import Storage
import StorageAdmin

extension Command {
    static let audit = Command(
        "audit <app>",
        "List an app's audit entries, newest first",
        options: [
            .value("--since", "<time>", "nothing before: a time in UTC, or how long ago: 2h"),
            .value("--limit", "<n>", "maximum number of results, 1 to 100000; 100 by default"),
            json,
        ]
    ) { arguments, context in
        let id = try arguments.operand(0, "app")
        let since = try arguments.value("--since").map {
            try time($0, "--since", direction: -1)
        }
        let limit = try arguments.integer("--limit", in: 1...100_000, default: 100)
        let database = try await context.database()
        let entries = try await database.audit.list(app: id, since: since, limit: limit)
        // A deleted app is accepted, as its audit outlives it.
        if entries.isEmpty, try await database.audit.list(app: id, since: nil, limit: 1).isEmpty {
            _ = try await existing(id, database)
        }
        return Listing(
            entries,
            columns: [
                .members(\.json), .cell { $0.at.iso8601 }, .cell { $0.actor },
                .cell { $0.address ?? "-" }, .cell { String($0.status) }, .cell { $0.action },
                .cell { entry in
                    entry.targets.joined(separator: ", ")
                        + (entry.detail["refusal"]?.string.map { ": \($0)" } ?? "")
                },
            ],
            empty: "no audit entries",
            form: .lines
        ).say(arguments)
    }

    private static let subjectOptions: [Arguments.Option] = [
        .value("--installation", "<id>", "a device, by its object id or its installationId"),
        .value("--identity", "<identity>", "a user and all their devices"),
    ]

    private static func subject(_ arguments: Arguments) throws -> Subject {
        let app = try arguments.operand(0, "app")
        switch (arguments.value("--installation"), arguments.value("--identity")) {
        case (let id?, nil) where !id.isEmpty: return Subject(app: app, .installation, id)
        case (nil, let id?) where !id.isEmpty: return Subject(app: app, .identity, id)
        case (_, _): throw ArgumentsError("pass either --installation or --identity")
        }
    }

    static let export = Command(
        "export <app>",
        "Export all data stored about a device or user, as JSON",
        options: subjectOptions
    ) { arguments, context in
        let subject = try subject(arguments)
        let database = try await context.database()
        _ = try await existing(subject.app, database)
        let found = try await database.erasures.export(subject)
        guard !found.isEmpty else {
            throw CommandFailure("no data is stored for this \(subject.kind.rawValue)")
        }
        try await context.audit("export", subject.app, [subject.id])
        Terminal.printLine(.object(found.json(of: subject, at: .now())))
        return 0
    }

    static let erase = Command(
        "erase <app>",
        "Erase all data stored about a device or user and print a receipt",
        options: subjectOptions + [.flag("--dry-run", "count it and change nothing"), json]
    ) { arguments, context in
        let subject = try subject(arguments)
        let isDryRun = arguments.has("--dry-run")
        let database = try await context.database(
            keys: isDryRun ? nil : try context.masterKeys()
        )
        _ = try await existing(subject.app, database)
        let unknown = CommandFailure("no data is stored for this \(subject.kind.rawValue)")
        if isDryRun {
            let counts = try await database.erasures.dryRun(subject)
            guard !counts.isNothing else { throw unknown }
            return arguments.answer(counts.json, lines: lines(counts.json, "would be erased"))
        }
        let receipt = try await database.erasures.erase(
            subject,
            by: AuditEntry(
                app: subject.app,
                actor: CommandContext.actor,
                action: "erase",
                status: 0
            ),
            unknown: Int(unknown.exitCode)
        )
        guard !receipt.isUnknownSubject else { throw unknown }
        let again =
            receipt.inFlight > 0
            ? "\na broadcast to it was in flight; run erase again in a few seconds" : ""
        return arguments.answer(
            receipt.json,
            Terminal.table(lines(receipt.erased.json, "erased"))
                + "\nreceipt: \(receipt.kind.rawValue) \(receipt.subject)\(again)"
        )
    }

    private static func lines(_ counts: JSONObject, _ what: String) -> [[String]] {
        counts.map { [$0.key, $0.value.text, what] }
    }
}

extension CommandContext {
    /// The user who runs the command, by the operating system's name.
    static var actor: String {
        let id = getuid()
        guard let entry = unsafe getpwuid(id), let name = unsafe entry.pointee.pw_name else {
            return "cli:\(id)"
        }
        return "cli:" + (unsafe String(cString: name))
    }

    /// Writes an audit entry for a command; for a failed command, with its exit code and the
    /// reason.
    func audit(
        _ action: String,
        _ app: String,
        _ targets: [String] = [],
        status: Int32 = 0,
        refusal: String? = nil
    ) async throws {
        try await bareDatabase().audit.append([
            AuditEntry(
                app: app,
                actor: Self.actor,
                action: action,
                targets: targets,
                status: Int(status),
                detail: refusal.map { ["refusal": .string($0)] } ?? [:]
            )
        ])
    }
}
