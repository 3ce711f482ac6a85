import ConfigStorage
import EventLoop
import Gateway
import HTTPServer
import JSON
import Outbox
import PushCore
import PushEvents
import RemoteConfig
import Storage

/// Publishing a template: the editor, then a page with the difference, then one button, which is refused
/// if another version was published meanwhile.
extension ConsoleSurface {
    var configEditRoutes: [SurfaceRoute] {
        let most = ConfigEdit.maximumFormBytes
        return [
            page(.get, "/config/:ns/edit", for: .sender) { .page(try await configEditor($0)) },
            page(.post, "/config/:ns/edit", for: .sender, maximumBodyBytes: most) {
                .page(try await configReview($0))
            },
            page(.post, "/config/:ns/publish", for: .sender, maximumBodyBytes: most) {
                try await configPublish($0)
            },
        ]
    }

    // MARK: Editor

    private func configEditor(_ visit: Visit) async throws -> Page {
        let parts = try configParts(visit)
        let stored = try await database.config.version(visit.app, parts.namespace.rawValue)
        let template = stored?.template ?? .object(ConfigTemplate.empty.object)
        let edit = ConfigEdit(base: stored?.version ?? 0, text: template.indented)
        guard edit.text.utf8.count <= ConfigEdit.maximumTextBytes else {
            var page = Page(
                visit.t("Edit the template"),
                .config,
                body: """
                    <div class="empty"><p>\(visit.t(
                        "The template is too large for this page. Publish it in a terminal:"))</p>
                    \(Part.block("carillon config put \(visit.app) template.json", id: "put", visit.t))\
                    </div>
                    """
            )
            page.crumbs = parts.crumbs
            return page
        }
        return editor(edit, parts, problem: nil)
    }

    private func editor(_ edit: ConfigEdit, _ parts: ConfigParts, problem: String?) -> Page {
        let t = parts.t
        let alert = problem.map { problem -> HTML in
            """
            <div class="note bad" role="alert"><p>\(t("The template is invalid."))</p>\
            <p>\(problem)</p></div>
            """
        }
        var page = Page(
            t("Edit the template"),
            .config,
            body: """
                \(alert)
                <form class="card" method="post" action="\(parts.address("edit"))" data-keep>\
                \(parts.visit.formToken)<input type="hidden" name="base" value="\(edit.base)">
                \(Field("template", t("Template"), hint: HTML(text: t(
                    "JSON in the form of Firebase's REST API: conditions, parameters, parameterGroups.")),
                    error: problem).area(edit.text, rows: 24))
                \(Field("description", t("Description"), hint: HTML(text: t(
                    "Shown in the list of versions."))).input(edit.description))
                <p class="actions"><button class="btn primary" name="do" value="review">\
                \(t("Review"))</button>\
                <a class="btn plain" href="\(parts.address())">\(t("Back to the template"))</a></p>
                </form>
                """
        )
        page.crumbs = parts.crumbs
        page.lead = HTML(
            text: edit.base == 0
                ? t("Nothing is published yet.")
                : t(
                    "Based on version {version}. Nothing is published from this page.",
                    [
                        "version": String(edit.base)
                    ]
                )
        )
        if problem != nil { page.status = 422 }
        return page
    }

    // MARK: Review

    /// `POST /console/{app}/config/{ns}/edit`: the review, or the editor again.
    private func configReview(_ visit: Visit) async throws -> Page {
        let parts = try configParts(visit)
        let edit = try ConfigEdit(visit.form)
        // Nothing is changed; the publish is audited.
        visit.caller.context?.isAudited = true
        if visit.form.text("do") == "edit" {
            return editor(edit.indented, parts, problem: nil)
        }
        let template: ConfigTemplate
        do { template = try await parsed(edit, parts) } catch let problem as ConfigEdit.Problem {
            return editor(edit, parts, problem: problem.sentence)
        }
        let current = try await database.config.version(visit.app, parts.namespace.rawValue)
        return try await reviewPage(edit, template, over: current, parts)
    }

    /// - Throws: `ConfigEdit.Problem`.
    private func parsed(
        _ edit: ConfigEdit,
        _ parts: ConfigParts
    ) async throws -> ConfigTemplate {
        let (t, namespace) = (parts.t, parts.namespace)
        guard edit.text.utf8.count <= ConfigEdit.maximumTextBytes else {
            throw ConfigEdit.Problem(
                sentence: t(
                    "The template has more than {count} bytes.",
                    [
                        "count": t.number(ConfigEdit.maximumTextBytes)
                    ]
                )
            )
        }
        let most = ConfigTemplate.maximumVersionDescriptionLength
        guard edit.description.unicodeScalars.count <= most,
            !edit.description.utf8.contains(0)
        else {
            throw ConfigEdit.Problem(
                sentence: t(
                    "The description has more than {count} characters, or a NUL.",
                    [
                        "count": t.number(most)
                    ]
                )
            )
        }
        do {
            // Patterns of conditions are compiled, which may take long.
            return try await pool.run(of: parts.visit.app) {
                try ConfigTemplate(bytes: Array(edit.text.utf8), namespace: namespace)
            }
        } catch let error as JSONError {
            throw ConfigEdit.Problem(
                sentence: t("It is not JSON: {reason}", ["reason": error.description])
            )
        } catch let error as ConfigTemplateError {
            throw ConfigEdit.Problem(sentence: error.description)
        }
    }

