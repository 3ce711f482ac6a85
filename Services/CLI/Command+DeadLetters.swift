import Cryptography
import DeadLetters
import EventLoop
import HTTPTransport
import JSON
import Kafka
import PushCore
import PushEvents
import PushProviders
import ServiceKit
import Storage

extension Command {
    static let deadLettersList = Command(
        "dead-letters list",
        "List dead letters with their reasons, newest first",
        options: [
            reasonOption,
            .value("--limit", "<n>", "maximum number of results, 1 to 1000; 100 by default"),
            json,
        ]
    ) { arguments, context in
        let limit = try arguments.integer("--limit", in: 1...1000, default: 100)
        let reason = arguments.value("--reason")
        let letters = try await letters(context, limit: limit) { deadLetter in
            reason.map { deadLetter.reason == $0 } ?? true
        }.sorted { $1.isBefore($0) }
            .prefix(limit)
        return Listing(
            Array(letters),
            columns: [
                .members(\.json), .cell("ID", \.id.text), .cell("AT") { $0.at?.iso8601 ?? "-" },
                .cell("REASON", \.reason),
                .cell("FROM") { deadLetter in
                    let place = deadLetter.sourcePlace.map { " \(Terminal.short($0, 30))" } ?? ""
                    return Terminal.short(deadLetter.source, 60) + place
                },
                .cell("APP") { Terminal.short($0.app ?? "-", 64) },
                .cell("BYTES") { String($0.size) },
                .cell("DETAIL") { Terminal.short($0.detail, 200) },
            ],
            empty: "there are no dead letters",
            form: .lines
        ).say(arguments)
    }

    static let deadLettersShow = Command(
        "dead-letters show <partition/offset>",
        "Show one dead letter in full"
    ) { arguments, context in
        let id = try letterID(try arguments.operand(0, "partition/offset"))
        let deadLetter = try await deadLetter(id, context)
        return arguments.answer(
            deadLetter.wholeJSON,
            JSONValue.object(deadLetter.wholeJSON).indented
        )
    }

    static let deadLettersReplay = Command(
        "dead-letters replay [<partition/offset>] …",
        "Replay dead letters to their topic, Segment items through ingest",
        options: [
            .flag("--all", "all that there are, or all of a reason; the last 1000 of a partition"),
            reasonOption, .flag("--dry-run", "show what would be replayed"), json,
        ]
    ) { arguments, context in
        let ids = try arguments.operands.map(letterID)
        guard ids.isEmpty == arguments.has("--all") else {
            throw ArgumentsError("takes the letters to replay, or --all")
        }
        let reason = arguments.value("--reason")
        guard reason == nil || ids.isEmpty else { throw ArgumentsError("--reason goes with --all") }
        var chosen: [StoredDeadLetter] = []
        if ids.isEmpty {
            chosen = try await letters(context, limit: 1000) { deadLetter in
                reason.map { deadLetter.reason == $0 } ?? true
            }
        } else {
            for id in ids { chosen.append(try await deadLetter(id, context)) }
        }
        let topics = try context.topics()
        let replay = try DeadLetterReplay(context, isDryRun: arguments.has("--dry-run"))
        var failures = 0
        for deadLetter in chosen {
            let way = deadLetter.replayTarget(topics)
            let end: DeadLetterReplay.End
            do {
                end = try await replay.replay(deadLetter, way)
            } catch {
                await replay.close()
                throw error
            }
            if !end.isGood { failures += 1 }
            arguments.answer(
                [
                    "id": .string(deadLetter.id.text), "replayed": .bool(end.isDone),
                    "outcome": .string(end.text),
                ],
                "\(deadLetter.id.text)  \(end.text)"
            )
        }
        await replay.close()
        if chosen.isEmpty, !arguments.has("--json") {
            Terminal.printLine("there are no dead letters")
        }
        return failures == 0 ? 0 : 1
    }

    // MARK: Shared

    private static let reasonOption = Arguments.Option.value(
        "--reason",
        "<reason>",
        "only those of this reason"
    )

    private static func letterID(_ text: String) throws(ArgumentsError) -> StoredDeadLetter.ID {
        guard let id = StoredDeadLetter.ID(text) else {
            throw ArgumentsError(
                "invalid dead-letter id \"\(text)\"; use one such as 0/17 from dead-letters list"
            )
        }
        return id
    }

