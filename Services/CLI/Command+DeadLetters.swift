import Cryptography
import EventLoop
import HTTPTransport
import JSON
import Kafka
import PushCore
import PushEvents
import PushProviders
import PushStorage
import ServiceKit

extension Command {
    static let deadLettersList = Command(
        words: ["dead-letters", "list"],
        summary: "lists records that could not be used, and why, the latest first",
        options: [
            reasonOption, .value("--limit", "<n>", "at most so many, 1 to 1000; 100 by default"),
            json,
        ]
    ) { arguments, context in
        let text = arguments.value("--limit") ?? "100"
        guard let limit = Int(text), (1...1000).contains(limit) else {
            throw ArgumentsError("--limit takes a whole number from 1 to 1000")
        }
        let reason = arguments.value("--reason")
        let letters = try await letters(context, limit: limit) { letter in
            reason.map { letter.reason == $0 } ?? true
        }.sorted { ($0.at ?? .earliest, $0.id.offset) > ($1.at ?? .earliest, $1.id.offset) }
            .prefix(limit)
        if arguments.has("--json") {
            for letter in letters { Terminal.say(.object(letter.json)) }
        } else if letters.isEmpty {
            Terminal.say("there are no dead letters")
        } else {
            Terminal.say(
                Terminal.table(
                    [["ID", "AT", "REASON", "FROM", "APP", "BYTES", "DETAIL"]]
                        + letters.map { letter in
                            [
                                letter.id.text, letter.at?.iso8601 ?? "-", letter.reason,
                                Terminal.short(letter.source, 60)
                                    + (letter.sourcePlace.map { " \(Terminal.short($0, 30))" } ?? ""),
                                Terminal.short(letter.app ?? "-", 64), String(letter.size),
                                Terminal.short(letter.detail, 200),
                            ]
                        }
                )
            )
        }
        return 0
    }

    static let deadLettersShow = Command(
        words: ["dead-letters", "show"],
        summary: "shows a record that could not be used, whole",
        operands: ["partition/offset"],
        requiredOperands: 1,
        options: [json]
    ) { arguments, context in
        let id = try letterID(try arguments.operand(0, "partition/offset"))
        let letter = try await letter(id, context)
        let object = JSONValue.object(letter.wholeJSON)
        Terminal.say(arguments.has("--json") ? object.text : object.indented)
        return 0
    }

    static let deadLettersReplay = Command(
        words: ["dead-letters", "replay"],
        summary: "brings records back to where they came from; items of Segment's through intake",
        operands: ["partition/offset"],
        repeatsLastOperand: true,
        options: [
            .flag("--all", "all that there are, or all of a reason; the last 1000 of a partition"),
            reasonOption, .flag("--dry-run", "say what would go where and bring nothing"), json,
        ]
    ) { arguments, context in
        let ids = try arguments.operands.map(letterID)
        guard ids.isEmpty == arguments.has("--all") else {
            throw ArgumentsError("takes the letters to replay, or --all")
        }
        let reason = arguments.value("--reason")
        guard reason == nil || ids.isEmpty else { throw ArgumentsError("--reason goes with --all") }
        var chosen: [KeptLetter] = []
        if ids.isEmpty {
            chosen = try await letters(context, limit: 1000) { letter in
                reason.map { letter.reason == $0 } ?? true
            }
        } else {
            for id in ids { chosen.append(try await letter(id, context)) }
        }
        let topics = try context.topics()
        let replay = try LetterReplay(context, isRehearsal: arguments.has("--dry-run"))
        var failures = 0
        for letter in chosen {
            let way = letter.way(topics)
            let end: LetterReplay.End
            do {
                end = try await replay.bring(letter, way)
            } catch {
                await replay.close()
                throw error
            }
            if !end.isGood { failures += 1 }
            if arguments.has("--json") {
                Terminal.say([
                    "id": .string(letter.id.text), "replayed": .bool(end.isDone),
                    "outcome": .string(end.text),
                ])
            } else {
                Terminal.say("\(letter.id.text)  \(end.text)")
            }
        }
        await replay.close()
        if chosen.isEmpty, !arguments.has("--json") { Terminal.say("there are no dead letters") }
        return failures == 0 ? 0 : 1
    }

