import DeadLetters
import Gateway
import HTTPServer
import IngestStorage
import InstallationStorage
import Outbox
import PushCore
import PushEvents
import PushStorage
import Storage

/// The replay of a dead letter: a dry run, then the replay. What is replayed goes through the outbox,
/// and an event becomes one push, so that a second press does nothing.
extension ConsoleSurface {
    var deadLetterReplayRoutes: [SurfaceRoute] {
        [
            page(.post, "/dead-letters/:letter", for: .sender) { try await replayLetter($0) },
            page(.get, "/dead-letters/replay", for: .sender) { .page(try await replayAllPage($0)) },
            page(.post, "/dead-letters/replay", for: .sender) { try await replayAll($0) },
        ]
    }

    func check(_ letter: StoredDeadLetter, _ visit: Visit) -> ReplayCheck {
        ReplayCheck(
            letter: letter,
            app: visit.app,
            topics: acceptance.topics,
            includesPushID: visit.caller.includesPushIDs,
            now: acceptance.clock.now()
        )
    }

    // MARK: One record

    /// The form of the dry run, with the value to edit.
    func replayForm(_ letter: StoredDeadLetter, typed: String?, _ visit: Visit) -> HTML {
        let t = visit.t
        let parts = letterParts(visit)
        switch check(letter, visit).result() {
        case .byCommand: return command(letter, visit)
        case .never(let obstacle):
            return "<p>\(t("It cannot be replayed.")) \(parts.sentence(obstacle))</p>"
        case .binaryHeader:
            return "<p>\(t("It cannot be replayed here: a header is not text."))</p>"
        case .push, .known, .returned, .undeclared, .fails, .otherApp: break
        }
        let field =
            DeadLetterParts.editable(letter).map { value in
                Field(
                    "value",
                    t("Value to replay"),
                    hint: HTML(
                        text: t("Edit it, or leave it unchanged. The key and the headers stay.")
                    )
                ).area(typed ?? value, rows: 8)
            } ?? "<p>\(t("The value is too large to be edited here, or is not text."))</p>"
        return """
            <form method="post" action="\(parts.address(of: letter))">\(visit.formToken)\(field)
            <p class="actions"><button class="btn primary" name="do" value="check">\
            \(t("Dry run"))…</button></p>
            <p class="hint">\(t("Nothing is replayed yet. The next page says what would happen."))</p>
            </form>
            """
    }

    private func command(_ letter: StoredDeadLetter, _ visit: Visit) -> HTML {
        let t = visit.t
        return """
            <p>\(t("Records from this place are replayed by the command:"))</p>
            \(Part.block("carillon dead-letters replay \(letter.id.text)", id: "command", t))
            """
    }

    /// `POST /console/{app}/dead-letters/{…}`: the dry run, or the replay.
    private func replayLetter(_ visit: Visit) async throws -> PageAnswer {
        guard letterParts(visit).id(visit.parameter("letter")) != nil else {
            throw ConsoleError.missing(visit.t("There is nothing at this address."))
        }
        let snapshot = try await readDeadLetters(visit.t)
            .mapError { ConsoleError.away($0.sentence) }.get()
        let letter = try deadLetter(snapshot, visit)
        visit.note(letter.id.text)
        let edited = DeadLetterParts.edited(visit.form, letter)
        let check = check(letter, visit)
        let result = try await compared(check.result(edited: edited), visit.app)
        guard visit.form.text("do") == "replay" else {
            visit.caller.context?.isAudited = true
            return .page(try await dryRunPage(letter, result, isEdited: edited != nil, visit))
        }
        switch result {
        case .push, .returned:
            try visit.caller.countPush()
            try await database.outbox.append([check.outgoing(edited: edited)])
            return .redirect(visit.address("dead-letters"), flash: .replayed)
        case .known(let id):
            return .redirect(visit.address("pushes", id), flash: .alreadyReplayed)
        case .fails, .otherApp, .undeclared, .byCommand, .never, .binaryHeader:
            return .page(try await dryRunPage(letter, result, isEdited: edited != nil, visit))
        }
    }

    /// Compares a result with what is stored: the push that the event is already, the declared types.
    private func compared(
        _ result: ReplayCheck.Result,
        _ app: String
    ) async throws -> ReplayCheck.Result {
        switch result {
        case .push(_, let id) where try await database.pushes.find([id])[id] != nil:
            return .known(pushID: id)
        case .returned(let topic):
            let type = String(topic.dropFirst(acceptance.topics.ingestPrefix.count))
            let isDeclared = try await database.ingestTypes.find(type, of: app) != nil
            return isDeclared ? result : .undeclared(type: type)
        default: return result
        }
    }

