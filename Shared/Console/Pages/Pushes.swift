import Gateway
import HTTPServer
import JSON
import PushCore
import PushStorage
import Storage

/// The pages of pushes: the list, one push, and its cancellation.
extension ConsoleSurface {
    var pushRoutes: [SurfaceRoute] {
        [
            page(.get, "/pushes", for: .viewer) { .page(try await pushList($0)) },
            page(.get, "/pushes/:id", for: .viewer) { .page(try await pushPage($0)) },
            page(.get, "/pushes/:id/cancel", for: .sender) { .page(try await cancelPage($0)) },
            page(.post, "/pushes/:id/cancel", for: .sender) { try await cancel($0) },
        ]
    }

    private static let pageSize = 25

    // MARK: List

    /// `GET /console/{app}/pushes?status=&q=&after=`.
    private func pushList(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let filter = PushFilter(visit)
        let found = try await pushes(filter, of: visit.app)
        let shown = found.prefix(Self.pageSize)
        let older =
            found.count > Self.pageSize && filter.text == nil
            ? shown.last.map { filter.address(visit, after: $0.id) } : nil
        let newest = filter.after == nil ? nil : filter.address(visit, after: nil)
        let table = Table(
            caption: t("Pushes"),
            columns: [
                .init(t("Push")), .init(t("Time (UTC)")), .init(t("Status")),
                .init(t("Ledger"), width: 1), .init(t("Targeted"), .number),
                .init(t("Delivered"), .number), .init(t("Failed"), .number, width: 1),
            ],
            rows: shown.map { row(of: $0, visit) },
            empty: emptyList(filter, visit)
        )
        let pager = Part.pager(older: older, newest: newest, t)
        // It changes with the list.
        let file: HTML = """
            <p><a class="btn" href="\(filter.address(visit, after: nil, file: "pushes.csv"))">\
            \(t("Export as CSV"))</a></p>
            """
        var page = Page(
            t("Pushes"),
            .pushes,
            body: """
                \(filter.form(visit))\(try await savedFilters(of: .pushes, visit))
                <div id="list">\(saveFilterForm(.pushes, filter.values, visit))\(table.html)\(pager)\
                \(file)</div>
                """
        )
        page.actions = sendButton(visit)
        return page
    }

    /// Returns one push more than a page has, if there are so many.
    func pushes(_ filter: PushFilter, of app: String) async throws -> [StoredPush] {
        let most = Self.pageSize + 1
        guard let text = filter.text else {
            let listing = PushStore.Listing(statuses: filter.state.statuses, after: filter.after)
            return try await database.pushes.list(app: app, listing, limit: most)
        }
        let byID = try await database.pushes.find(
            beginning: text.lowercased(),
            app: app,
            limit: most
        )
        let byEvent = try await database.pushes.find(eventID: text, app: app)
        return (byID + byEvent).filter { push in
            filter.state.statuses?.contains(push.status) ?? true
        }
    }

    func sendButton(_ visit: Visit) -> HTML {
        guard visit.role >= .sender else { return .empty }
        return """
            <a class="btn primary" href="\(visit.address("send"))">\(visit.t("Send a push"))</a>
            """
    }

    func row(of push: StoredPush, _ visit: Visit) -> [HTML] {
        let t = visit.t
        return [
            """
            <a href="\(visit.address("pushes", push.id))">\(Part.own(push.headline(t)))</a>\
            <span class="sub" translate="no">\(push.id)</span>
            """,
            t.time(push.releaseAt ?? push.createdAt),
            push.status.pill(t),
            LedgerPart(ledger: push.ledger, t: t).small,
            HTML(text: t.number(push.ledger.targeted)),
            HTML(text: t.number(push.ledger.delivered)),
            HTML(text: t.number(push.ledger.failed)),
        ]
    }

    private func emptyList(_ filter: PushFilter, _ visit: Visit) -> HTML {
        let t = visit.t
        guard !filter.isEmpty else {
            return """
                <p>\(t("No push is stored. Pushes are shown here from the moment they are accepted."))\
                </p>
                """
        }
        return """
            <p>\(t("No push matches the filter.")) \
            <a href="\(visit.address("pushes"))">\(t("Remove the filter"))</a></p>
            """
    }

    // MARK: One push