    /// Shows the difference between the current template and the edited one, and the button that
    /// publishes. If the current version is not the one that was edited, it also shows who published
    /// in between, and what.
    private func reviewPage(
        _ edit: ConfigEdit,
        _ template: ConfigTemplate,
        over current: StoredConfigVersion?,
        _ parts: ConfigParts
    ) async throws -> Page {
        let t = parts.t
        let version = current?.version ?? 0
        let difference = ConfigDifference(
            from: current?.template?.object ?? ConfigTemplate.empty.object,
            to: template.object
        )
        let isConflict = version != edit.base
        let others =
            try await isConflict ? configChanges(since: edit.base, current, parts) : .empty
        var page = Page(
            isConflict ? t("Changed meanwhile") : t("Publish this template?"),
            .config,
            body: """
                <div class="stack">\(others)
                \(Part.card(
                    t("Your changes to version {version}", ["version": String(version)]),
                    parts.table(of: difference, t("Your changes"))))
                <form class="card stack" method="post" action="\(parts.address("publish"))">\
                \(parts.visit.formToken)
                <input type="hidden" name="base" value="\(version)">
                <input type="hidden" name="template" value="\(JSONValue.object(template.object).text)">
                <input type="hidden" name="description" value="\(edit.published(template))">
                <p>\(parts.summary(of: difference))</p>
                <p class="hint">\(configEffect(parts))</p>
                <p class="actions">\(publishButton(difference, version, isConflict: isConflict, t))
                <button class="btn plain" name="do" value="edit" \
                formaction="\(parts.address("edit"))">\(t("Back to the editor"))</button></p>
                </form></div>
                """
        )
        page.crumbs = parts.crumbs
        page.lead = HTML(text: t("Nothing is published yet."))
        if isConflict { page.status = 409 }
        return page
    }

    func configEffect(_ parts: ConfigParts) -> String {
        switch parts.namespace {
        case .firebase: parts.t("Clients are notified that the template is new, and fetch it.")
        case .server: parts.t("Servers get the template at their next request.")
        }
    }

    private func publishButton(
        _ difference: ConfigDifference,
        _ version: Int,
        isConflict: Bool,
        _ t: Words
    ) -> HTML {
        guard !difference.isEmpty else { return .empty }
        let title =
            isConflict
            ? t("Publish over version {version}", ["version": String(version)]) : t("Publish")
        return "<button class=\"btn \(isConflict ? "danger" : "primary")\">\(title)</button>"
    }

    /// The versions after the base, and what they changed, if the base is still stored.
    func configChanges(
        since base: Int,
        _ current: StoredConfigVersion?,
        _ parts: ConfigParts
    ) async throws -> HTML {
        let (t, app, namespace) = (parts.t, parts.visit.app, parts.namespace.rawValue)
        let found = try await database.config.versions(
            app,
            namespace,
            ConfigVersionFilter(limit: 10)
        ).filter { $0.version > base }
        let old = try await base == 0 ? nil : database.config.version(app, namespace, base)
        let template = base == 0 ? ConfigTemplate.empty.object : old?.template?.object
        let theirs = template.map { template -> HTML in
            let difference = ConfigDifference(from: template, to: current?.template?.object ?? [:])
            return Part.card(
                t("Changes since version {version}", ["version": String(base)]),
                parts.table(of: difference, t("Changes of others"))
            )
        }
        let table = parts.table(
            of: found,
            t("Published meanwhile"),
            current: current?.version ?? 0
        )
        let note = Part.note(
            HTML(
                text: t(
                    "Another version was published after version {version}, on which yours is based. Nothing was overwritten.",
                    ["version": String(base)]
                )
            ),
            .bad
        )
        return "\(note)\(Part.card(t("Published meanwhile"), table.html))\(theirs)"
    }

    // MARK: Publishing

    /// `POST /console/{app}/config/{ns}/publish`.
    private func configPublish(_ visit: Visit) async throws -> PageAnswer {
        let parts = try configParts(visit)
        let edit = try ConfigEdit(visit.form)
        visit.note(parts.namespace.rawValue)
        let template: ConfigTemplate
        do { template = try await parsed(edit, parts) } catch let problem as ConfigEdit.Problem {
            return .page(editor(edit, parts, problem: problem.sentence))
        }
        let new = NewConfigVersion(
            app: visit.app,
            namespace: parts.namespace.rawValue,
            template: template.object,
            description: edit.published(template),
            user: visit.configUser
        )
        let stored: StoredConfigVersion
        do {
            stored = try await database.config.publish(
                new,
                expecting: .version(edit.base),
                record: configRecords(parts)
            )
        } catch is ConfigVersionMismatch {
            let current = try await database.config.version(visit.app, parts.namespace.rawValue)
            return .page(try await reviewPage(edit, template, over: current, parts))
        } catch let error as ConfigVersionsExhausted {
            throw ConsoleError.conflict(error.description)
        }
        visit.note(String(stored.version))
        return .redirect(parts.address(), flash: .published)
    }

    func configRecords(
        _ parts: ConfigParts
    ) -> @Sendable (Int, ConfigUpdateType) -> OutgoingRecord {
        ConfigStore.records(of: parts.visit.app, parts.namespace.rawValue, acceptance.topics)
    }
}
