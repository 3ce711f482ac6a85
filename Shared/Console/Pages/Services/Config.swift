import ConfigStorage
import Gateway
import HTTPServer
import JSON
import PushCore
import RemoteConfig
import Storage

/// The pages of remote config that only show: namespaces, parameters and conditions, versions.
extension ConsoleSurface {
    var configRoutes: [SurfaceRoute] {
        [
            page(.get, "/config", for: .viewer) { .page(try await configNamespaces($0)) },
            page(.get, "/config/:ns", for: .viewer) { .page(try await configPage($0)) },
            page(.get, "/config/:ns/versions", for: .viewer) {
                .page(try await configVersions($0))
            },
            page(.get, "/config/:ns/versions/:version", for: .viewer) {
                .page(try await configVersion($0))
            },
            page(.get, "/config/:ns/versions/:version/template.json", for: .viewer) {
                try await configFile($0)
            },
        ]
    }

    private static let pageSize = 25
    /// The most conditions that the page of a template shows.
    private static let maximumConditions = 50
    /// A larger template is only offered as a file.
    private static let maximumBlockBytes = 256 << 10

    func configParts(_ visit: Visit) throws -> ConfigParts {
        guard let namespace = ConfigNamespace(rawValue: visit.parameter("ns")) else {
            throw ConsoleError.missing(
                visit.t("Remote config has the namespaces firebase and firebase-server.")
            )
        }
        return ConfigParts(visit: visit, namespace: namespace)
    }

    // MARK: Namespaces

    private func configNamespaces(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let current = try await database.config.current(of: visit.app)
        let table = Table(
            caption: t("Namespaces"),
            columns: [
                .init(t("Template")), .init(t("Version"), .number), .init(t("Published (UTC)")),
                .init(t("By")),
            ],
            rows: ConfigNamespace.allCases.map { namespace in
                let version = current.first { $0.namespace == namespace.rawValue }
                return [
                    """
                    <a href="\(visit.address("config", namespace.rawValue))">\(namespace.title(t))</a>\
                    <span class="sub" translate="no">\(namespace.rawValue)</span>
                    """,
                    HTML(text: version.map { String($0.version) } ?? t("none")),
                    version.map { t.time($0.publishedAt) } ?? .empty,
                    version.map { Part.own($0.user.name) } ?? .empty,
                ]
            }
        )
        var page = Page(t("Remote config"), .config, body: table.html)
        page.lead = HTML(
            text: t(
                "Parameters whose values apps fetch. A new version is announced to all clients."
            )
        )
        return page
    }

    // MARK: Template

    /// `GET /console/{app}/config/{ns}?q=&after=`: the current version, 25 parameters a page.
    private func configPage(_ visit: Visit) async throws -> Page {
        let (t, parts) = (visit.t, try configParts(visit))
        let stored = try await database.config.version(visit.app, parts.namespace.rawValue)
        var page = Page(parts.namespace.title(t), .config, body: .empty)
        page.crumbs = [(t("Remote config"), visit.address("config"))]
        page.actions = "<a class=\"btn\" href=\"\(parts.address("versions"))\">\(t("Versions"))</a>"
        if visit.role >= .sender {
            page.actions += """
                <a class="btn primary" href="\(parts.address("edit"))">\(t("Edit"))</a>
                """
        }
        guard let stored, let template = stored.template?.object else {
            page.body = """
                <div class="empty"><p>\(t("Nothing is published. Publish a template here, or in a terminal:"))\
                </p>\(Part.block("carillon config put \(visit.app) template.json", id: "put", t))</div>
                """
            return page
        }
        let states = try await database.configAnnouncements.all(of: visit.app)
        page.lead = """
            \(parts.sentence(about: stored)) \
            \(announcement(states.first { $0.namespace == stored.namespace }, of: stored, parts))
            """
        page.body = """
            <div class="stack">\(try await refused(parts))
            \(Part.card(t("Parameters"), parameters(of: template, parts)))
            \(Part.card(t("Conditions"), conditions(of: template, stored.version, parts)))
            \(try await staleness(of: stored, parts))</div>
            """
        return page
    }

    private func announcement(
        _ state: ConfigAnnouncementState?,
        of version: StoredConfigVersion,
        _ parts: ConfigParts
    ) -> HTML {
        let t = parts.t
        // No client fetches the servers' templates, so they are not announced.
        guard parts.namespace == .firebase else { return .empty }
        guard let state, state.announcedVersion >= version.version else {
            return HTML(text: t("It is not announced to clients yet."))
        }
        guard let at = state.announcedAt else { return .empty }
        return HTML(text: t("It was announced to clients at {time}.", ["time": t.moment(at)]))
    }

