import Gateway
import HTTPServer
import PushCore
import Storage
import SyncStorage

/// The pages of push sync: an app's pools, a pool's datasets, and one identity with its devices.
extension ConsoleSurface {
    var syncRoutes: [SurfaceRoute] {
        [
            page(.get, "/sync", for: .viewer) { .page(try await syncPools($0)) },
            page(.get, "/sync/:pool", for: .viewer) { .page(try await syncPool($0)) },
            page(.get, "/sync/:pool/:identity", for: .viewer) { .page(try await syncIdentity($0)) },
        ]
    }

    private static let pageSize = 25
    /// The most devices, and the most subscriptions, of one identity that a page shows.
    private static let maximumRows = 100

    // MARK: Pools

    /// `GET /console/{app}/sync?after=`.
    private func syncPools(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let after = try visit.plainQuery("after")
        let (pools, hasMore) = try await database.syncPools.list(
            app: visit.app,
            after: after,
            limit: Self.pageSize
        )
        let table = Table(
            caption: t("Identity pools"),
            columns: [
                .init(t("Pool")), .init(t("Push sync")), .init(t("Sessions"), .number, width: 1),
                .init(t("Created (UTC)"), width: 1),
            ],
            rows: pools.map { pool in
                [
                    """
                    <a href="\(visit.address("sync", pool.name))" translate="no">\(pool.name)</a>
                    """,
                    Self.state(of: pool, t), HTML(text: t.number(pool.sessions)),
                    t.time(pool.createdAt),
                ]
            },
            empty: """
                <p>\(t("No identity pool is linked to this app. Link one in a terminal:"))</p>
                \(Part.block(
                    "carillon app link \(visit.app) --cognito-identity-pool <pool>", id: "link", t))
                """
        )
        let next =
            hasMore ? pools.last.map { visit.address("sync", query: ["after": $0.name]) } : nil
        let first = after == nil ? nil : visit.address("sync")
        var page = Page(
            t("Push sync"),
            .sync,
            body: "\(table.html)\(Part.pages(next: next, first: first, t))"
        )
        page.lead = HTML(
            text: t(
                "Datasets of users, which devices synchronize with the Amazon Cognito Sync API."
            )
        )
        return page
    }

    private static func state(of pool: SyncPoolEntry, _ t: Words) -> HTML {
        pool.isPushing ? Part.pill(t("On"), .ok) : Part.pill(t("Off"), .quiet)
    }

    private func pool(of visit: Visit) async throws -> SyncPoolEntry {
        let name = visit.parameter("pool")
        do {
            guard !name.utf8.contains(0) else { throw SyncRefusal.unknownPool }
            return try await database.syncPools.entry(name, app: visit.app)
        } catch SyncRefusal.unknownPool {
            throw ConsoleError.missing(
                visit.t(
                    "No identity pool {pool} is linked to this app.",
                    [
                        "pool": String(name.prefix(64))
                    ]
                )
            )
        }
    }

    // MARK: One pool

    /// `GET /console/{app}/sync/{pool}?q=&identity=&name=`: datasets by identity; the last two name
    /// the previous page's last one.
    private func syncPool(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let pool = try await pool(of: visit)
        let search = try visit.plainQuery("q")
        let (found, hasMore) = try await datasets(of: pool.name, search, visit)
        let table = Table(
            caption: t("Datasets"),
            columns: [
                .init(t("Identity")), .init(t("Dataset")), .init(t("Sync count"), .number),
                .init(t("Records"), .number, width: 1), .init(t("Bytes"), .number, width: 1),
                .init(t("Last change (UTC)"), width: 1),
            ],
            rows: found.map { dataset in
                [
                    """
                    <a href="\(visit.address("sync", pool.name, dataset.identity))" translate="no">\
                    \(dataset.identity)</a>
                    """,
                    Part.own(dataset.name), HTML(text: t.number(dataset.syncCount)),
                    HTML(text: t.number(dataset.records)), HTML(text: t.number(dataset.bytes)),
                    t.time(dataset.modifiedAt),
                ]
            },
            empty: search == nil
                ? "<p>\(t("No identity has stored a dataset."))</p>"
                : """
                <p>\(t("No identity with this id has a dataset.")) \
                <a href="\(visit.address("sync", pool.name))">\(t("Remove the filter"))</a></p>
                """
        )
        let next =
            hasMore
            ? found.last.map {
                visit.address(
                    "sync",
                    pool.name,
                    query: ["identity": $0.identity, "name": $0.name]
                )
            } : nil
        let first = visit.query("identity") == nil ? nil : visit.address("sync", pool.name)
        var page = Page(
            pool.name,
            .sync,
            body: """
                <form class="filters" method="get" action="\(visit.address("sync", pool.name))" \
                role="search" data-swap="#list">
                \(Field("q", t("Identity")).input(search ?? "", type: "search"))
                <button class="btn">\(t("Search"))</button></form>
                <div id="list">\(table.html)\(Part.pages(next: next, first: first, t))</div>
                """
        )
        page.crumbs = [(t("Push sync"), visit.address("sync"))]
        page.marks = " \(Self.state(of: pool, t))"
        page.lead = HTML(
            text: pool.isPushing
                ? t("Devices are notified of changes.") : t("No device is notified of changes.")
        )
        return page
    }