    private static func deadLetter(
        _ id: StoredDeadLetter.ID,
        _ context: CommandContext
    ) async throws -> StoredDeadLetter {
        let found = try await letters(context, only: id, limit: 1) { _ in true }
        guard let deadLetter = found.first else {
            throw CommandFailure("dead letter \(id.text) not found; it may have expired")
        }
        return deadLetter
    }

    private static func letters(
        _ context: CommandContext,
        only id: StoredDeadLetter.ID? = nil,
        limit: Int,
        where isWanted: @escaping @Sendable (StoredDeadLetter) -> Bool
    ) async throws -> [StoredDeadLetter] {
        let span = StoredDeadLetter.Span(only: id, limit: limit, timeout: .seconds(300))
        return try await StoredDeadLetter.read(
            span,
            try context.kafka(),
            try context.topics(),
            on: context.loop,
            where: isWanted
        ).records.map(StoredDeadLetter.init(record:))
    }
}

/// The replay of dead letters, one after the other.
struct DeadLetterReplay {
    struct End {
        let text: String
        /// Whether it was replayed; false in a dry run.
        var isDone = false
        var isGood = true

        static func done(_ text: String) -> End { End(text: text, isDone: true) }
        static func wouldBe(_ text: String) -> End { End(text: text) }
        static func failed(_ why: String) -> End { End(text: "stays: \(why)", isGood: false) }
    }

    private let context: CommandContext
    private let isDryRun: Bool
    private let producer: KafkaProducer?
    private let client: HTTPClient?
    private let url: String

    init(_ context: CommandContext, isDryRun: Bool) throws {
        self.context = context
        self.isDryRun = isDryRun
        url = try context.ingestURL()
        guard !isDryRun else {
            (producer, client) = (nil, nil)
            return
        }
        producer = try KafkaProducer(try context.kafka(), on: context.loop)
        client = try HTTPClient(
            HTTPTransportConfiguration(
                allowedHosts: try HostPolicy(origin: url),
                version: .http1Only,
                caFile: try context.providers().caFile
            ),
            on: context.loop
        )
    }

    func close() async {
        await producer?.close()
        let client = client
        context.loop.execute { client?.close() }
    }

    func replay(_ deadLetter: StoredDeadLetter, _ way: StoredDeadLetter.ReplayTarget) async throws
        -> End
    {
        switch way {
        case .none(let obstacle): return .failed(obstacle.description)
        case .kafka(let topic):
            guard let producer else { return .wouldBe("would go to \(topic)") }
            let errors = try await producer.send([deadLetter.outgoing(to: topic)])
            if let error = errors.first ?? nil { return .failed(error.description) }
            if let app = deadLetter.app, AppID.isWellFormed(app), context.namesDatabase {
                try await audit(deadLetter, app)
            }
            return .done("back on \(topic)")
        case .intake(let route, let app):
            guard let client else { return .wouldBe("would go through \(url)\(route) as \(app)") }
            let key = try await appKey(of: app)
            let answer: HTTPResponse
            do throws(HTTPTransportError) {
                answer = try await client.call(
                    HTTPRequest(
                        url: url + route,
                        headers: [
                            HTTPField("content-type", "application/json"),
                            HTTPField(
                                "authorization",
                                "Basic " + Base64.encode(Array("\(key):".utf8))
                            ),
                        ],
                        body: deadLetter.intakeBody
                    )
                )
            } catch {
                return .failed("\(url) does not answer: \(error)")
            }
            guard answer.status == 200 else {
                return .failed("\(url)\(route) answers \(answer.status)")
            }
            let refused = (try? JSONValue.parse(answer.body))?["refused"]?.array ?? []
            if let reason = refused.first?["reason"]?.string {
                return .failed("\(url)\(route) refuses it: \(reason)")
            }
            try await audit(deadLetter, app)
            return .done(
                "replayed through \(route) as \(app); items that still fail become new dead letters"
            )
        }
    }

    private func audit(_ deadLetter: StoredDeadLetter, _ app: String) async throws {
        try await context.audit("dead-letters replay", app, [deadLetter.id.text])
    }

    private func appKey(of id: String) async throws -> String {
        let keys = try context.masterKeys()
        let app = try await Command.existing(id, try await context.database())
        let bytes = try keys.open(app.appKeySealed, context: StoredApp.appKeyContext(id))
        return String(decoding: bytes, as: UTF8.self)
    }
}
