import Gateway
import HTTPServer
import InstallationStorage
import JSON
import PushCore
import Storage

/// The pages of operations: credentials, the audit, settings.
extension ConsoleSurface {
    var operationRoutes: [SurfaceRoute] {
        [
            page(.get, "/credentials", for: .viewer) { .page(try await credentials($0)) },
            page(.get, "/audit", for: .viewer) { .page(try await audit($0)) },
            page(.get, "/audit.csv", for: .admin) { auditFile($0) },
            page(.get, "/settings", for: .viewer) { .page(try await settings($0)) },
            page(.post, "/settings", for: .admin) { try await changeSetting($0) },
        ]
    }

    // MARK: Credentials

    private func credentials(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let stored = try await database.credentials.list(app: visit.app)
        let table = Table(
            caption: t("Credentials"),
            columns: [
                .init(t("Provider")), .init(t("Name")), .init(t("Expires")),
                .init(t("Changed (UTC)"), width: 1),
            ],
            rows: stored.map { credential in
                [
                    HTML(text: credential.platform.title),
                    """
                    \(Part.own(credential.name)) \
                    \(credential.isDefault ? Part.pill(t("default"), .quiet) : .empty)\
                    <span class="sub" translate="no">\(Self.summary(of: credential))</span>
                    """,
                    Self.expiry(of: credential, t),
                    t.time(credential.updatedAt),
                ]
            },
            empty: """
                <p>\(t("No credential is stored. Add one in a terminal:"))</p>
                \(Part.block("carillon credentials set --help", id: "set", t))
                """
        )
        var page = Page(
            t("Credentials"),
            .credentials,
            body: "\(table.html)\(try await withoutCredential(stored, visit))"
        )
        page.lead = HTML(
            text: t("Carillon authenticates with them at the providers. Secrets cannot be read.")
        )
        return page
    }

    private static func summary(of credential: StoredCredential) -> String {
        credential.summary.map { "\($0.0) \($0.1.string ?? $0.1.text)" }.joined(separator: ", ")
    }

    private static func expiry(of credential: StoredCredential, _ t: Words) -> HTML {
        guard let end = credential.end else { return HTML(text: t("never")) }
        if end <= t.now { return Part.pill(t("Expired"), .bad) }
        return "\(t.time(end)) <span class=\"sub\">\(t.span(until: end))</span>"
    }

    /// Counts devices whose pushes would fail: on request, as it reads all devices of the app.
    private func withoutCredential(
        _ stored: [StoredCredential],
        _ visit: Visit
    ) async throws -> HTML {
        let t = visit.t
        guard visit.query("count") != nil else {
            return """
                <p><a class="btn" href="\(visit.address("credentials", query: ["count": "devices"]))">\
                \(t("Count devices without a credential"))</a></p>
                """
        }
        let unfit: [InstallationsWithoutCredential]
        do {
            unfit = try await database.installations.unfit(app: visit.app, stored)
                .filter { $0.count > 0 }
        } catch let error as StorageError where error.isStatementTimeout {
            return "<p>\(t("Not loaded in time."))</p>"
        }
        let table = Table(
            caption: t("Devices without a credential"),
            columns: [.init(t("Provider")), .init(t("Devices"), .number)],
            rows: unfit.map { [HTML(text: $0.platform.title), HTML(text: t.number($0.count))] },
            empty: "<p>\(t("Every device has a credential."))</p>"
        )
        return Part.card(t("Devices without a credential"), table.html)
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
