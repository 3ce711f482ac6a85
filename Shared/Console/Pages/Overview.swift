import Gateway
import HTTPServer
import InstallationStorage
import PushCore
import PushStorage
import Storage

/// The first page of an app: what needs attention, today's numbers, the latest pushes. An app without
/// devices gets the steps to its first push in their place.
extension ConsoleSurface {
    var overviewRoutes: [SurfaceRoute] {
        [page(.get, "", for: .viewer) { .page(try await overview($0)) }]
    }

    private func overview(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let anyDevice = try await database.installations.query(app: visit.app, limit: 1)
        let latest = try await database.pushes.list(app: visit.app, .init(), limit: 8)
        guard !anyDevice.isEmpty || !latest.isEmpty else { return firstSteps(visit) }
        let table = Table(
            caption: t("Latest pushes"),
            columns: [
                .init(t("Push")), .init(t("Time (UTC)")), .init(t("Status")),
                .init(t("Ledger"), width: 1), .init(t("Targeted"), .number),
                .init(t("Delivered"), .number), .init(t("Failed"), .number, width: 1),
            ],
            rows: latest.map { row(of: $0, visit) },
            empty: "<p>\(t("No push yet."))</p>"
        )
        var page = Page(
            visit.app,
            .overview,
            body: """
                <div class="stack">\(try await attention(visit))
                <section class="card" id="today" data-live="10"><h2>\(t("Today (UTC)"))</h2>
                \(try await today(visit))</section>
                \(try await figures(visit))
                \(Part.card(t("Latest pushes"), table.html))
                \(try await scheduled(visit))</div>
                """
        )
        page.actions = """
            <a class="btn" href="\(visit.address("explain"))">\(t("Explain a missing push"))</a>\
            \(sendButton(visit))
            """
        return page
    }

    private func today(_ visit: Visit) async throws -> HTML {
        let t = visit.t
        let midnight = Instant(iso8601: t.now.day + "T00:00:00Z") ?? t.now
        let totals: PushStore.Totals
        do {
            totals = try await database.pushes.totals(app: visit.app, since: midnight)
        } catch let error as StorageError where error.isStatementTimeout {
            return "<p>\(t("Not loaded in time."))</p>"
        }
        let pushes = t.count(totals.pushes, one: "{count} push", other: "{count} pushes")
        return "<p class=\"figure\">\(pushes)</p>\(LedgerPart(ledger: totals.ledger, t: t).big)"
    }

    /// The charts of the query's `range`, and the providers in it.
    private func figures(_ visit: Visit) async throws -> HTML {
        let t = visit.t
        let chosen = FiguresPart.Range.of(visit)
        let ranges = FiguresPart.Range.allCases.map { range -> HTML in
            let current: HTML = range == chosen ? " aria-current=\"true\"" : .empty
            return """
                <a class="btn small" href="\(visit.address(query: ["range": range.rawValue]))"\(current)>\
                \(range.title(t))</a>
                """
        }
        let links: HTML = """
            <nav class="actions" aria-label="\(t("Time range"))">\(ranges)</nav>
            """
        do {
            let buckets = FigureBuckets(last: chosen.minutes, before: t.now)
            async let acts = events(of: visit.app, in: buckets)
            let series = try await database.figures.series(app: visit.app, buckets)
            let part = FiguresPart(series: series, t: t, events: await acts)
            return """
                \(Part.card(t("Deliveries"), id: "figures", links + part.html))\
                \(Part.card(
                    t("Received and opened"),
                    id: "reports",
                    ReceiptsPart(kind: .rates, series: series, t: t).html))\
                \(part.providers)
                """
        } catch let error as StorageError where error.isStatementTimeout {
            return Part.card(
                t("Deliveries"),
                id: "figures",
                "\(links)<p>\(t("Not loaded in time."))</p>"
            )
        }
    }

