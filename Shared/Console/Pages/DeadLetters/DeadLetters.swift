import DeadLetters
import Gateway
import HTTPServer
import JSON
import Kafka
import Outbox
import PushCore
import PushEvents
import Storage

/// The pages of dead letters: the list by reason, and one record.
extension ConsoleSurface {
    var deadLetterRoutes: [SurfaceRoute] {
        [
            page(.get, "/dead-letters", for: .viewer) { .page(try await deadLetterList($0)) },
            page(.get, "/dead-letters/:letter", for: .viewer) {
                .page(try await deadLetterPage($0))
            },
        ]
    }

    private static let pageSize = 25

    func letterParts(_ visit: Visit) -> DeadLetterParts {
        DeadLetterParts(visit: visit, topic: acceptance.topics.deadLetters)
    }

    // MARK: Reading

    /// Returns the latest dead letters, or why they cannot be shown.
    func readDeadLetters(_ t: Words) async throws -> Result<DeadLetterLog.Snapshot, Unread> {
        do {
            return .success(try await deadLetters.snapshot())
        } catch is StoredDeadLetter.MissingTopic {
            return .failure(Unread(t("Kafka has no topic of dead letters. Run carillon migrate.")))
        } catch let error where !(error is CancellationError) {
            return .failure(
                Unread(t("Kafka does not answer in time. Reload the page in a few seconds."))
            )
        }
    }

    /// A sentence in place of what Kafka has.
    struct Unread: Error {
        let sentence: String

        init(_ sentence: String) { self.sentence = sentence }

        var note: HTML { Part.note(HTML(text: sentence), .bad) }
    }

    // MARK: List

    /// `GET /console/{app}/dead-letters?reason=&after=`.
    private func deadLetterList(_ visit: Visit) async throws -> Page {
        let t = visit.t
        var page = Page(t("Dead letters"), .deadLetters, body: .empty)
        page.lead = HTML(
            text: t("Records of Kafka that could not be processed. Nothing came of them.")
        )
        switch try await readDeadLetters(t) {
        case .failure(let unread): page.body = unread.note
        case .success(let snapshot):
            let letters = snapshot.letters(of: visit.app)
            page.body = "\(list(letters, visit))\(bounds(of: snapshot, t))"
            if visit.role >= .sender, !letters.isEmpty {
                let reason = visit.query("reason")
                page.actions = """
                    <a class="btn" href="\(visit.address(
                        "dead-letters", "replay", query: ["reason": reason]))">\
                    \(t("Replay all that match"))…</a>
                    """
            }
        }
        return page
    }

    private func list(_ letters: [StoredDeadLetter], _ visit: Visit) -> HTML {
        let t = visit.t
        let parts = letterParts(visit)
        let reason = visit.query("reason")
        let matching = letters.filter { letter in reason.map(letter.reason.isSame) ?? true }
        let after = visit.query("after").flatMap(parts.id)
        let start =
            after.flatMap { id in matching.firstIndex { $0.id == id } }.map { $0 + 1 } ?? 0
        let shown = matching.dropFirst(start).prefix(Self.pageSize)
        let hasMore = matching.count > start + shown.count
        func address(after: StoredDeadLetter?) -> Address {
            visit.address(
                "dead-letters",
                query: ["reason": reason, "after": after.map(parts.name)]
            )
        }
        let table = Table(
            caption: t("Dead letters"),
            columns: [
                .init(t("Reason")), .init(t("Written (UTC)")), .init(t("From"), width: 1),
                .init(t("Bytes"), .number, width: 1),
            ],
            rows: shown.map { row(of: $0, parts) },
            empty: empty(reason, visit)
        )
        let pager = Part.pager(
            older: hasMore ? address(after: shown.last) : nil,
            newest: start > 0 ? address(after: nil) : nil,
            t
        )
        return "\(reasons(of: letters, reason, visit))<div id=\"list\">\(table.html)\(pager)</div>"
    }

    private func row(of letter: StoredDeadLetter, _ parts: DeadLetterParts) -> [HTML] {
        let t = parts.t
        return [
            """
            <a href="\(parts.address(of: letter))" translate="no">\
            \(DeadLetterParts.cut(letter.reason, 64)) \(letter.id.text)</a>\
            <span class="sub">\(Part.own(DeadLetterParts.cut(letter.detail, 200)))</span>
            """,
            letter.at.map(t.time) ?? .empty, parts.place(of: letter),
            HTML(text: t.number(letter.size)),
        ]
    }

    private func empty(_ reason: String?, _ visit: Visit) -> HTML {
        let t = visit.t
        guard reason != nil else {
            return "<p>\(t("No dead letter names this app. Every record could be processed."))</p>"
        }
        return """
            <p>\(t("No dead letter has this reason.")) \
            <a href="\(visit.address("dead-letters"))">\(t("Remove the filter"))</a></p>
            """
    }

