import EventLoop
import JSON
import PushCore
import PushStorage
import ServiceKit

extension Command {
    static let pushShow = Command(
        "push show [<push id>]",
        "Show a push and its ledger",
        options: [
            .value(
                "--event",
                "<id>",
                "the latest push of the event with this id"
            ),
            .value("--app", "<app>", "with --event: only pushes of this app"),
            .flag(
                "--recount",
                "count the deliveries and compare them with the stored counts; exit 1 if they differ"
            ),
            .flag("--watch", "continue until the push has ended, with its rate and the time left"),
            json,
        ]
    ) { arguments, context in
        let event = arguments.value("--event")
        guard (arguments.operands.first == nil) != (event == nil) else {
            throw ArgumentsError("push show takes a push id or --event <id>")
        }
        let id: String?
        do throws(ArgumentsError) {
            id = try arguments.operands.first.map(pushID)
        } catch {
            throw ArgumentsError("\(error.description); for an event's id use --event")
        }
        let database = try await context.database()
        if let app = arguments.value("--app") { _ = try await existing(app, database) }
        let found: StoredPush?
        if let event {
            found = try await database.pushes.find(eventID: event, app: arguments.value("--app"))
                .first
        } else {
            found = try await existing(push: id ?? "", database)
        }
        guard var push = found else {
            throw CommandFailure(
                event.map { "no push found for event \($0)" } ?? "there is no such push"
            )
        }
        if arguments.has("--watch") {
            let watch = PushWatch(database, on: context.loop, isJSON: arguments.has("--json"))
            guard let last = try await watch.run(push) else { return PushWatch.interrupted }
            push = last
        }
        guard arguments.has("--recount") else {
            show(try await database.receipts.added(to: push), arguments)
            return 0
        }
        guard let (books, counted) = try await database.pushes.audit(push.id) else {
            throw CommandFailure("there is no such push")
        }
        show(try await database.receipts.added(to: books), counted: counted, arguments)
        return agrees(books.ledger, counted) && books.ledger.balances ? 0 : 1
    }

    private static func show(
        _ push: StoredPush,
        counted: Ledger? = nil,
        _ arguments: Arguments
    ) {
        var object = shownPush(push)
        object["received"] = JSONValue(push.receipts.received)
        object["opens"] = JSONValue(push.receipts.opened)
        var words = Terminal.table(summary(of: push))
        if let counted {
            let agrees = agrees(push.ledger, counted)
            var recount = shownLedger(counted)
            recount["agrees"] = .bool(agrees)
            object["recount"] = .object(recount)
            words += "\nrows       \(figures(of: counted))\n"
            words +=
                agrees ? "the books agree with the rows" : "THE BOOKS DO NOT AGREE WITH THE ROWS"
        }
        arguments.answer(object, words)
    }

    /// Whether the counters agree, except for `invalidTokens`, which is not a sum of rows.
    private static func agrees(_ books: Ledger, _ counted: Ledger) -> Bool {
        var books = books
        books.invalidTokens = counted.invalidTokens
        return books == counted
    }

    static func shownPush(_ push: StoredPush) -> JSONObject {
        var object: JSONObject = [
            "pushId": .string(push.id), "objectId": .string(push.id), "app": .string(push.app),
            "eventId": .string(push.eventID), "eventSource": .string(push.eventSource),
            "status": .string(push.status.rawValue),
        ]
        for (name, value) in shownLedger(push.ledger) { object[name] = value }
        if !push.failures.isEmpty { object["failures"] = push.failures.json }
        object["invalidTokens"] = JSONValue(push.ledger.invalidTokens)
        object["confirmed"] = JSONValue(push.confirmed)
        object["devices"] = JSONValue(push.ledger.targeted)
        object["successes"] = JSONValue(push.ledger.delivered)
        object["createdAt"] = .string(push.createdAt.iso8601)
        object["updatedAt"] = .string(push.updatedAt.iso8601)
        object["finishedAt"] = push.finishedAt.map { .string($0.iso8601) }
        object["releaseAt"] = push.releaseAt.map { .string($0.iso8601) }
        object["expiresAt"] = push.expiresAt.map { .string($0.iso8601) }
        object["error"] = push.error.map { .string($0) }
        if !push.notes.isEmpty { object["notes"] = .object(push.notes) }
        return object
    }

    static func shownLedger(_ ledger: Ledger) -> JSONObject {
        [
            "targeted": JSONValue(ledger.targeted), "delivered": JSONValue(ledger.delivered),
            "failed": JSONValue(ledger.failed), "expired": JSONValue(ledger.expired),
            "suppressed": JSONValue(ledger.suppressed), "inDoubt": JSONValue(ledger.inDoubt),
            "pending": JSONValue(ledger.pending),
        ]
    }

    /// Formats the ledger for people: `targeted 3  delivered 2 …`.
    private static func figures(of ledger: Ledger) -> String {
        shownLedger(ledger).map { "\(JSONValue.words(of: $0.key)) \($0.value.text)" }
            .joined(separator: "  ")
    }

    /// Returns the lines of a push for people.
    static func summary(of push: StoredPush) -> [[String]] {
        var rows = [
            ["push", push.id], ["app", push.app],
            ["event", push.eventID + (push.eventSource.isEmpty ? "" : " of \(push.eventSource)")],
            ["status", push.status.rawValue], ["created", push.createdAt.iso8601],
        ]
        if let time = push.releaseAt { rows.append(["release", time.iso8601]) }
        if let time = push.finishedAt { rows.append(["finished", time.iso8601]) }
        if let error = push.error { rows.append(["error", error]) }
        if !push.notes.isEmpty { rows.append(["notes", JSONValue.object(push.notes).plain]) }
        rows.append(["ledger", figures(of: push.ledger)])
        rows += push.failures.prefix(FailureCount.shown).map {
            ["failed", "\($0.count) at \($0.provider.rawValue): \($0.reason)"]
        }
        if push.ledger.invalidTokens > 0 {
            rows.append(["tokens", "\(push.ledger.invalidTokens) died"])
        }
        if push.confirmed > 0 { rows.append(["confirmed", "\(push.confirmed) reader(s)"]) }
        if push.receipts.received > 0 {
            rows.append(["received", "by \(push.receipts.received) device(s)"])
        }
        if push.receipts.opened > 0 {
            rows.append(["opened", "on \(push.receipts.opened) device(s)"])
        }
        return rows
    }
}
