import Cryptography
import Gateway
import HTTPServer
import JSON
import PushCore
import Storage

/// The pages that store, replace and remove a credential.
extension ConsoleSurface {
    var credentialRoutes: [SurfaceRoute] {
        [
            page(.get, "/credentials", for: .viewer) { .page(try await credentialList($0)) },
            page(.get, "/credentials/:kind", for: .admin) { .page(try await credentialPage($0)) },
            page(.post, "/credentials/:kind", for: .admin) { try await storeCredential($0) },
            page(.post, "/credentials/:kind/default", for: .admin) {
                try await makeDefaultCredential($0)
            },
            page(.get, "/credentials/:kind/remove", for: .admin) {
                .page(try await credentialRemovalPage($0))
            },
            page(.post, "/credentials/:kind/remove", for: .admin) {
                try await removeCredential($0)
            },
        ]
    }

    private func kind(of visit: Visit) throws -> CredentialForm.Kind {
        guard let kind = CredentialForm.Kind(rawValue: visit.parameter("kind")) else {
            throw ConsoleError.missing(visit.t("There is no such kind of credential."))
        }
        return kind
    }

    private func credential(
        _ kind: CredentialForm.Kind,
        named name: String,
        _ visit: Visit
    ) async throws -> StoredCredential? {
        try await database.credentials.list(app: visit.app).first { credential in
            credential.platform == kind.platform && credential.name.isSame(as: name)
        }
    }

    /// Identifies a stored credential in a form, so that nothing is replaced unseen.
    private static func mark(of credential: StoredCredential?) -> String {
        credential.map { String($0.updatedAt.milliseconds) } ?? ""
    }

    // MARK: Store

    /// `GET /console/{app}/credentials/{kind}?name=`.
    private func credentialPage(_ visit: Visit) async throws -> Page {
        let kind = try kind(of: visit)
        let stored = try await credential(kind, named: visit.query("name") ?? "", visit)
        let form = CredentialForm(kind, replacing: stored)
        return writingPage(form, stored: stored, nil, visit)
    }

    private func writingPage(
        _ form: CredentialForm,
        stored: StoredCredential?,
        _ problem: CredentialForm.Problem?,
        _ visit: Visit
    ) -> Page {
        let t = visit.t
        let wrong = problem.map { problem -> HTML in
            "<div class=\"note bad\" role=\"alert\"><p>\(problem.sentence)</p></div>"
        }
        let replaced = stored.map { stored in
            Part.note(
                t.html(
                    "This replaces the stored credential {name}, last changed at {time}. Pushes use the new one at once.",
                    [
                        "name": Part.own(Self.summary(of: stored)),
                        "time": HTML(text: t.moment(stored.updatedAt)),
                    ]
                ),
                .warn
            )
        }
        var page = Page(
            form.kind.title(t),
            .credentials,
            body: """
                \(wrong)<form class="card stack" method="post" \
                action="\(visit.address("credentials", form.kind.rawValue))">\(visit.formToken)
                <input type="hidden" name="replaces" value="\(Self.mark(of: stored))">
                \(replaced)\(form.fields(problem, t))
                <p class="actions"><button class="btn primary">\
                \(stored == nil ? t("Store the credential") : t("Replace the credential"))</button>
                <a class="btn plain" href="\(visit.address("credentials"))">\
                \(t("Back to the credentials"))</a></p>
                <p class="hint">\(t("The secret is stored encrypted, and no page shows it again."))</p>
                </form>
                """
        )
        page.crumbs = [(t("Credentials"), visit.address("credentials"))]
        return page
    }

    /// `POST /console/{app}/credentials/{kind}`.
    private func storeCredential(_ visit: Visit) async throws -> PageAnswer {
        let t = visit.t
        let kind = try kind(of: visit)
        let form = CredentialForm(kind, posted: visit.form)
        let stored = try await credential(kind, named: form.name, visit)
        let checked: CredentialForm.Checked
        do throws(CredentialForm.Problem) {
            checked = try form.checked(fcmTokenHosts: fcmTokenHosts, t)
        } catch {
            var page = writingPage(form, stored: stored, error, visit)
            page.status = 422
            return .page(page)
        }
        visit.note("\(kind.platform.rawValue) \(checked.name)".trimmed)
        guard visit.form.text("replaces") == Self.mark(of: stored) else {
            let changed = CredentialForm.Problem(
                field: "",
                sentence: t(
                    "The stored credential is not the one that this form was for. Enter the secret again to go on."
                )
            )
            var page = writingPage(form, stored: stored, changed, visit)
            page.status = 409
            return .page(page)
        }
        try await database.credentials.set(
            StoredCredential(
                sealing: checked.secret,
                summary: checked.summary,
                app: visit.app,
                platform: kind.platform,
                name: checked.name,
                isDefault: form.isDefault,
                by: sessions.keys
            )
        )
        return .redirect(visit.address("credentials"), flash: .credentialStored)
    }

