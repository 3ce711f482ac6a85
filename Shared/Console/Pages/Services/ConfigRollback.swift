import ConfigStorage
import Gateway
import HTTPServer
import JSON
import PushCore
import RemoteConfig
import Storage

/// A rollback: a page with the difference between the current template and the old one, then one button.
extension ConsoleSurface {
    var configRollbackRoutes: [SurfaceRoute] {
        [
            page(.get, "/config/:ns/versions/:version/rollback", for: .sender) {
                .page(try await configRollbackPage($0))
            },
            page(.post, "/config/:ns/versions/:version/rollback", for: .sender) {
                try await configRollBack($0)
            },
        ]
    }

    private func configRollbackPage(_ visit: Visit) async throws -> Page {
        let (t, parts) = (visit.t, try configParts(visit))
        let old = try await configVersion(of: visit, parts)
        let current = try await database.config.version(visit.app, parts.namespace.rawValue)
        guard let current, old.version < current.version else {
            throw ConsoleError.conflict(
                t("A rollback is to a version before the current one.")
            )
        }
        let difference = ConfigDifference(
            from: current.template?.object ?? [:],
            to: old.template?.object ?? [:]
        )
        let number = String(old.version)
        var page = Page(
            t("Roll back to version {version}?", ["version": number]),
            .config,
            body: """
                <div class="stack">
                \(Part.card(
                    t("Changes from version {version}", ["version": String(current.version)]),
                    parts.table(of: difference, t("Changes"))))
                <form class="card stack" method="post" \
                action="\(parts.address("versions", number, "rollback"))">\(visit.formToken)
                <input type="hidden" name="base" value="\(current.version)">
                <p>\(parts.summary(of: difference))</p>
                <p>\(t("The old template is published as a new version. No version is deleted."))</p>
                <p class="hint">\(configEffect(parts))</p>
                <p class="actions"><button class="btn danger">\
                \(t("Roll back to version {version}", ["version": number]))</button>
                <a class="btn plain" href="\(parts.address("versions", number))">\
                \(t("Back to the version"))</a></p>
                </form></div>
                """
        )
        page.crumbs =
            parts.crumbs + [
                (t("Versions"), parts.address("versions")),
                (t("Version {version}", ["version": number]), parts.address("versions", number)),
            ]
        page.lead = parts.sentence(about: current)
        return page
    }

    /// `POST /console/{app}/config/{ns}/versions/{version}/rollback`.
    private func configRollBack(_ visit: Visit) async throws -> PageAnswer {
        let (t, parts) = (visit.t, try configParts(visit))
        guard let version = Int(visit.parameter("version")),
            let base = Int(visit.form.text("base"))
        else { throw ConsoleError.badForm }
        visit.note(parts.namespace.rawValue)
        let stored: StoredConfigVersion
        do {
            stored = try await database.config.rollBack(
                visit.app,
                parts.namespace.rawValue,
                to: version,
                by: visit.configUser,
                expecting: .version(base),
                record: configRecords(parts)
            )
        } catch is ConfigVersionMismatch {
            return .page(try await overtaken(base, parts))
        } catch ConfigRollbackError.notFound {
            throw ConsoleError.missing(
                t("There is no valid stored version {version}.", ["version": String(version)])
            )
        } catch is ConfigRollbackError {
            throw ConsoleError.conflict(
                t("A rollback is to a version before the current one.")
            )
        } catch let error as ConfigVersionsExhausted {
            throw ConsoleError.conflict(error.description)
        }
        visit.note(String(stored.version))
        return .redirect(parts.address(), flash: .rolledBack)
    }

    /// Shows who published after the version that a rollback was compared with.
    private func overtaken(_ base: Int, _ parts: ConfigParts) async throws -> Page {
        let t = parts.t
        let current = try await database.config.version(
            parts.visit.app,
            parts.namespace.rawValue
        )
        let again = parts.address("versions", parts.visit.parameter("version"), "rollback")
        var page = Page(
            t("Changed meanwhile"),
            .config,
            body: """
                <div class="stack">\(try await configChanges(since: base, current, parts))
                <p><a class="btn" href="\(again)">\(t("Compare again"))</a></p></div>
                """
        )
        page.crumbs = parts.crumbs
        page.status = 409
        return page
    }
}