    // MARK: What these share

    private static let reasonOption = Arguments.Option.value(
        "--reason",
        "<reason>",
        "only those of this reason"
    )

    private static func letterID(_ text: String) throws(ArgumentsError) -> KeptLetter.ID {
        guard let id = KeptLetter.ID(text) else {
            throw ArgumentsError("\"\(text)\" is no letter: they are called 0/17, as listed")
        }
        return id
    }

    private static func letter(
        _ id: KeptLetter.ID,
        _ context: CommandContext
    ) async throws -> KeptLetter {
        let found = try await letters(context, only: id, limit: 1) { _ in true }
        guard let letter = found.first else {
            throw CommandFailure("there is no dead letter \(id.text), or not any more")
        }
        return letter
    }

    private static func letters(
        _ context: CommandContext,
        only id: KeptLetter.ID? = nil,
        limit: Int,
        where isWanted: @escaping @Sendable (KeptLetter) -> Bool
    ) async throws -> [KeptLetter] {
        let kafka = try context.kafka()
        let name = try context.topics().deadLetters
        let cluster = try await KafkaAdmin.describe(kafka, on: context.loop)
        guard let topic = cluster.topics.first(where: { $0.name == name }) else {
            throw CommandFailure("there is no topic \(name): run carillon migrate first")
        }
        return try await KafkaAdmin.read(
            topic,
            only: id.map { ($0.partition, $0.offset) },
            limit: limit,
            kafka,
            timeout: .seconds(300),
            on: context.loop
        ) { isWanted(KeptLetter(record: $0)) }.map(KeptLetter.init)
    }
}

/// Brings letters back, one after the other.
struct LetterReplay {
    enum End {
        case done(String)
        case wouldBe(String)
        case failed(String)

        var isDone: Bool {
            switch self {
            case .done: true
            case .wouldBe, .failed: false
            }
        }

        var isGood: Bool {
            switch self {
            case .done, .wouldBe: true
            case .failed: false
            }
        }

        var text: String {
            switch self {
            case .done(let text), .wouldBe(let text): text
            case .failed(let reason): "stays: \(reason)"
            }
        }
    }

    private let context: CommandContext
    private let isRehearsal: Bool
    private let producer: KafkaProducer?
    private let client: HTTPClient?
    private let url: String

    init(_ context: CommandContext, isRehearsal: Bool) throws {
        self.context = context
        self.isRehearsal = isRehearsal
        url = try context.ingestURL()
        guard !isRehearsal else {
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

    func bring(_ letter: KeptLetter, _ way: KeptLetter.Way) async throws -> End {
        switch way {
        case .none(let reason): return .failed(reason)
        case .kafka(let topic):
            guard let producer else { return .wouldBe("would go to \(topic)") }
            let errors = try await producer.send([letter.outgoing(to: topic)])
            if let error = errors.first ?? nil { return .failed(error.description) }
            if let app = letter.app, AppID.isWellFormed(app), context.namesDatabase {
                try await audit(letter, app)
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
                        body: letter.batch
                    )
                )
            } catch {
                return .failed("\(url) does not answer: \(error)")
            }
            guard answer.status == 200 else {
                return .failed("\(url)\(route) answers \(answer.status)")
            }
            try await audit(letter, app)
            return .done("through \(route) as \(app); what is wrong still is a letter again")
        }
    }

    private func audit(_ letter: KeptLetter, _ app: String) async throws {
        try await context.audit("dead-letters replay", app: app, targets: [letter.id.text])
    }

    private func appKey(of id: String) async throws -> String {
        let keys = try context.masterKeys()
        let app = try await Command.existing(id, try await context.database())
        let bytes = try keys.open(app.appKeySealed, context: StoredApp.appKeyContext(id))
        return String(decoding: bytes, as: UTF8.self)
    }
}