    /// Rows that another system wrote, and that are invalid.
    private func refused(_ parts: ConfigParts) async throws -> HTML {
        let t = parts.t
        let refused = try await database.config.refused(parts.visit.app)
            .filter { $0.namespace == parts.namespace.rawValue }
        guard let latest = refused.first else { return .empty }
        return Part.note(
            """
            \(t("Version {version} is rejected: {reason}", [
                "version": String(latest.version), "reason": latest.reason ?? "",
            ])) \
            <a href="\(parts.address("versions"))">\(t("Versions"))</a>
            """,
            .bad
        )
    }

    /// Counts devices that have not fetched the current version: on request, as it reads all of them.
    private func staleness(
        of version: StoredConfigVersion,
        _ parts: ConfigParts
    ) async throws -> HTML {
        let t = parts.t
        guard parts.namespace == .firebase else { return .empty }
        guard parts.visit.query("count") != nil else {
            return """
                <p><a class="btn" href="\(parts.address(query: [("count", "devices")]))">\
                \(t("Count stale devices"))</a></p>
                """
        }
        var list = KeyValues()
        do {
            let counts = try await database.configFetches.counts(of: version.app, version.version)
            list.add(t("Current"), text: t.number(counts.current))
            list.add(t("Stale"), text: t.number(counts.stale))
        } catch let error as StorageError where error.isStatementTimeout {
            return "<p>\(t("Not loaded in time."))</p>"
        }
        let hint = t("Only devices that are registered and have fetched a version are counted.")
        return Part.card(t("Stale devices"), "\(list.html)<p class=\"hint\">\(hint)</p>")
    }

    private func parameters(of template: JSONObject, _ parts: ConfigParts) -> HTML {
        let (t, visit) = (parts.t, parts.visit)
        let (search, after) = (visit.query("q"), visit.query("after"))
        var found = ConfigDifference.parameters(of: template).map { $0 }
        if let search {
            found = found.filter { $0.key.lowercased().contains(search.lowercased()) }
        }
        if let after, let place = found.firstIndex(where: { $0.key == after }) {
            found = Array(found[(place + 1)...])
        }
        let shown = found.prefix(Self.pageSize)
        let table = Table(
            caption: t("Parameters"),
            columns: [
                .init(t("Parameter")), .init(t("Type"), width: 1), .init(t("Default value")),
                .init(t("Conditional values")),
            ],
            rows: shown.map { row(of: $0.key, $0.value.object ?? [:], parts) },
            empty: search == nil
                ? "<p>\(t("The template has no parameters."))</p>"
                : """
                <p>\(t("No parameter matches.")) \
                <a href="\(parts.address())">\(t("Remove the filter"))</a></p>
                """
        )
        let older =
            found.count > Self.pageSize
            ? shown.last.map { parts.address(query: [("q", search), ("after", $0.key)]) } : nil
        let first = after == nil ? nil : parts.address(query: [("q", search)])
        return """
            <form class="filters" method="get" action="\(parts.address())" role="search" \
            data-swap="#list">
            \(Field("q", t("Parameter")).input(search ?? "", type: "search"))
            <button class="btn">\(t("Search"))</button></form>
            <div id="list">\(table.html)\(Part.pages(next: older, first: first, t))</div>
            """
    }

    private func row(of key: String, _ members: JSONObject, _ parts: ConfigParts) -> [HTML] {
        let prefix = ConfigDifference.conditionalPrefix
        let values = members.filter { $0.key.hasPrefix(prefix) }
        let drawn = values.prefix(10).map { name, value -> HTML in
            """
            <li>\(Part.code(String(name.dropFirst(prefix.count)))): \(parts.value(value))</li>
            """
        }
        let more: HTML =
            values.count > 10
            ? """
            <li>\(parts.t.count(
                values.count - 10, one: "{count} more value", other: "{count} more values"))</li>
            """ : .empty
        let description = members["description"]?.string.map(Part.own) ?? .empty
        let group = members["group"]?.string.map { group -> HTML in
            parts.t.html("Group: {name}", ["name": Part.own(group)])
        }
        return [
            """
            \(Part.code(key))<span class="sub">\(description)</span>\
            <span class="sub">\(group)</span>
            """,
            Part.code(members["valueType"]?.string ?? "STRING"),
            members["defaultValue"] == nil
                ? HTML(text: parts.t("none")) : parts.value(members["defaultValue"]),
            values.isEmpty ? .empty : "<ul>\(drawn)\(more)</ul>",
        ]
    }