    /// Links to the dead letters of each reason, with their numbers.
    private func reasons(
        of letters: [StoredDeadLetter],
        _ chosen: String?,
        _ visit: Visit
    ) -> HTML {
        let t = visit.t
        guard !letters.isEmpty else { return .empty }
        func link(_ reason: String?, _ title: String, _ count: Int) -> HTML {
            let isChosen = reason.map { $0.isSame(as: chosen ?? "") } ?? (chosen == nil)
            let mark: HTML = isChosen ? " aria-current=\"true\"" : ""
            return """
                <a class="btn small" href="\(visit.address("dead-letters", query: ["reason": reason]))"\
                \(mark)>\(DeadLetterParts.cut(title, 64)) \(t.number(count))</a>
                """
        }
        let links = Self.countsByReason(letters).map { link($0.reason, $0.reason, $0.count) }
        return """
            <nav class="actions reasons" aria-label="\(t("Reasons"))">\
            \(link(nil, t("All"), letters.count))\(links)</nav>
            """
    }

    /// The reasons with their numbers, the most frequent first.
    static func countsByReason(
        _ letters: [StoredDeadLetter]
    ) -> [(reason: String, count: Int)] {
        // Compared by bytes: a reason is text of a record.
        Dictionary(grouping: letters) { Array($0.reason.utf8) }
            .map { (String(decoding: $0.key, as: UTF8.self), $0.value.count) }
            .sorted { ($1.1, $0.0) < ($0.1, $1.0) }
    }

    /// How far back the page looked.
    private func bounds(of snapshot: DeadLetterLog.Snapshot, _ t: Words) -> HTML {
        let looked =
            snapshot.hasOlder
            ? t(
                "These are of the latest {count} records of each partition. Older ones are shown by carillon dead-letters list.",
                ["count": t.number(Int(DeadLetterLog.lastOffsets))]
            ) : t("These are all that Kafka still has.")
        let large =
            snapshot.leftOut > 0
            ? t.count(
                snapshot.leftOut,
                one: "{count} record of any app is too large to be read here.",
                other: "{count} records of any app are too large to be read here."
            ) : ""
        return """
            <p class="hint">\(t("Read from Kafka at {time}.", ["time": t.moment(snapshot.at)])) \
            \(looked) \(large)</p>
            """
    }

    // MARK: One record

    /// Finds the app's dead letter of the address.
    ///
    /// - Throws: `ConsoleError.missing`; also if it is another app's.
    func deadLetter(
        _ snapshot: DeadLetterLog.Snapshot,
        _ visit: Visit
    ) throws -> StoredDeadLetter {
        let name = visit.parameter("letter")
        let id = letterParts(visit).id(name)
        guard let letter = snapshot.letters(of: visit.app).first(where: { $0.id == id }) else {
            throw ConsoleError.missing(
                visit.t(
                    "The latest dead letters of this app have no {id}.",
                    ["id": String(name.prefix(64))]
                )
            )
        }
        return letter
    }

    /// `GET /console/{app}/dead-letters/{topic}-{partition}-{offset}`.
    private func deadLetterPage(_ visit: Visit) async throws -> Page {
        guard letterParts(visit).id(visit.parameter("letter")) != nil else {
            throw ConsoleError.missing(visit.t("There is nothing at this address."))
        }
        switch try await readDeadLetters(visit.t) {
        case .failure(let unread):
            var page = Page(visit.t("Dead letter"), .deadLetters, body: unread.note)
            page.crumbs = letterParts(visit).crumbs
            page.status = 503
            return page
        case .success(let snapshot):
            let letter = try deadLetter(snapshot, visit)
            // Content is shown: unlike other views, this one is audited.
            if visit.role >= .sender {
                visit.caller.context?.isAudited = false
                visit.note(letter.id.text)
            }
            return deadLetterPage(letter, visit)
        }
    }

    private func deadLetterPage(_ letter: StoredDeadLetter, _ visit: Visit) -> Page {
        let t = visit.t
        let parts = letterParts(visit)
        let content: HTML =
            visit.role >= .sender
            ? """
            \(Part.card(t("Value"), parts.content(of: letter)))
            \(Part.card(t("Headers"), parts.headers(of: letter)))
            \(Part.card(t("Replay"), id: "replay", replayForm(letter, typed: nil, visit)))
            """
            : Part.note(
                HTML(text: t("Its content is visible to the roles sender and admin.")),
                .quiet
            )
        var page = Page(
            "\(DeadLetterParts.cut(letter.reason, 64)) \(letter.id.text)",
            .deadLetters,
            body: """
                <div class="stack">\(Part.note(HTML(text: parts.sentence(letter.reason)), .bad))
                \(Part.card(t("Dead letter"), parts.facts(of: letter)))\(content)</div>
                """
        )
        page.crumbs = parts.crumbs
        return page
    }
}
