import Gateway
import HTTPServer
import PushCore
import PushStorage
import Storage

/// The page of the services' health. Processes, lag and outbox are those of the whole installation;
/// rates and circuit breakers are only the app's: nobody sees another app's name or numbers.
extension ConsoleSurface {
    var healthRoutes: [SurfaceRoute] {
        [page(.get, "/health", for: .viewer) { .page(await healthPage($0)) }]
    }

    /// The minutes of the rates.
    private static let rateMinutes = 5

    private func healthPage(_ visit: Visit) async -> Page {
        let t = visit.t
        let (database, app) = (database, visit.app)
        async let fleet = unlessLate { try await database.instances.fleet() }
        async let outbox = unlessLate { try await database.outbox.depth() }
        async let figures = unlessLate {
            try await database.figures.series(
                app: app,
                FigureBuckets(last: Self.rateMinutes, before: database.clock.now())
            )
        }
        let (known, depth, series) = await (fleet, outbox, figures)
        let notes = known.map { fleetNotes($0, visit) } ?? []
        let attention: HTML =
            known == nil
            ? lateNote(t)
            : notes.isEmpty ? "<p>\(t("Nothing needs attention."))</p>" : notes.joined()
        var page = Page(
            t("Health"),
            .health,
            body: """
                <div class="stack" id="health" data-live="5">
                \(Part.card(t("Needs attention"), attention))
                \(Part.card(t("Services"), known.map { services($0, t) } ?? lateNote(t)))
                \(Part.card(t("Providers of this app"), providers(series, known, visit)))
                \(Part.card(t("Lag"), known.map { lag($0, t) } ?? lateNote(t)))
                \(Part.card(t("Outbox and maintenance"), upkeep(depth, known, t)))
                </div>
                """
        )
        page.lead = HTML(
            text: t(
                "Services, lag and outbox are those of the whole installation, providers those of this app."
            )
        )
        page.actions = "<span class=\"faint\">\(t("Live, every 5 s"))</span>"
        return page
    }

    // MARK: Attention

    private static let maximumNotes = 10

    /// Returns a note for each process that is missing or not ready, and for each open circuit
    /// breaker of the app.
    func fleetNotes(_ fleet: ServiceFleet, _ visit: Visit) -> [HTML] {
        let t = visit.t
        let missing = fleet.missing.map { lost in
            Part.note(
                t.html(
                    "{service} ({replica}) has not reported since {time}: it ended, or does not reach the database.",
                    [
                        "service": Part.code(lost.service), "replica": Part.own(lost.host),
                        "time": HTML(text: t.moment(lost.seenAt)),
                    ]
                ),
                .bad
            )
        }
        let notReady = fleet.seen.filter { !$0.state.isReady }.map { instance in
            Part.note(
                t.html(
                    "{service} ({replica}) is not ready: {parts}.",
                    [
                        "service": Part.code(instance.service),
                        "replica": Part.own(instance.host), "parts": parts(instance),
                    ]
                ),
                .warn
            )
        }
        let breakers = fleet.breakers(of: visit.app).map { breaker in
            Part.note(
                HTML(
                    text: t(
                        "{provider} has failed since {time}: its circuit breaker is open, and deliveries wait.",
                        [
                            "provider": name(breaker.provider, isSandbox: breaker.isSandbox, t),
                            "time": t.moment(breaker.since),
                        ]
                    )
                ),
                .bad
            )
        }
        return Array((breakers + missing + notReady).prefix(Self.maximumNotes))
    }

    /// The parts that are not ready. Their reasons name hosts, and are for operators of the
    /// installation: the command has them.
    private func parts(_ instance: ServiceInstance) -> HTML {
        HTML(text: instance.state.notReady.map(\.part).joined(separator: ", "))
    }

    private func name(_ platform: Platform, isSandbox: Bool, _ t: Words) -> String {
        isSandbox ? t("{provider} sandbox", ["provider": platform.title]) : platform.title
    }

    // MARK: Parts

    private func services(_ fleet: ServiceFleet, _ t: Words) -> HTML {
        Table(
            caption: t("Services"),
            columns: [
                .init(t("Service")), .init(t("State")), .init(t("Replica"), width: 1),
                .init(t("Version"), width: 1), .init(t("Seen (UTC)"), width: 1),
            ],
            rows: fleet.shown.map { instance in
                [
                    Part.code(instance.service), state(of: instance, t), Part.own(instance.host),
                    Part.own(instance.version), t.time(instance.seenAt),
                ]
            },
            empty: "<p>\(t("No service has reported within a day."))</p>"
        ).html
    }

