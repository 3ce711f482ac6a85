import Explain
import Gateway
import HTTPServer
import PushCore
import PushStorage

/// Why a device got a push, or why not: one sentence, then always the same five steps.
extension ConsoleSurface {
    var explainRoutes: [SurfaceRoute] {
        [page(.get, "/explain", for: .viewer) { .page(try await explainPage($0)) }]
    }

    /// `GET /console/{app}/explain?push=&installation=`. Without an installation it asks for one;
    /// without a push it says why the device gets none at all.
    private func explainPage(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let named = visit.query("push")
        let push: StoredPush?
        if let named {
            guard let found = try await database.pushes.find(named.lowercased()),
                found.app == visit.app
            else {
                throw ConsoleError.missing(
                    t("No push has the id {id}.", ["id": String(named.prefix(64))])
                )
            }
            push = found
        } else {
            push = nil
        }
        guard let installation = visit.query("installation"), installation.utf8.count <= 512 else {
            return question(push, visit)
        }
        let explanation = try await database.explanations.explain(
            push,
            app: visit.app,
            installation: installation
        )
        return page(of: explanation, push, visit)
    }

    private func question(_ push: StoredPush?, _ visit: Visit) -> Page {
        let t = visit.t
        var page = Page(
            t("Explain a missing push"),
            .devices,
            body: """
                <form class="card stack" method="get" action="\(visit.address("explain"))">
                \(Field("push", t("Push id"), hint: HTML(
                    text: t("Empty: why the device gets no push at all."))).input(push?.id ?? ""))
                \(Field("installation", t("Device"), hint: HTML(
                    text: t("Its object id, or its installationId."))).input("", isRequired: true))
                <p><button class="btn primary">\(t("Explain"))</button></p></form>
                """
        )
        page.lead = HTML(text: t("One sentence answers why a device did not get a push."))
        return page
    }

    private func page(of explanation: Explanation, _ push: StoredPush?, _ visit: Visit) -> Page {
        let t = visit.t
        let parts = ExplainParts(explanation: explanation, visit: visit)
        let device = explanation.installationID
        var page = Page(
            push == nil
                ? t("Why does this device get no push?")
                : t("Why did this device get this push, or not?"),
            .devices,
            body: """
                <div class="stack">\(parts.verdict)
                <ol class="stack trail">\(parts.steps)</ol>
                \(Part.card(t("Next step"), "<p>\(t.phrase(explanation.nextStep))</p>"))
                \(parts.command.map { Part.block($0, id: "command", t) })</div>
                """
        )
        page.crumbs = [
            (t("Devices"), visit.address("devices")), (device, visit.address("devices", device)),
        ]
        if let push {
            page.lead = """
                <a href="\(visit.address("pushes", push.id))">\(Part.own(push.headline(t)))</a>
                """
        }
        page.actions = """
            <a class="btn" href="\(visit.address("explain", query: ["push": push?.id]))">\
            \(t("Choose another device"))</a>
            """
        return page
    }
}

/// The parts of an explanation.
struct ExplainParts {
    let explanation: Explanation
    let visit: Visit

    private var t: Words { visit.t }

    var verdict: HTML {
        let notes = explanation.notes.map { note -> HTML in "<p>\(t.phrase(note))</p>" }
        let tone: Part.Tone = explanation.reason.isArrival ? .ok : .warn
        return """
            <section class="note \(tone.rawValue)" aria-label="\(t("Answer"))">\
            <p class="figure">\(t.phrase(explanation.sentence))</p>\(notes)</section>
            """
    }

    /// The same in a terminal. An id from the address bar could hold another command, so only an id of
    /// letters, digits and hyphens is shown.
    var command: String? {
        let isPlain = explanation.installationID.utf8.allSatisfy {
            ASCII.isAlphanumeric($0) || $0 == UInt8(ascii: "-") || $0 == UInt8(ascii: "_")
        }
        guard isPlain, !explanation.installationID.hasPrefix("-") else { return nil }
        if let push = explanation.pushID {
            return "carillon push explain \(push) \(explanation.installationID)"
        }
        return "carillon installations explain \(explanation.app) \(explanation.installationID)"
    }

