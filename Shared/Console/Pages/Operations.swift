import Gateway
import HTTPServer
import JSON
import PushCore
import Storage

/// The pages of operations: the audit, settings.
extension ConsoleSurface {
    var operationRoutes: [SurfaceRoute] {
        [
            page(.get, "/audit", for: .viewer) { .page(try await audit($0)) },
            page(.get, "/audit.csv", for: .admin) { auditFile($0) },
            page(.get, "/settings", for: .viewer) { .page(try await settings($0)) },
            page(.post, "/settings", for: .admin) { try await changeSetting($0) },
        ]
    }

    // MARK: Audit

    private static let auditPage = 100

    private func audit(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let since = visit.query("from").flatMap { Instant(iso8601: $0 + "T00:00:00Z") }
        let entries = try await database.audit.list(
            app: visit.app,
            since: since,
            limit: Self.auditPage
        )
        let table = Table(
            caption: t("Audit"),
            columns: [
                .init(t("Time (UTC)")), .init(t("Actor")), .init(t("Action")),
                .init(t("Target"), width: 1), .init(t("Result")),
            ],
            rows: entries.map { entry in
                [
                    t.time(entry.at),
                    """
                    \(Part.own(entry.actor))\
                    <span class="sub">\(entry.address)</span>
                    """,
                    Part.code(entry.action),
                    entry.targets.prefix(3).map(Part.own).joined(by: ", "),
                    Self.result(of: entry),
                ]
            },
            empty: "<p>\(t("No entry is stored for this time."))</p>"
        )
        var page = Page(
            t("Audit"),
            .audit,
            body: """
                <form class="filters" method="get" action="\(visit.address("audit"))">
                \(Field("from", t("From (UTC)")).input(visit.query("from") ?? "", type: "date"))
                <button class="btn">\(t("Filter"))</button></form>
                <div id="list">\(table.html)</div>
                """
        )
        page.lead = HTML(
            text: t("Who did what, the latest first: at most 100 entries here, 10,000 in the file.")
        )
        if visit.role >= .admin {
            page.actions = """
                <a class="btn" href="\(visit.address("audit.csv"))">\(t("Export as CSV"))</a>
                """
        }
        return page
    }

    private static func result(of entry: AuditEntry) -> HTML {
        // A command's entry has an exit code, 0 if it went well.
        let isFine = entry.status < 400 && (entry.status >= 200 || entry.status == 0)
        return Part.pill(String(entry.status), isFine ? .ok : .bad)
    }

    private func auditFile(_ visit: Visit) -> PageAnswer {
        let (database, app) = (database, visit.app)
        return .file(
            name: "audit-\(app)-\(visit.t.now.day).csv",
            HTTPFile(contentType: "text/csv; charset=utf-8") { write in
                try await write(
                    CSV.line(["time", "actor", "action", "targets", "address", "status"])
                )
                let entries = try await database.audit.list(app: app, since: nil, limit: 10_000)
                for entry in entries {
                    try await write(
                        CSV.line([
                            entry.at.iso8601, entry.actor, entry.action,
                            entry.targets.joined(separator: " "), entry.address ?? "",
                            String(entry.status),
                        ])
                    )
                }
            }
        )
    }

    // MARK: Settings

    private func settings(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let table = Table(
            caption: t("Settings"),
            columns: [
                .init(t("Setting")), .init(t("Value")), .init(t("Change"), .actions),
            ],
            rows: visit.caller.settings.lines.map { line in
                let parts = line.split(separator: "=", maxSplits: 1).map(String.init)
                let (name, value) = (parts[0], parts.count == 2 ? parts[1] : "")
                return [Part.code(name), Part.own(value), Self.editor(name, value, visit)]
            }
        )
        var page = Page(t("Settings"), .settings, body: table.html)
        page.lead = HTML(text: t("A change applies within five seconds on every replica."))
        return page
    }

    private static func editor(_ name: String, _ value: String, _ visit: Visit) -> HTML {
        guard visit.role >= .admin else { return .empty }
        return """
            <form class="inline" method="post" action="\(visit.address("settings"))">\
            \(visit.formToken)<input type="hidden" name="name" value="\(name)">\
            <input name="value" value="\(value)" aria-label="\(name)" autocomplete="off">\
            <button class="btn small">\(visit.t("Save"))</button></form>
            """
    }

    private func changeSetting(_ visit: Visit) async throws -> PageAnswer {
        let name = visit.form.text("name")
        visit.note(String(name.prefix(64)))
        do {
            let change = try AppSettings.change("\(name)=\(visit.form.text("value"))")
            _ = try await database.apps.change(visit.app, settings: change)
        } catch let error as AppSettings.InvalidChange {
            throw ConsoleError.conflict(error.description)
        } catch let error as StorageError where error.kind == .conflict {
            throw ConsoleError.conflict(error.description)
        }
        return .redirect(visit.address("settings"), flash: .saved)
    }
}

/// Lines of RFC 4180.
enum CSV {
    /// A value that a spreadsheet would run as a formula begins with an apostrophe.
    static func line(_ values: [String]) -> String {
        values.map { value in
            // By scalars, as a character may be one of these and a mark.
            let risky =
                value.unicodeScalars.first.map { "=+-@\t\r\n".unicodeScalars.contains($0) } ?? false
            let safe = risky ? "'" + value : value
            return "\"" + safe.replacing("\"", with: "\"\"") + "\""
        }.joined(separator: ",") + "\r\n"
    }
}
