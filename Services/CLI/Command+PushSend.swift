import Cryptography
import EventLoop
import JSON
import Kafka
import PushCore
import PushEvents
import PushProviders
import PushStorage
import ServiceKit
import Settings
import Storage

extension Command {
    static let pushSend = Command(
        "push send <app>",
        "Send a push through Kafka; ask for confirmation without a selector",
        options: audienceOptions + [
            .value("--alert", "<text>", "what to show"),
            .value("--title", "<text>", "above it"),
            .value(
                "--at",
                "<time>",
                "when: 2026-11-20T21:04:05Z, without the Z each device's own time; or 10m from now"
            ),
            .value("--file", "<request.json>", "a whole request, instead of the above; - is stdin"),
            .value("--id", "<event id>", "the event's id; the same id is the same push"),
            .value("--source", "<source>", "the event's source; carillon/cli without it"),
            .flag("--all", "every device of the app is meant: do not ask"),
            .flag("--dry-run", "check it, count who it would go to, and send nothing"),
            .flag("--wait", "wait for the outcome: exit 0 all delivered, 3 some not, 4 no device"),
            .value("--timeout", "<duration>", "how long --wait waits, such as 30s; 10m without it"),
            json,
        ]
    ) { arguments, context in
        let app = try arguments.operand(0, "app")
        guard AppID.isWellFormed(app) else { throw noApp(app) }
        let timeout = try waitLimit(arguments)
        var object = try requestObject(arguments, context)
        if let other = object["app"], other.string != app {
            throw ArgumentsError("--file is a request for another app")
        }
        object["app"] = .string(app)
        let request = try argument { try PushRequest.parse(object, now: .now()) }
        let eventID = arguments.value("--id") ?? request.id ?? Hex.encode(randomBytes(12))
        let source = arguments.value("--source") ?? request.source ?? "carillon/cli"
        for (option, text) in [("--id", eventID), ("--source", source)]
        where !(1...256).contains(text.utf8.count) {
            throw ArgumentsError("\(option) takes 1 to 256 bytes")
        }
        let pushID = PushIdentity.pushID(
            app: app,
            source: source,
            eventID: eventID,
            digest: sha256
        )
        let record = PushEvent.encode(
            object,
            app: app,
            source: source,
            eventID: eventID,
            topics: try context.topics()
        )
        if arguments.has("--all"), !request.isForEveryone {
            throw ArgumentsError("--all does not go with a selector")
        }
        // `--wait` needs the database. Without `--wait`, a database is only used if it is
        // configured, to check the request.
        let database =
            arguments.has("--wait") || context.namesDatabase
            ? try await context.database() : nil
        var sent = request
        if let database {
            let settings = AppSettings(try await existing(app, database).settings)
            sent.includesPushID =
                settings.sendsPushIDs && PushIdentity.includesPushID(source: source)
        }
        if let error = sent.tooLargeEverywhere(bytes: record.value?.count ?? 0) {
            throw ArgumentsError(error.description)
        }
        if arguments.has("--dry-run") {
            return try await dryRun(request, object, for: app, database, arguments)
        }
        if request.isForEveryone, !arguments.has("--all") {
            try await askWhetherAll(of: app, database)
        }
        try await produce(record, context)
        if database != nil { try await context.audit("push send", app, [pushID]) }
        if !arguments.has("--json") || !arguments.has("--wait") {
            arguments.answer(
                ["pushId": .string(pushID), "eventId": .string(eventID)],
                "push \(pushID) (event \(eventID))"
            )
        }
        guard arguments.has("--wait"), let database else { return 0 }
        let push = try await finished(pushID, within: timeout, database, context)
        return arguments.answer(
            shownPush(push),
            lines: summary(of: push),
            exitCode: exitCode(of: push)
        )
    }

    private static func requestObject(
        _ arguments: Arguments,
        _ context: CommandContext
    ) throws -> JSONObject {
        let shorthands = audienceOptions.map(\.name) + ["--alert", "--title", "--at"]
        if let path = arguments.value("--file") {
            for option in shorthands where arguments.has(option) {
                throw ArgumentsError("\(option) does not go with --file: the file says it all")
            }
            let text = try context.file(path == "-" ? "/dev/stdin" : path, "--file")
            let value = try argument("--file is not JSON: ") { try JSONValue.parse(text) }
            guard let object = value.object else {
                throw ArgumentsError("--file does not hold a JSON object")
            }
            return object
        }
        guard let alert = arguments.value("--alert") else {
            throw ArgumentsError("--alert or --file is missing")
        }
        var data: JSONObject = ["alert": .string(alert)]
        data["title"] = arguments.value("--title").map(JSONValue.string)
        var object = try audienceObject(arguments)
        if let text = arguments.value("--at") {
            let local = LocalDateTime(iso8601: text)?.iso8601
            let time = try local ?? Self.time(text, "--at", direction: 1).iso8601
            object["push_time"] = .string(time)
        }
        object["data"] = .object(data)
        return object
    }

    private static func waitLimit(_ arguments: Arguments) throws -> Duration {
        guard let text = arguments.value("--timeout") else { return .seconds(600) }
        guard arguments.has("--wait") else { throw ArgumentsError("--timeout needs --wait") }
        guard let limit = parseDuration(text) else {
            throw ArgumentsError("--timeout takes a number with its unit: 500ms, 30s, 10m")
        }
        return limit
    }

    private static func produce(
        _ record: OutgoingRecord,
        _ context: CommandContext
    ) async throws {
        let producer = try KafkaProducer(try context.kafka(), on: context.loop)
        let errors: [KafkaError?]
        do {
            errors = try await producer.send([
                KafkaOutgoing(
                    topic: record.topic,
                    key: record.key,
                    value: record.value,
                    headers: record.headers.map { KafkaHeader(name: $0.name, value: $0.value) }
                )
            ])
        } catch {
            await producer.close()
            throw error
        }
        await producer.close()
        if let error = errors.first ?? nil {
            throw CommandFailure("the push was not written: \(error.description)")
        }
    }

    /// Waits until the push has ended, and returns it.
    private static func finished(
        _ id: String,
        within limit: Duration,
        _ database: PushDatabase,
        _ context: CommandContext
    ) async throws -> StoredPush {
        let deadline = ContinuousClock.now + limit
        while true {
            if let push = try await database.pushes.find(id), push.status.isFinal { return push }
            guard ContinuousClock.now < deadline else {
                throw CommandFailure("the push is not finished after \(limit)")
            }
            try await context.loop.sleep(for: .milliseconds(100))
        }
    }

    private static func exitCode(of push: StoredPush) -> Int32 {
        switch push.status {
        case .failed, .cancelled: 1
        case .queued, .scheduled, .planning, .sending, .done:
            push.ledger.targeted == 0
                ? 4 : push.ledger.delivered == push.ledger.targeted ? 0 : 3
        }
    }
}