    /// `POST /console/{app}/credentials/{kind}/default`.
    private func makeDefaultCredential(_ visit: Visit) async throws -> PageAnswer {
        let (kind, stored) = try await namedCredential(visit, visit.form.text("name"))
        visit.note("\(kind.platform.rawValue) \(stored.name)")
        guard kind.platform == .apns,
            try await database.credentials.makeDefault(
                app: visit.app,
                platform: .apns,
                name: stored.name
            )
        else { throw ConsoleError.badForm }
        return .redirect(visit.address("credentials"), flash: .saved)
    }

    // MARK: Remove

    private func namedCredential(
        _ visit: Visit,
        _ name: String
    ) async throws -> (CredentialForm.Kind, StoredCredential) {
        let kind = try kind(of: visit)
        guard let stored = try await credential(kind, named: name, visit) else {
            throw ConsoleError.missing(visit.t("There is no such credential."))
        }
        return (kind, stored)
    }

    /// Returns the text that confirms a removal: the topic, the project or another name.
    private static func title(of credential: StoredCredential) -> String {
        let names = ["topic", "projectID", "clientID", "subject"]
        return names.compactMap { credential.summary[$0]?.string }.first
            ?? credential.platform.title
    }

    /// `GET /console/{app}/credentials/{kind}/remove?name=`.
    private func credentialRemovalPage(
        _ visit: Visit,
        problem: String? = nil
    ) async throws -> Page {
        let t = visit.t
        let name = visit.query("name") ?? visit.form.text("name")
        let (kind, stored) = try await namedCredential(visit, name)
        let title = Self.title(of: stored)
        let wrong = problem.map { problem -> HTML in
            "<p class=\"error\" role=\"alert\">\(problem)</p>"
        }
        let typed = Field(
            "confirm",
            t("Name"),
            hint: t.html("Type {name} to confirm.", ["name": Part.code(title)])
        ).input("")
        var page = Page(
            t("Remove this credential?"),
            .credentials,
            body: """
                <form class="card stack" method="post" \
                action="\(visit.address("credentials", kind.rawValue, "remove"))">\(visit.formToken)
                <input type="hidden" name="name" value="\(stored.name)">
                <p><strong>\(stored.platform.title)</strong> \(Part.own(Self.summary(of: stored)))</p>
                <p>\(t("Pushes to the devices that depend on it fail from now on. Devices and pushes stay stored."))\
                </p>
                <p>\(t("Carillon cannot show the secret. Keep a copy of your own if it may be needed again."))\
                </p>
                \(wrong)\(typed)
                <p class="actions"><button class="btn danger">\(t("Remove the credential"))</button>
                <a class="btn plain" href="\(visit.address("credentials"))">\
                \(t("Back to the credentials"))</a></p></form>
                """
        )
        page.crumbs = [(t("Credentials"), visit.address("credentials"))]
        return page
    }

    /// `POST /console/{app}/credentials/{kind}/remove`.
    private func removeCredential(_ visit: Visit) async throws -> PageAnswer {
        let (kind, stored) = try await namedCredential(visit, visit.form.text("name"))
        visit.note("\(kind.platform.rawValue) \(stored.name)".trimmed)
        guard visit.form.text("confirm").isSame(as: Self.title(of: stored).trimmed) else {
            var page = try await credentialRemovalPage(
                visit,
                problem: visit.t("The name is not the same.")
            )
            page.status = 422
            return .page(page)
        }
        _ = try await database.credentials.remove(
            app: visit.app,
            platform: kind.platform,
            name: stored.name
        )
        return .redirect(visit.address("credentials"), flash: .credentialRemoved)
    }
}