    /// Finds the push of the address.
    func push(of visit: Visit) async throws -> StoredPush {
        let id = visit.parameter("id").lowercased()
        guard let push = try await database.pushes.find(id), push.app == visit.app else {
            throw ConsoleError.missing(
                visit.t("No push has the id {id}.", ["id": String(id.prefix(64))])
            )
        }
        return push
    }

    /// `GET /console/{app}/pushes/{id}`. While the push is sent, its ledger renews itself.
    private func pushPage(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let push = try await database.receipts.added(to: try await push(of: visit))
        // While it is sent, the page renews itself every two seconds, and examples read deliveries.
        let examples =
            push.status.isFinal
            ? try await database.deliveries.examples(
                of: Array(push.failures.prefix(20)),
                in: push.id,
                limit: 3
            ) : push.failures.prefix(20).map { FailureExample(failure: $0, targets: []) }
        let series = try await figures(of: push)
        let live: HTML = push.status.isFinal ? .empty : " data-live=\"2\""
        // Before planning, nobody knows whether it has devices.
        let isKnown = push.status.isFinal || push.ledger.targeted > 0
        var page = Page(
            push.headline(t),
            .pushes,
            body: """
                <div class="stack">
                <section class="card" id="ledger"\(live)>
                <h2>\(t.count(
                    push.ledger.targeted, one: "{count} device", other: "{count} devices"))</h2>
                \(isKnown ? LedgerPart(ledger: push.ledger, t: t).big : .empty)
                \(progress(of: push, t))
                </section>
                \(await outcomes(series?.outcomes, of: push, t))
                \(failures(examples, of: push.id, visit))
                \(Part.card(t("Reported by devices"), reported(by: push, series?.receipts, t)))
                \(Part.card(t("Request"), facts(of: push, visit)))
                </div>
                """
        )
        page.marks = " \(push.status.pill(t))"
        page.crumbs = [(t("Pushes"), visit.address("pushes"))]
        page.lead = """
            <code id="push-id" translate="no">\(push.id)</code> \
            <button type="button" class="btn small" data-copy="#push-id" hidden>\(t("Copy"))</button>
            """
        page.actions = actions(for: push, visit)
        return page
    }

    /// Returns the figures of a push to many devices; `nil` if they are not loaded in time.
    private func figures(of push: StoredPush) async throws -> PushSeries? {
        do {
            return try await database.figures.series(ofPush: push.id, app: push.app)
        } catch let error as StorageError where error.isStatementTimeout {
            return nil
        }
    }

    private func outcomes(
        _ series: FigureSeries?,
        of push: StoredPush,
        _ t: Words
    ) async -> HTML {
        guard let series else { return .empty }
        let part = PushFiguresPart(
            series: series,
            targeted: push.ledger.targeted,
            t: t,
            events: await events(of: push.app, in: series.buckets)
        )
        return Part.card(t("Outcomes over time"), part.html)
    }

    private func actions(for push: StoredPush, _ visit: Visit) -> HTML {
        let t = visit.t
        let explain: HTML = """
            <a class="btn" href="\(visit.address("explain", query: ["push": push.id]))">\
            \(t("Explain a missing push"))</a>
            """
        guard visit.role >= .sender else { return explain }
        let copy: HTML = """
            \(explain)<a class="btn" href="\(visit.address("send", query: ["copy": push.id]))">\
            \(t("Copy to draft"))</a>
            """
        guard !push.status.isFinal else { return copy }
        return """
            \(copy)<a class="btn danger" href="\(visit.address("pushes", push.id, "cancel"))">\
            \(t("Cancel the push"))…</a>
            """
    }

    private func progress(of push: StoredPush, _ t: Words) -> HTML {
        if let error = push.error { return Part.note(HTML(text: error), .bad) }
        if let result = push.notes["dryRun"] {
            return Part.note(
                t.html("Dry run: {result}", ["result": Part.code(result.text)]),
                .quiet
            )
        }
        guard let progress = push.progress, !push.status.isFinal, progress.expected > 0 else {
            return .empty
        }
        let share = t.share(progress.recorded, of: progress.expected)
        return "<p class=\"faint\">\(t("{share} recorded", ["share": share]))</p>"
    }

