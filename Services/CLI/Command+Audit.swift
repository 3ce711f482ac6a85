import Glibc
import JSON
import PushCore
import PushStorage
import ServiceKit

extension Command {
    static let audit = Command(
        words: ["audit"],
        summary: "lists what was done with an app's master key, and by operators, the latest first",
        operands: ["app"],
        requiredOperands: 1,
        options: [
            .value("--since", "<time>", "nothing before: a time in UTC, or how long ago: 2h"),
            .value("--limit", "<n>", "at most so many, 1 to 100000; 100 by default"), json,
        ]
    ) { arguments, context in
        let id = try arguments.operand(0, "app")
        let since = try arguments.value("--since").map {
            try time($0, "--since", direction: -1)
        }
        let text = arguments.value("--limit") ?? "100"
        guard let limit = Int(text), (1...100_000).contains(limit) else {
            throw ArgumentsError("--limit takes a whole number from 1 to 100000")
        }
        let database = try await context.database()
        let entries = try await database.audit.list(app: id, since: since, limit: limit)
        // Not only of apps that there are: what was done to one outlives it.
        if entries.isEmpty, try await database.audit.list(app: id, since: nil, limit: 1).isEmpty {
            _ = try await existing(id, database)
        }
        if arguments.has("--json") {
            for entry in entries { Terminal.say(.object(entry.json)) }
        } else if entries.isEmpty {
            Terminal.say("nothing is written down")
        } else {
            Terminal.say(
                Terminal.table(
                    entries.map { entry in
                        [
                            entry.at.iso8601, entry.actor, entry.address ?? "-",
                            String(entry.status), entry.action,
                            entry.targets.joined(separator: ", ")
                                + (entry.detail["refusal"]?.string.map { ": \($0)" } ?? ""),
                        ]
                    }
                )
            )
        }
        return 0
    }

    private static let subjectOptions: [Arguments.Option] = [
        .value("--installation", "<id>", "a device, by its object id or its installationId"),
        .value("--identity", "<identity>", "a user, with all of his devices"),
    ]

    private static func subject(_ arguments: Arguments) throws -> Subject {
        let app = try arguments.operand(0, "app")
        switch (arguments.value("--installation"), arguments.value("--identity")) {
        case (let id?, nil) where !id.isEmpty: return Subject(app: app, .installation, id)
        case (nil, let id?) where !id.isEmpty: return Subject(app: app, .identity, id)
        case (_, _): throw ArgumentsError("takes one of --installation and --identity")
        }
    }

    static let export = Command(
        words: ["export"],
        summary: "prints everything that is stored of a device or a user, as JSON",
        operands: ["app"],
        requiredOperands: 1,
        options: subjectOptions
    ) { arguments, context in
        let subject = try subject(arguments)
        let database = try await context.database()
        _ = try await existing(subject.app, database)
        let found = try await database.erasures.export(subject)
        guard !found.isEmpty else {
            throw CommandFailure("nothing is stored of this \(subject.kind.rawValue)")
        }
        try await context.audit("export", app: subject.app, targets: [subject.id])
        Terminal.say(.object(found.json(of: subject, at: .now())))
        return 0
    }

    static let erase = Command(
        words: ["erase"],
        summary: "erases everything that is stored of a device or a user, and prints the receipt",
        operands: ["app"],
        requiredOperands: 1,
        options: subjectOptions + [.flag("--dry-run", "count it and change nothing"), json]
    ) { arguments, context in
        let subject = try subject(arguments)
        let isRehearsal = arguments.has("--dry-run")
        let database = try await context.database(
            keys: isRehearsal ? nil : try context.masterKeys()
        )
        _ = try await existing(subject.app, database)
        let unknown = CommandFailure("nothing is stored of this \(subject.kind.rawValue)")
        if isRehearsal {
            let counts = try await database.erasures.dryRun(subject)
            guard !counts.isNothing else { throw unknown }
            say(counts.json, "would be erased", isJSON: arguments.has("--json"))
            return 0
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
        guard !receipt.isOfNobody else { throw unknown }
        if arguments.has("--json") {
            Terminal.say(.object(receipt.json))
        } else {
            say(receipt.erased.json, "erased", isJSON: false)
            Terminal.say("receipt: \(receipt.kind.rawValue) \(receipt.subject)")
            if receipt.inFlight > 0 {
                Terminal.say("a broadcast was on its way to it: erase once more in some seconds")
            }
        }
        return 0
    }

    private static func say(_ counts: JSONObject, _ what: String, isJSON: Bool) {
        guard !isJSON else { return Terminal.say(.object(counts)) }
        Terminal.say(Terminal.table(counts.map { [$0.key, $0.value.text, what] }))
    }
}

extension CommandContext {
    /// Whoever runs the command, as the operating system knows him.
    static var actor: String {
        let id = getuid()
        guard let entry = unsafe getpwuid(id), let name = unsafe entry.pointee.pw_name else {
            return "cli:\(id)"
        }
        return "cli:" + (unsafe String(cString: name))
    }

    /// Writes down what a command has done; or why it did not, and the code that it ends with.
    func audit(
        _ action: String,
        app: String,
        targets: [String] = [],
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