    private func datasets(
        of pool: String,
        _ search: String?,
        _ visit: Visit
    ) async throws -> (datasets: [SyncDataset], hasMore: Bool) {
        if let search {
            let owner = SyncIdentity(pool: pool, app: visit.app, identity: search)
            return try await database.syncDatasets.datasets(
                of: owner,
                after: nil,
                limit: SyncLimits.datasets
            )
        }
        var after: (identity: String, name: String)?
        if let identity = try visit.plainQuery("identity") {
            after = (identity, try visit.plainQuery("name") ?? "")
        }
        return try await database.syncDatasets.list(
            pool: pool,
            app: visit.app,
            after: after,
            limit: Self.pageSize
        )
    }

    // MARK: One identity

    private func syncIdentity(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let pool = try await pool(of: visit)
        let identity = visit.parameter("identity")
        let none = ConsoleError.missing(t("Nothing is stored for this identity."))
        guard !identity.utf8.contains(0) else { throw none }
        let found = try await database.syncState.find(
            pool: pool.name,
            identity: identity,
            maximumDevices: Self.maximumRows + 1,
            maximumSubscriptions: Self.maximumRows + 1
        )
        guard let state = found, !state.isEmpty else { throw none }
        let parts = SyncParts(state: state, visit: visit, maximumRows: Self.maximumRows)
        var page = Page(
            identity,
            .sync,
            body: """
                <div class="stack">
                \(Part.card(t("Datasets"), parts.datasets))
                \(Part.card(t("Devices"), parts.devices))
                \(Part.card(t("Notified counts"), parts.subscriptions))
                </div>
                """
        )
        page.crumbs = [
            (t("Push sync"), visit.address("sync")),
            (pool.name, visit.address("sync", pool.name)),
        ]
        if !pool.isPushing { page.lead = HTML(text: t("No device is notified of changes.")) }
        return page
    }
}

/// The parts of an identity's page.
struct SyncParts {
    let state: SyncState
    let visit: Visit
    let maximumRows: Int

    private var t: Words { visit.t }

    var datasets: HTML {
        Table(
            caption: t("Datasets"),
            columns: [
                .init(t("Dataset")), .init(t("Sync count"), .number),
                .init(t("Records"), .number, width: 1), .init(t("Bytes"), .number, width: 1),
                .init(t("Last changed by"), width: 1), .init(t("Last change (UTC)")),
            ],
            rows: state.datasets.map { dataset in
                [
                    Part.own(dataset.name), HTML(text: t.number(dataset.syncCount)),
                    HTML(text: t.number(dataset.records)), HTML(text: t.number(dataset.bytes)),
                    dataset.modifiedBy.map(Part.own) ?? .empty, t.time(dataset.modifiedAt),
                ]
            },
            empty: "<p>\(t("No dataset is stored."))</p>"
        ).html
    }

    var devices: HTML {
        let table = Table(
            caption: t("Devices"),
            columns: [
                .init(t("Device")), .init(t("Platform")), .init(t("State")),
                .init(t("Installation"), width: 1), .init(t("Registered (UTC)"), width: 1),
            ],
            rows: state.devices.prefix(maximumRows).map { device in
                [
                    Part.own(device.id), Part.own(device.platform),
                    device.isReached
                        ? Part.pill(t("Reachable"), .ok) : Part.pill(t("Not reachable"), .warn),
                    """
                    <a href="\(visit.address("devices", device.installation))" translate="no">\
                    \(device.installation)</a>
                    """,
                    t.time(device.registeredAt),
                ]
            },
            empty: "<p>\(t("No device is registered for push sync."))</p>"
        )
        return "\(table.html)\(rest(state.devices.count))"
    }

    var subscriptions: HTML {
        let table = Table(
            caption: t("Notified counts"),
            columns: [
                .init(t("Device")), .init(t("Dataset")), .init(t("Notified count"), .number),
                .init(t("Notified (UTC)"), width: 1), .init(t("State")),
            ],
            rows: state.subscriptions.prefix(maximumRows).map { item in
                [
                    Part.own(item.device), Part.own(item.dataset),
                    HTML(text: item.notifiedAt == nil ? "–" : t.number(item.notifiedCount)),
                    item.notifiedAt.map(t.time) ?? .empty, standing(of: item),
                ]
            },
            empty: "<p>\(t("No device has subscribed to a dataset."))</p>"
        )
        return "\(table.html)\(rest(state.subscriptions.count))"
    }

    private func rest(_ count: Int) -> HTML {
        guard count > maximumRows else { return .empty }
        let sentence = t("Only the first {count} are shown.", ["count": t.number(maximumRows)])
        return "<p class=\"hint\">\(sentence)</p>"
    }

    /// Whether a device was notified of its dataset's last count, and if not, why.
    private func standing(of item: SyncState.Subscription) -> HTML {
        guard let dataset = state.datasets.first(where: { $0.name == item.dataset }),
            item.notifiedCount < dataset.syncCount
        else { return Part.pill(t("Notified"), .ok) }
        if state.windows.contains(where: { $0.dataset == item.dataset }) {
            return Part.pill(t("To be notified"), .quiet)
        }
        if dataset.modifiedBy == item.device { return Part.pill(t("Made the change"), .quiet) }
        if !state.isPushing { return Part.pill(t("Push sync is off"), .warn) }
        if state.devices.contains(where: { $0.id == item.device && !$0.isReached }) {
            return Part.pill(t("Not reachable"), .warn)
        }
        return Part.pill(t("Being sent"), .quiet)
    }
}

extension Visit {
    /// Returns a value of the query that a statement can have as a parameter: Postgres' texts have no
    /// NUL.
    ///
    /// - Throws: `ConsoleError.badForm`.
    func plainQuery(_ name: String) throws -> String? {
        let value = query(name)
        guard value?.utf8.contains(0) != true else { throw ConsoleError.badForm }
        return value
    }
}