    var steps: [HTML] {
        explanation.steps.map { step in
            let reached: HTML = step.state == .notReached ? " faint" : .empty
            return """
                <li class="card\(reached)"><h2>\(t.phrase(step.question.title)) \(pill(step.state))</h2>
                <p>\(t.phrase(step.summary))</p>
                \(facts(step.facts))\(detail(of: step.question))</li>
                """
        }
    }

    private func pill(_ state: Explanation.Step.State) -> HTML {
        switch state {
        case .passed: Part.pill(t("passed"), .ok)
        case .stopped: Part.pill(t("ended or waits here"), .warn)
        case .notReached: Part.pill(t("not reached"), .quiet)
        }
    }

    private func facts(_ facts: [Explanation.Fact]) -> HTML {
        guard !facts.isEmpty else { return .empty }
        var list = KeyValues()
        for fact in facts {
            let value = fact.value.map { t.value($0) } ?? t("not stored")
            let tense = fact.tense == .now ? " (\(t("now")))" : ""
            list.items.append((t.phrase(fact.label), HTML(text: value + tense)))
        }
        return list.html
    }

    private func detail(of question: Explanation.Step.Question) -> HTML {
        switch question {
        case .audience: clauses
        case .content: content
        case .block: .empty
        case .provider: attempts
        case .device: causes
        }
    }

    private var clauses: HTML {
        guard !explanation.clauses.isEmpty else { return .empty }
        return Table(
            caption: t("Conditions of the audience, for this device"),
            columns: [
                .init(t("Condition")), .init(t("Met now")), .init(t("Value now"), width: 1),
                .init(t("Met then")),
            ],
            rows: explanation.clauses.map { clause in
                [
                    HTML(text: t.phrase(clause.condition)), verdict(clause.now, t("not known")),
                    clause.value.map { Part.own(String($0.prefix(300))) } ?? .empty,
                    verdict(clause.then, t("not stored")),
                ]
            }
        ).html
    }

    private func verdict(_ isMet: Bool?, _ unknown: String) -> HTML {
        guard let isMet else { return "<span class=\"faint\">\(unknown)</span>" }
        return isMet ? Part.pill(t("yes"), .ok) : Part.pill(t("no"), .bad)
    }

    /// A viewer sees the size and the language, and no content.
    private var content: HTML {
        guard let payload = explanation.payload else { return .empty }
        var list = KeyValues()
        list.add(t("Provider"), text: payload.platform.title)
        list.add(t("Language"), payload.locale.map(Part.own))
        list.add(t("Bytes"), text: t.number(payload.bytes))
        list.add(t("Problem"), text: payload.problem)
        guard visit.role >= .sender, !payload.body.isEmpty else { return list.html }
        return "\(list.html)\(Part.block(payload.body, id: "payload", t))"
    }

    private var attempts: HTML {
        guard !explanation.attempts.isEmpty else { return .empty }
        return Table(
            caption: t("Attempts"),
            columns: [
                .init(t("Attempt")), .init(t("Time (UTC)")), .init(t("Provider")),
                .init(t("Status")), .init(t("Reason")),
            ],
            rows: explanation.attempts.map { attempt in
                [
                    HTML(text: t.number(attempt.number)), t.time(attempt.at),
                    HTML(text: attempt.provider.title),
                    HTML(text: attempt.status.map(String.init) ?? t("no answer")),
                    attempt.reason.map(Part.code) ?? .empty,
                ]
            }
        ).html
    }

    private var causes: HTML {
        guard !explanation.causes.isEmpty else { return .empty }
        let items = explanation.causes.map { cause -> HTML in
            let rank: HTML =
                switch cause.rank {
                case .likely: Part.pill(t("likely"), .warn)
                case .possible: Part.pill(t("possible"), .quiet)
                case .unlikely: Part.pill(t("unlikely"), .quiet)
                }
            return """
                <li>\(rank) \(t.phrase(cause.cause))<span class="sub">\(t.phrase(cause.why))</span></li>
                """
        }
        return "<p>\(t("Only the device can know:"))</p><ul>\(items)</ul>"
    }
}