    private func failures(
        _ examples: [FailureExample],
        of pushID: String,
        _ visit: Visit
    ) -> HTML {
        let t = visit.t
        guard !examples.isEmpty else { return .empty }
        let table = Table(
            caption: t("Failures by reason"),
            columns: [
                .init(t("Reason")), .init(t("Provider")), .init(t("Devices"), .number),
                .init(t("Examples"), width: 1),
            ],
            rows: examples.map { example in
                let links = example.targets.map { target -> HTML in
                    """
                    <a href="\(visit.address(
                        "explain", query: ["push": pushID, "installation": target]))" \
                    translate="no">\(String(target.prefix(12)))</a>
                    """
                }
                return [
                    Part.code(example.failure.reason),
                    HTML(text: example.failure.provider.title),
                    HTML(text: t.number(example.failure.count)),
                    links.joined(by: ", "),
                ]
            }
        )
        return Part.card(t("Failures"), table.html)
    }

    private func reported(
        by push: StoredPush,
        _ series: FigureSeries?,
        _ t: Words
    ) -> HTML {
        var list = KeyValues()
        list.add(t("Received"), text: t.number(push.receipts.received))
        list.add(t("Opened"), text: t.number(push.receipts.opened))
        if push.confirmed > 0 {
            list.add(t("Secure payloads read"), text: t.number(push.confirmed))
        }
        let note = t(
            "Devices report these themselves. Delivered means that the provider accepted it."
        )
        let chart = series.map { ReceiptsPart(kind: .sums, series: $0, t: t).html }
        return "\(list.html)<p class=\"hint\">\(note)</p>\(chart)"
    }

    private func facts(of push: StoredPush, _ visit: Visit) -> HTML {
        let t = visit.t
        var list = KeyValues()
        let text = PushText(push.request)
        list.add(t("Title"), text.title.map(Part.own))
        list.add(t("Text"), text.body.map(Part.own))
        list.add(t("Source"), Part.own(push.eventSource))
        list.add(t("Event"), Part.own(push.eventID))
        list.add(t("Accepted"), t.time(push.createdAt))
        list.add(t("Released"), push.releaseAt.map(t.time))
        list.add(t("Expires"), push.expiresAt.map(t.time))
        list.add(t("Ended"), push.finishedAt.map(t.time))
        // The request has the payload, which a viewer may not see.
        guard visit.role >= .sender else { return list.html }
        let json = JSONValue.object(push.request).indented
        return "\(list.html)\(Part.block(json, id: "request", t))"
    }

    // MARK: Cancellation

    private func cancelPage(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let push = try await push(of: visit)
        guard !push.status.isFinal else {
            throw ConsoleError.conflict(t("The push has ended. Nothing is left to cancel."))
        }
        let left = t.count(
            push.ledger.pending,
            one: "{count} delivery is pending, and will not be sent.",
            other: "{count} deliveries are pending, and will not be sent."
        )
        var page = Page(
            t("Cancel this push?"),
            .pushes,
            body: """
                <form class="card stack" method="post" \
                action="\(visit.address("pushes", push.id, "cancel"))">\(visit.formToken)
                <p><strong>\(Part.own(push.headline(t)))</strong></p>
                <p>\(left)</p>
                <p>\(t("Notifications that a provider has accepted cannot be recalled."))</p>
                <p class="actions"><button class="btn danger">\(t("Cancel the push"))</button>
                <a class="btn plain" href="\(visit.address("pushes", push.id))">\
                \(t("Back to the push"))</a></p>
                </form>
                """
        )
        page.crumbs = [
            (t("Pushes"), visit.address("pushes")),
            (push.headline(t), visit.address("pushes", push.id)),
        ]
        return page
    }

    private func cancel(_ visit: Visit) async throws -> PageAnswer {
        let push = try await push(of: visit)
        visit.note(push.id)
        guard try await database.pushes.cancel(push.id)?.status == .cancelled else {
            throw ConsoleError.conflict(
                visit.t("The push has ended. Nothing is left to cancel.")
            )
        }
        return .redirect(visit.address("pushes", push.id), flash: .cancelled)
    }
}

extension Platform {
    /// The provider's name on pages.
    var title: String {
        switch self {
        case .apns: "APNs"
        case .fcm: "FCM"
        case .wns: "WNS"
        case .mpns: "MPNS"
        case .connection: "Carillon"
        }
    }
}
