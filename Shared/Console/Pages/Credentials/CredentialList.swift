import Gateway
import HTTPServer
import InstallationStorage
import JSON
import PushCore
import Storage

/// The list of an app's credentials.
extension ConsoleSurface {
    /// `GET /console/{app}/credentials?count=`.
    func credentialList(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let stored = try await database.credentials.list(app: visit.app)
        let table = Table(
            caption: t("Credentials"),
            columns: [
                .init(t("Provider")), .init(t("Name")), .init(t("Expires")),
                .init(t("Changed (UTC)"), width: 1), .init(t("Change"), .actions),
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
                    Self.actions(on: credential, visit),
                ]
            },
            empty: """
                <p>\(t("No credential is stored, so pushes reach only devices with a connection."))</p>
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
        if visit.role >= .admin {
            page.actions = CredentialForm.Kind.allCases.map { kind -> HTML in
                """
                <a class="btn" href="\(visit.address("credentials", kind.rawValue))">\(kind.title(t))…</a>
                """
            }.joined()
        }
        return page
    }

    private static func actions(on credential: StoredCredential, _ visit: Visit) -> HTML {
        guard visit.role >= .admin, let kind = CredentialForm.Kind(of: credential) else {
            return .empty
        }
        let t = visit.t
        let name = [credential.platform.title, credential.name].joined(separator: " ").trimmed
        func link(_ address: Address, _ text: String) -> HTML {
            """
            <a class="btn small" href="\(address)">\(text)…<span class="hidden"> \(name)</span></a>
            """
        }
        let query: KeyValuePairs<String, String?> = ["name": credential.name]
        let replace = link(
            visit.address("credentials", kind.rawValue, query: query),
            t("Replace")
        )
        let remove = link(
            visit.address("credentials", kind.rawValue, "remove", query: query),
            t("Remove")
        )
        guard credential.platform == .apns, !credential.isDefault else {
            return "<div class=\"inline\">\(replace)\(remove)</div>"
        }
        return """
            <form class="inline" method="post" \
            action="\(visit.address("credentials", kind.rawValue, "default"))">\
            \(visit.formToken)<input type="hidden" name="name" value="\(credential.name)">\
            <button class="btn small">\(t("Make it the default"))\
            <span class="hidden"> \(name)</span></button>\(replace)\(remove)</form>
            """
    }

    static func summary(of credential: StoredCredential) -> String {
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
}
