import ConnectionStorage
import Gateway
import HTTPServer
import PushCore
import Storage

/// The page of connections: where an app's messages went, and the open sockets of the nodes.
extension ConsoleSurface {
    var connectionRoutes: [SurfaceRoute] {
        [page(.get, "/connections", for: .viewer) { .page(try await connectionPage($0)) }]
    }

    /// No more waiting messages are counted while a page is rendered.
    private static let maximumWaiting = 10_000
    /// The most rows of nodes and dialects.
    private static let maximumNodes = 200

    private func connectionPage(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let counts = try await database.connections.counts(
            of: visit.app,
            maximumWaiting: Self.maximumWaiting + 1
        )
        let nodes = try await database.connections.nodes()
        let open = nodes.reduce(0) { $0 + ($1.open[visit.app] ?? [:]).values.reduce(0, +) }
        let number = t.count(
            open,
            one: "{count} open connection",
            other: "{count} open connections"
        )
        var page = Page(
            t("Connections"),
            .connections,
            body: """
                <div class="stack">
                <section class="card" id="nodes" data-live="10"><h2>\(t("Nodes"))</h2>
                <p class="figure">\(number)</p>
                \(sockets(of: nodes, visit))</section>
                \(Part.card(t("Messages"), messages(counts, t)))
                </div>
                """
        )
        page.lead = HTML(
            text: t("Devices that hold a connection to Carillon get messages without a provider.")
        )
        return page
    }

    private func messages(_ counts: ConnectionCounts, _ t: Words) -> HTML {
        var list = KeyValues()
        list.add(t("Kept"), text: t.number(counts.kept))
        list.add(t("Received"), text: t.number(counts.received))
        list.add(t("Displaced"), text: t.number(counts.displaced))
        list.add(t("Expired"), text: t.number(counts.expired))
        list.add(
            t("Waiting"),
            text: counts.waiting > Self.maximumWaiting
                ? t("more than {count}", ["count": t.number(Self.maximumWaiting)])
                : t.number(counts.waiting)
        )
        let hint = t(
            "A displaced message was replaced by a later one, or was beyond the most that wait for a device."
        )
        return "\(list.html)<p class=\"hint\">\(hint)</p>"
    }

    private func sockets(of nodes: [ConnectionNode], _ visit: Visit) -> HTML {
        let t = visit.t
        var rows: [[HTML]] = []
        for node in nodes {
            let dialects = (node.open[visit.app] ?? [:]).sorted { $0.key < $1.key }
            for (dialect, count) in dialects where rows.count < Self.maximumNodes {
                rows.append([
                    Part.own(node.name), Part.code(dialect), HTML(text: t.number(count)),
                    t.time(node.seenAt),
                ])
            }
        }
        return Table(
            caption: t("Nodes"),
            columns: [
                .init(t("Node")), .init(t("Dialect")), .init(t("Open sockets"), .number),
                .init(t("Reported (UTC)"), width: 1),
            ],
            rows: rows,
            empty: nodes.isEmpty
                ? "<p>\(t("No node has reported within a minute. The connection service may not be running."))</p>"
                : "<p>\(t("No device of this app has an open connection."))</p>"
        ).html
    }
}