    private func state(of instance: ServiceInstance, _ t: Words) -> HTML {
        guard instance.isSeen else { return Part.pill(t("Not seen"), .bad) }
        guard !instance.state.isReady else { return Part.pill(t("Ready"), .ok) }
        return """
            \(Part.pill(t("Not ready"), .warn)) <span class="sub">\(parts(instance))</span>
            """
    }

    private func providers(
        _ series: FigureSeries?,
        _ fleet: ServiceFleet?,
        _ visit: Visit
    ) -> HTML {
        let t = visit.t
        guard let series else { return lateNote(t) }
        let breakers = fleet?.breakers(of: visit.app) ?? []
        let counted = Dictionary(uniqueKeysWithValues: series.providers)
        let rows = Platform.allCases.compactMap { platform -> [HTML]? in
            let open = breakers.filter { $0.provider == platform }
            let counts = counted[platform]
            guard counts != nil || !open.isEmpty else { return nil }
            return [
                HTML(text: platform.title), state(open, t),
                HTML(text: t.number(counts?.delivered ?? 0)),
                HTML(text: t.number(counts?.failed ?? 0)), latency(counts?.latency, t),
            ]
        }
        let hint = t.count(
            Self.rateMinutes,
            one: "Deliveries of the last complete minute.",
            other: "Deliveries of the last {count} complete minutes."
        )
        return """
            <p class="hint">\(hint)</p>
            \(Table(
                caption: t("Providers of this app"),
                columns: [
                    .init(t("Provider")), .init(t("State")), .init(t("Delivered"), .number),
                    .init(t("Failed"), .number), .init(t("95% within"), .number, width: 1),
                ],
                rows: rows,
                empty: "<p>\(t("Nothing was sent."))</p>"
            ).html)
            """
    }

    private func state(_ open: [OpenBreaker], _ t: Words) -> HTML {
        guard !open.isEmpty else { return Part.pill(t("No failure in a row"), .ok) }
        return open.map { breaker -> HTML in
            let next =
                breaker.retryAt > t.now
                ? t("next probe at {time}", ["time": t.moment(breaker.retryAt)])
                : t("the next delivery is a probe")
            let pill = Part.pill(
                breaker.isSandbox ? t("sandbox: breaker open") : t("breaker open"),
                .bad
            )
            return "\(pill) <span class=\"sub\">\(next)</span>"
        }.joined()
    }

    private func latency(_ latency: LatencyHistogram?, _ t: Words) -> HTML {
        guard let value = latency?.percentile(0.95) else { return "–" }
        return HTML(text: t("{count} ms", ["count": t.number(Int(value.rounded()))]))
    }

    private func lag(_ fleet: ServiceFleet, _ t: Words) -> HTML {
        Table(
            caption: t("Lag"),
            columns: [.init(t("Topic")), .init(t("Waiting records"), .number)],
            rows: fleet.lags.map { lag in
                [
                    "\(Part.code(lag.topic)) <span class=\"sub\">\(Part.own(lag.group))</span>",
                    HTML(text: t.number(lag.records)),
                ]
            },
            empty: "<p>\(t("No service has reported how much it has read."))</p>"
        ).html
    }

    private func upkeep(
        _ depth: OutboxStore.Depth?,
        _ fleet: ServiceFleet?,
        _ t: Words
    ) -> HTML {
        var list = KeyValues()
        list.add(t("Outbox"), depth.map { HTML(text: outbox($0, t)) } ?? lateNote(t))
        if let fleet {
            let warnings = fleet.seen.flatMap { instance in
                instance.state.warnings.map { warning -> HTML in
                    "<li>\(Part.code(instance.service)) \(Part.own(warning.part))</li>"
                }
            }
            list.add(
                t("Maintenance"),
                warnings.isEmpty
                    ? HTML(text: t("No job reports a problem."))
                    : "<p>\(t("These jobs report a problem; carillon top says which:"))</p><ul>\(warnings)</ul>"
            )
        }
        list.add(t("Schema"), text: String(PushDatabase.schemaVersion))
        return list.html
    }

    private func outbox(_ depth: OutboxStore.Depth, _ t: Words) -> String {
        guard depth.records > 0 else { return t("No record waits.") }
        if depth.isMore {
            return t("more than {count}", ["count": t.number(depth.records)])
        }
        return t.count(
            depth.records,
            one: "{count} record waits, for {seconds} s",
            other: "{count} records wait, the first for {seconds} s",
            ["seconds": t.number(Int(depth.oldest / .seconds(1)))]
        )
    }
}
