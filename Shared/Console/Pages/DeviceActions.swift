import Gateway
import HTTPServer
import InstallationStorage
import PushCore
import Storage

/// The list of devices as a file, and the restoration of devices that providers made invalid.
extension ConsoleSurface {
    var deviceActionRoutes: [SurfaceRoute] {
        [
            page(.get, "/devices.csv", for: .sender) { try deviceFile($0) },
            page(.get, "/devices/restore", for: .sender) { .page(try await restorePage($0)) },
            page(.post, "/devices/restore", for: .sender) { try await restore($0) },
        ]
    }

    // MARK: File

    private static let filePage = 500

    /// `GET /console/{app}/devices.csv?q=&by=`: the filtered list, without tokens.
    private func deviceFile(_ visit: Visit) throws -> PageAnswer {
        let (database, app) = (database, visit.app)
        let filter = DeviceFilter(visit)
        guard filter.text?.utf8.contains(0) != true else { throw ConsoleError.badForm }
        return .file(
            name: "devices-\(app)-\(visit.t.now.day).csv",
            HTTPFile(contentType: "text/csv; charset=utf-8") { write in
                try await write(CSV.line(Self.fileColumns))
                var after: String?
                while true {
                    let devices = try await filter.devices(
                        of: database.installations,
                        app: app,
                        after: after,
                        limit: Self.filePage
                    )
                    try await write(devices.map(Self.line).joined())
                    guard devices.count == Self.filePage, filter.kind != .id || filter.text == nil
                    else { return }
                    after = devices.last?.objectID
                }
            }
        )
    }

    private static let fileColumns = [
        "installation", "type", "provider", "valid", "reason", "identity", "channels", "timeZone",
        "locale", "createdAt", "updatedAt",
    ]

    private static func line(of device: Installation) -> String {
        CSV.line([
            device.objectID, device.deviceType, device.platform?.rawValue ?? "",
            device.isValid ? "true" : "false", device.invalidReason ?? "", device.identity ?? "",
            device.channels.joined(separator: " "), device.timeZone ?? "", device.locale ?? "",
            device.createdAt.iso8601, device.updatedAt.iso8601,
        ])
    }

    // MARK: Restoration

    /// How far back devices can be restored here.
    private static let restorableDays: Int64 = 30
    private static let day: Int64 = 86_400_000

    /// The time since which devices became invalid: the day's begin of the form, else of yesterday.
    private static func since(_ text: String?, _ now: Instant) -> (day: String, at: Instant) {
        let earliest = now.adding(milliseconds: -restorableDays * day)
        let yesterday = now.adding(milliseconds: -day).day
        let chosen = text.flatMap { $0.count == 10 ? $0 : nil } ?? yesterday
        let at = Instant(iso8601: chosen + "T00:00:00Z")
        guard let at, at >= earliest, at <= now else {
            let start = Instant(iso8601: yesterday + "T00:00:00Z") ?? earliest
            return (yesterday, start)
        }
        return (chosen, at)
    }

    /// `GET /console/{app}/devices/restore?since=`: the reasons, with the numbers of devices.
    private func restorePage(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let since = Self.since(visit.query("since"), t.now)
        let found = try await database.installations.invalidated(since: since.at, app: visit.app)
        let table = Table(
            caption: t("Devices that answers of providers made invalid"),
            columns: [
                .init(t("Reason")), .init(t("Devices"), .number), .init(t("Restore"), .actions),
            ],
            rows: found.prefix(100).map { item in
                [
                    Part.code(item.reason), HTML(text: t.number(item.count)),
                    """
                    <form method="post" action="\(visit.address("devices", "restore"))">\
                    \(visit.formToken)<input type="hidden" name="since" value="\(since.day)">\
                    <input type="hidden" name="reason" value="\(item.reason)">\
                    <button class="btn small">\(t("Restore {count}", [
                        "count": t.number(item.count)
                    ]))</button></form>
                    """,
                ]
            },
            empty: "<p>\(t("No answer of a provider made a device invalid since then."))</p>"
        )
        let date = Field("since", t("Invalid since (UTC)")).input(since.day, type: "date")
        var page = Page(
            t("Restore devices"),
            .devices,
            body: """
                <form class="filters" method="get" action="\(visit.address("devices", "restore"))">
                \(date)<button class="btn">\(t("Filter"))</button></form>
                <div id="list">\(table.html)</div>
                <p class="hint">\(t("At most 30 days back. If a token is really invalid, the next push makes its device invalid again."))\
                </p>
                """
        )
        page.crumbs = [(t("Devices"), visit.address("devices"))]
        page.lead = HTML(
            text: t(
                "For a mistake that made many devices invalid at once, such as a wrong credential. Devices that the app muted stay muted."
            )
        )
        return page
    }

    /// `POST /console/{app}/devices/restore`. A second press finds nothing left.
    private func restore(_ visit: Visit) async throws -> PageAnswer {
        let reason = visit.form["reason"] ?? ""
        let since = Self.since(visit.form["since"], visit.t.now)
        guard !reason.isEmpty, !reason.utf8.contains(0) else { throw ConsoleError.badForm }
        visit.note(String(reason.prefix(64)))
        _ = try await database.installations.restore(
            since: since.at,
            reason: reason,
            app: visit.app
        )
        return .redirect(
            visit.address("devices", "restore", query: ["since": since.day]),
            flash: .restored
        )
    }
}