    private func dryRunPage(
        _ letter: StoredDeadLetter,
        _ result: ReplayCheck.Result,
        isEdited: Bool,
        _ visit: Visit
    ) async throws -> Page {
        let t = visit.t
        let parts = letterParts(visit)
        let typed = visit.form["value"]
        let verdict = try await verdict(result, parts)
        var page = Page(t("Replay this record?"), .deadLetters, body: .empty)
        page.crumbs = parts.crumbs + [(letter.id.text, parts.address(of: letter))]
        guard verdict.isGood else {
            page.status = 422
            page.body = """
                <div class="stack">\(verdict.note)\(Part.card(
                    t("Replay"), id: "replay", replayForm(letter, typed: typed, visit)))</div>
                """
            return page
        }
        let value = typed.map { typed -> HTML in
            """
            <input type="hidden" name="value" value="\(typed)">\
            \(isEdited ? Part.block(typed, id: "edited", t) : .empty)
            """
        }
        let hint =
            if case .returned = result {
                t("Each press replays it again. An object with the same id is stored once.")
            } else {
                t("If you press the button twice, it is replayed once.")
            }
        page.body = """
            <div class="stack">\(verdict.note)
            <form class="card stack" method="post" action="\(parts.address(of: letter))">\
            \(visit.formToken)\(parts.facts(of: letter))
            <p>\(isEdited ? t("The value is edited.") : t("The value is unchanged."))</p>\(value)
            <p class="actions"><button class="btn primary" name="do" value="replay">\
            \(t("Replay the record"))</button>
            <a class="btn plain" href="\(parts.address(of: letter))">\(t("Back to the record"))</a></p>
            <p class="hint">\(hint)</p>
            </form></div>
            """
        return page
    }

    private func verdict(
        _ result: ReplayCheck.Result,
        _ parts: DeadLetterParts
    ) async throws -> (note: HTML, isGood: Bool) {
        let t = parts.t
        func bad(_ text: HTML) -> (HTML, Bool) { (Part.note(text, .bad), false) }
        switch result {
        case .push(let audience, _):
            return (try await audiencePart(audience, parts.visit), true)
        case .returned(let topic):
            let text = t.html(
                "It goes back to {topic}, whose reader checks it again.",
                ["topic": Part.code(topic)]
            )
            return (Part.note(text, .quiet), true)
        case .known(let id):
            let link: HTML = """
                <a href="\(parts.visit.address("pushes", id))">\(t("Show the push"))</a>
                """
            return bad("\(t("It is a push already. A replay would change nothing.")) \(link)")
        case .fails(let reason):
            let sentence = parts.sentence(reason.reason.rawValue)
            return bad(
                """
                \(t("It would fail again.")) \(sentence) \
                \(Part.own(DeadLetterParts.cut(reason.detail, 500)))
                """
            )
        case .otherApp:
            return bad(HTML(text: t("It must name this app: {app}.", ["app": parts.visit.app])))
        case .undeclared(let type):
            return bad(HTML(text: t("The app has no type {name}.", ["name": type])))
        case .byCommand: return bad(HTML(text: t("Only the command replays this record.")))
        case .never(let obstacle): return bad(HTML(text: parts.sentence(obstacle)))
        case .binaryHeader:
            return bad(HTML(text: t("It cannot be replayed here: a header is not text.")))
        }
    }

    /// The audience that the push would reach now.
    private func audiencePart(_ audience: PushRequest.Audience, _ visit: Visit) async throws -> HTML
    {
        let t = visit.t
        let reached: HTML
        switch audience {
        case .installations(let selectors):
            do {
                let count = try await database.installations.count(
                    app: visit.app,
                    selectors,
                    withinMilliseconds: Self.countMilliseconds
                )
                reached = Self.counted(count, t)
            } catch let error as WhereError {
                reached = "<p>\(error.description)</p>"
            }
        case .tokens(let tokens):
            let text = t.count(tokens.count, one: "{count} token", other: "{count} tokens")
            reached = "<p class=\"figure\">\(text)</p>"
        case .topic(let topic):
            reached = "<p>\(t.html("Topic {name}", ["name": Part.own(topic.target)]))</p>"
        }
        return """
            \(Part.note(HTML(text: t("It would become a push now.")), .ok))\
            \(Part.card(t("Audience now"), reached))
            """
    }
}