    private func conditions(
        of template: JSONObject,
        _ version: Int,
        _ parts: ConfigParts
    ) -> HTML {
        let t = parts.t
        let all = (template["conditions"]?.array ?? []).compactMap(\.object)
        let table = Table(
            caption: t("Conditions"),
            columns: [
                .init(t("Condition")), .init(t("Priority"), .number), .init(t("Expression")),
            ],
            rows: all.prefix(Self.maximumConditions).enumerated().map { index, condition in
                let rule = condition["expression"] ?? condition["condition"]
                return [
                    Part.code(condition["name"]?.string ?? ""), HTML(text: t.number(index + 1)),
                    parts.value(rule),
                ]
            },
            empty:
                "<p>\(t("The template has no conditions: all clients get the default values."))</p>"
        )
        guard all.count > Self.maximumConditions else { return table.html }
        return """
            \(table.html)<p>\(t.count(
                all.count - Self.maximumConditions,
                one: "{count} more condition is only in the template.",
                other: "{count} more conditions are only in the template."
            )) <a href="\(parts.address("versions", String(version)))">\(t("Template"))</a></p>
            """
    }

    // MARK: Versions

    /// `GET /console/{app}/config/{ns}/versions?before=`.
    private func configVersions(_ visit: Visit) async throws -> Page {
        let (t, parts) = (visit.t, try configParts(visit))
        let namespace = parts.namespace.rawValue
        let before = visit.query("before").flatMap(Int.init)
        let head = try await database.config.head(visit.app, namespace)
        let found = try await database.config.versions(
            visit.app,
            namespace,
            ConfigVersionFilter(before: before, limit: Self.pageSize + 1, includesRefused: true)
        )
        let shown = Array(found.prefix(Self.pageSize))
        let table = parts.table(of: shown, t("Versions"), current: head.currentVersion)
        let older =
            found.count > Self.pageSize
            ? shown.last.map {
                parts.address("versions", query: [("before", String($0.version))])
            } : nil
        let pager = Part.pager(
            older: older,
            newest: before == nil ? nil : parts.address("versions"),
            t
        )
        var page = Page(t("Versions"), .config, body: "\(table.html)\(pager)")
        page.crumbs = parts.crumbs
        page.lead = HTML(
            text: t(
                "At most {count} versions are stored, until their retention ends.",
                [
                    "count": t.number(ConfigStore.maximumVersions)
                ]
            )
        )
        return page
    }

    /// Returns the version of the address, with its template.
    func configVersion(of visit: Visit, _ parts: ConfigParts) async throws -> StoredConfigVersion {
        let text = visit.parameter("version")
        if let number = Int(text), (1...ConfigStore.maximumVersion).contains(number),
            let stored = try await database.config.version(
                visit.app,
                parts.namespace.rawValue,
                number
            )
        {
            return stored
        }
        throw ConsoleError.missing(
            visit.t(
                "There is no valid stored version {version}.",
                [
                    "version": String(text.prefix(20))
                ]
            )
        )
    }

    private func configVersion(_ visit: Visit) async throws -> Page {
        let (t, parts) = (visit.t, try configParts(visit))
        let stored = try await configVersion(of: visit, parts)
        let head = try await database.config.head(visit.app, parts.namespace.rawValue)
        let number = String(stored.version)
        var list = KeyValues()
        list.add(t("Published"), t.time(stored.publishedAt))
        list.add(t("By"), "\(Part.own(stored.user.name)) \(Part.own(stored.user.email))")
        list.add(t("Change"), parts.change(stored))
        list.add(t("Origin"), Part.code(stored.updateOrigin))
        list.add(t("Description"), stored.description.isEmpty ? nil : Part.own(stored.description))
        let text = stored.template?.indented ?? ""
        let file = parts.address("versions", number, "template.json")
        let block: HTML =
            text.utf8.count <= Self.maximumBlockBytes
            ? Part.block(text, id: "template", t)
            : "<p>\(t("The template is too large for this page."))</p>"
        var page = Page(
            t("Version {version}", ["version": number]),
            .config,
            body: """
                <div class="stack">\(Part.card(t("Version"), list.html))
                \(Part.card(t("Template"), block))</div>
                """
        )
        page.crumbs = parts.crumbs + [(t("Versions"), parts.address("versions"))]
        page.marks = " \(parts.state(of: stored, current: head.currentVersion))"
        page.actions = "<a class=\"btn\" href=\"\(file)\">\(t("Download"))</a>"
        if visit.role >= .sender, stored.version < head.currentVersion {
            page.actions += """
                <a class="btn danger" href="\(parts.address("versions", number, "rollback"))">\
                \(t("Roll back"))…</a>
                """
        }
        return page
    }

    private func configFile(_ visit: Visit) async throws -> PageAnswer {
        let parts = try configParts(visit)
        let stored = try await configVersion(of: visit, parts)
        var template = stored.template?.object ?? [:]
        // The form that config put and Firebase's command read.
        template["version"] = .object(stored.json)
        let text = JSONValue.object(template).indented + "\n"
        return .file(
            name: "\(parts.namespace.rawValue)-\(stored.version).json",
            HTTPFile(contentType: "application/json; charset=utf-8") { write in
                try await write(text)
            }
        )
    }
}
