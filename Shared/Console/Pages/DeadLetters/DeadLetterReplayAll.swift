import DeadLetters
import EventLoop
import Gateway
import JSON
import PushCore
import PushStorage
import Storage

/// The replay of all dead letters of a reason: a page says how many would succeed, and only those are
/// replayed.
extension ConsoleSurface {
    /// The most dead letters that one page replays, the latest.
    private static let maximumLetters = 500

    /// The results of a replay for the dead letters of one reason.
    private struct Outlook {
        let reason: String
        var total = 0
        var good = 0
        var known = 0
        var others = 0
        var bad: Int { total - good - known - others }

        init(_ reason: String) { self.reason = reason }

        mutating func add(_ result: ReplayCheck.Result) {
            total += 1
            switch result {
            case .push: good += 1
            case .known: known += 1
            case .returned, .byCommand: others += 1
            case .fails, .otherApp, .undeclared, .never, .binaryHeader: break
            }
        }
    }

    private typealias Checked = (letter: StoredDeadLetter, result: ReplayCheck.Result)

    /// `GET /console/{app}/dead-letters/replay?reason=`.
    func replayAllPage(_ visit: Visit) async throws -> Page {
        let t = visit.t
        var page = Page(t("Replay dead letters?"), .deadLetters, body: .empty)
        page.crumbs = letterParts(visit).crumbs
        switch try await readDeadLetters(t) {
        case .failure(let unread): page.body = unread.note
        case .success(let snapshot):
            let reason = visit.query("reason")
            let letters = snapshot.letters(of: visit.app)
                .filter { letter in reason.map(letter.reason.isSame) ?? true }
            let checked = try await checked(letters, visit)
            page.body = replayAllBody(checked, isCut: letters.count > checked.count, visit)
        }
        return page
    }

    private func checked(
        _ letters: [StoredDeadLetter],
        _ visit: Visit
    ) async throws -> [Checked] {
        let checks = letters.prefix(Self.maximumLetters).map { check($0, visit) }
        var all: [Checked] = try await pool.run(of: visit.app) {
            checks.map { ($0.letter, $0.result()) }
        }
        let ids = all.compactMap { item -> String? in
            if case .push(_, let id) = item.result { id } else { nil }
        }
        let stored = ids.isEmpty ? [:] : try await database.pushes.find(Set(ids))
        // Of several records with one event, only the latest becomes a push.
        var seen: Set<String> = []
        for index in all.indices {
            guard case .push(_, let id) = all[index].result else { continue }
            if stored[id] != nil || !seen.insert(id).inserted {
                all[index].result = .known(pushID: id)
            }
        }
        return all
    }

    private func replayAllBody(_ checked: [Checked], isCut: Bool, _ visit: Visit) -> HTML {
        let t = visit.t
        let parts = letterParts(visit)
        var outlooks: [Outlook] = []
        for group in Self.countsByReason(checked.map(\.letter)) {
            var outlook = Outlook(group.reason)
            for item in checked where item.letter.reason.isSame(as: group.reason) {
                outlook.add(item.result)
            }
            outlooks.append(outlook)
        }
        let table = Table(
            caption: t("Result of a replay, by reason"),
            columns: [
                .init(t("Reason")), .init(t("Records"), .number),
                .init(t("Would succeed"), .number), .init(t("Would fail again"), .number),
                .init(t("Already a push"), .number), .init(t("One by one only"), .number, width: 1),
            ],
            rows: outlooks.map { outlook in
                [Part.code(DeadLetterParts.cut(outlook.reason, 64))]
                    + [outlook.total, outlook.good, outlook.bad, outlook.known, outlook.others]
                    .map { HTML(text: t.number($0)) }
            },
            empty: "<p>\(t("No dead letter matches."))</p>"
        )
        let good = checked.filter { if case .push = $0.result { true } else { false } }
        let cut: HTML =
            isCut
            ? """
            <p class="hint">\(t("Only the latest {count} are checked at once.", [
                "count": t.number(Self.maximumLetters)
            ]))</p>
            """ : .empty
        let back: HTML = """
            <a class="btn plain" href="\(visit.address("dead-letters"))">\
            \(t("Back to the dead letters"))</a>
            """
        guard !good.isEmpty else {
            return """
                <div class="card stack">\(table.html)\(cut)
                <p>\(t("None would succeed now, so nothing can be replayed together."))</p>
                <p class="actions">\(back)</p></div>
                """
        }
        let button = t.count(
            good.count,
            one: "Replay the {count} that would succeed",
            other: "Replay the {count} that would succeed"
        )
        let names = good.map { parts.name(of: $0.letter) }.joined(separator: " ")
        return """
            <form class="card stack" method="post" \
            action="\(visit.address("dead-letters", "replay"))">\(visit.formToken)
            \(table.html)\(cut)<input type="hidden" name="letters" value="\(names)">
            <p class="actions"><button class="btn primary">\(button)</button>\(back)</p>
            <p class="hint">\(t("Each becomes a push to its own audience."))</p></form>
            """
    }

    /// `POST /console/{app}/dead-letters/replay`: replays those of the page that still succeed.
    func replayAll(_ visit: Visit) async throws -> PageAnswer {
        let t = visit.t
        let parts = letterParts(visit)
        let chosen = Set(
            visit.form.text("letters").split(separator: " ").prefix(Self.maximumLetters)
                .compactMap { parts.id(String($0)) }
        )
        guard !chosen.isEmpty else {
            throw ConsoleError.conflict(t("No dead letter is chosen, so nothing was replayed."))
        }
        let snapshot = try await readDeadLetters(t)
            .mapError { ConsoleError.away($0.sentence) }.get()
        let letters = snapshot.letters(of: visit.app).filter { chosen.contains($0.id) }
        let good = try await checked(letters, visit).filter { item in
            if case .push = item.result { true } else { false }
        }
        guard !good.isEmpty else {
            throw ConsoleError.conflict(t("None of them would succeed any more."))
        }
        // Of many, as many are replayed as the app may send now.
        var granted: [OutgoingRecord] = []
        for item in good {
            do { try visit.caller.countPush() } catch {
                guard granted.isEmpty else { break }
                throw error
            }
            granted.append(check(item.letter, visit).outgoing())
            visit.note(item.letter.id.text)
        }
        try await database.outbox.append(granted)
        return .redirect(visit.address("dead-letters"), flash: .replayed)
    }
}