    /// Returns the acts that charts mark; none if they are late.
    func events(of app: String, in buckets: FigureBuckets) async -> [AuditEvent] {
        let audit = database.audit
        return await unlessLate {
            try await audit.events(
                app: app,
                from: buckets.start,
                to: buckets.end,
                limit: ChartEvents.mostRead
            )
        } ?? []
    }

    private func attention(_ visit: Visit) async throws -> HTML {
        let t = visit.t
        let credentials = try await database.credentials.list(app: visit.app)
        var notes = credentials.compactMap { credential -> HTML? in
            guard let end = credential.end,
                end < t.now.adding(milliseconds: 30 * 86_400_000)
            else { return nil }
            let sentence =
                end <= t.now
                ? t(
                    "The credential of {provider} has expired.",
                    [
                        "provider": credential.platform.title
                    ]
                )
                : t(
                    "The credential of {provider} expires {span}.",
                    [
                        "provider": credential.platform.title, "span": t.span(until: end),
                    ]
                )
            return Part.note(
                """
                \(sentence) <a href="\(visit.address("credentials"))">\(t("Credentials"))</a>
                """,
                end <= t.now ? .bad : .warn
            )
        }
        if credentials.isEmpty {
            notes.append(
                Part.note(
                    HTML(
                        text: t(
                            "No provider has a credential. Only devices with a connection get pushes."
                        )
                    ),
                    .warn
                )
            )
        }
        let database = database
        let fleet = await unlessLate { try await database.instances.fleet() }
        let troubles = fleet.map { fleetNotes($0, visit) } ?? []
        if !troubles.isEmpty {
            notes += troubles
            notes.append("<p><a href=\"\(visit.address("health"))\">\(t("Health"))</a></p>")
        }
        return notes.joined()
    }

    private func scheduled(_ visit: Visit) async throws -> HTML {
        let t = visit.t
        let waiting = try await database.pushes.scheduled(app: visit.app, limit: 5)
        guard !waiting.isEmpty else { return .empty }
        let items = waiting.map { push -> HTML in
            """
            <li><a href="\(visit.address("pushes", push.id))">\(Part.own(push.headline(t)))</a> \
            \(push.releaseAt.map { HTML(text: t.moment($0)) })</li>
            """
        }
        return Part.card(t("Scheduled"), "<ul>\(items)</ul>")
    }

    /// The way of an app without devices to its first push.
    private func firstSteps(_ visit: Visit) -> Page {
        let t = visit.t
        let origin = visit.origin
        let register = """
            curl -X POST \(origin)/1.1/installations \\
              -H 'X-LC-Id: \(visit.app)' -H 'X-LC-Key: <app key>' \\
              -H 'Content-Type: application/json' \\
              -d '{"deviceType":"android","installationId":"first-device","vendor":"lc"}'
            """
        let send: HTML =
            visit.role >= .sender
            ? "<p><a class=\"btn primary\" href=\"\(visit.address("send"))\">\(t("Send a push"))</a></p>"
            : .empty
        return Page(
            visit.app,
            .overview,
            body: """
                <ol class="stack steps" id="first" data-live="5">
                <li class="card"><h2>\(t("Register a device"))</h2>
                <p>\(t("Run this command, or start an app whose server address is this one."))</p>
                \(Part.block(register, id: "register", t))</li>
                <li class="card"><h2>\(t("Add a provider's credential"))</h2>
                <p>\(t("A device with a connection needs none. For APNs and FCM:"))</p>
                \(Part.block("carillon credentials set apns \(visit.app) --help", id: "set", t))</li>
                <li class="card"><h2>\(t("Send a push"))</h2>
                <p>\(t("This page changes as soon as a device is registered."))</p>\(send)</li>
                </ol>
                """
        )
    }
}

extension Visit {
    /// The scheme and host of the request, for commands to copy.
    var origin: String {
        let scheme = request.header("x-forwarded-proto") == "https" ? "https" : request.scheme
        return "\(scheme)://\(request.header("host") ?? "localhost:8080")"
    }
}
