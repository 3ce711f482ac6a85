import Gateway
import HTTPServer
import PushCore
import SecureStorage
import Storage

/// The pages of secure payloads: the list, never with content, and the deletion of one's content.
extension ConsoleSurface {
    var secureRoutes: [SurfaceRoute] {
        [
            page(.get, "/secure", for: .viewer) { .page(try await secureList($0)) },
            page(.get, "/secure/:id/delete", for: .sender) {
                .page(try await secureDeletePage($0))
            },
            page(.post, "/secure/:id/delete", for: .sender) { try await deleteSecure($0) },
        ]
    }

    private static let pageSize = 25

    // MARK: List

    /// `GET /console/{app}/secure?q=&by=&after=`.
    private func secureList(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let filter = try SecureFilter(visit)
        let (entries, next) = try await payloads(filter, visit)
        let table = Table(
            caption: t("Secure payloads"),
            columns: [
                .init(t("Id")), .init(t("Identity")), .init(t("State")),
                .init(t("Stored (UTC)"), width: 1), .init(t("Read (UTC)"), width: 2),
                .init(t("Expires (UTC)"), width: 2), .init(t("Delete"), .actions),
            ],
            rows: entries.map { row(of: $0, visit) },
            empty: filter.isEmpty
                ? "<p>\(t("No secure payload is stored."))</p>"
                : """
                <p>\(t("No secure payload matches.")) \
                <a href="\(visit.address("secure"))">\(t("Remove the filter"))</a></p>
                """
        )
        let pager = Part.pager(
            older: next.map { filter.address(visit, after: $0.text) },
            newest: filter.after == nil ? nil : filter.address(visit, after: nil),
            t
        )
        var page = Page(
            t("Secure payloads"),
            .secure,
            body: "\(filter.form(visit))<div id=\"list\">\(table.html)\(pager)</div>"
        )
        page.lead = HTML(
            text: t(
                "Content that no provider can read. It is never shown here: only its reader gets it."
            )
        )
        return page
    }

    private func payloads(
        _ filter: SecureFilter,
        _ visit: Visit
    ) async throws -> (entries: [SecureEntry], next: SecureCursor?) {
        if let text = filter.text, filter.kind == .id {
            let found = try await database.securePayloads.find(text, app: visit.app)
            return (found.map { [$0] } ?? [], nil)
        }
        return try await database.securePayloads.list(
            app: visit.app,
            identity: filter.text,
            limit: Self.pageSize,
            after: filter.after
        )
    }

    private func row(of entry: SecureEntry, _ visit: Visit) -> [HTML] {
        let t = visit.t
        let kinds = [
            entry.readOnce ? t("read once") : nil,
            entry.isSealed ? t("sealed to devices") : nil,
        ].compactMap { $0 }
        return [
            """
            \(Part.code(entry.id))\
            <span class="sub"><a href="\(visit.address("pushes", entry.pushID))">\(t("Push"))</a> \
            \(kinds.joined(separator: ", "))</span>
            """,
            """
            <a href="\(visit.address("secure", query: ["by": "identity", "q": entry.identity]))">\
            \(Part.own(entry.identity))</a>
            """,
            entry.state.pill(t), t.time(entry.createdAt), entry.readAt.map(t.time) ?? .empty,
            t.time(entry.expiresAt), deletion(of: entry, visit),
        ]
    }

    private func deletion(of entry: SecureEntry, _ visit: Visit) -> HTML {
        guard visit.role >= .sender, entry.state.hasContent else { return .empty }
        return """
            <a class="btn small danger" href="\(visit.address("secure", entry.id, "delete"))">\
            \(visit.t("Delete"))…<span class="hidden"> \(entry.id)</span></a>
            """
    }

    // MARK: Deletion

    private func secureEntry(of visit: Visit) async throws -> SecureEntry {
        let id = visit.parameter("id")
        guard let entry = try await database.securePayloads.find(id, app: visit.app) else {
            throw ConsoleError.missing(
                visit.t("No secure payload has the id {id}.", ["id": String(id.prefix(64))])
            )
        }
        return entry
    }

    private func secureDeletePage(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let entry = try await secureEntry(of: visit)
        guard entry.state.hasContent else {
            throw ConsoleError.conflict(t("The content of this payload is already deleted."))
        }
        var list = KeyValues()
        list.add(t("Id"), Part.code(entry.id))
        list.add(t("Identity"), Part.own(entry.identity))
        list.add(t("State"), entry.state.pill(t))
        list.add(t("Expires"), t.time(entry.expiresAt))
        var page = Page(
            t("Delete this payload?"),
            .secure,
            body: """
                <form class="card stack" method="post" \
                action="\(visit.address("secure", entry.id, "delete"))">\(visit.formToken)
                \(list.html)
                <p>\(t("Its content is deleted for all devices, and cannot be restored."))</p>
                <p class="hint">\(t("Its id, identity and times stay until their retention ends."))</p>
                <p class="actions"><button class="btn danger">\(t("Delete the content"))</button>
                <a class="btn plain" href="\(visit.address("secure"))">\
                \(t("Back to the payloads"))</a></p></form>
                """
        )
        page.crumbs = [(t("Secure payloads"), visit.address("secure"))]
        return page
    }

    private func deleteSecure(_ visit: Visit) async throws -> PageAnswer {
        let entry = try await secureEntry(of: visit)
        visit.note(entry.id)
        // A second press finds it deleted, and changes nothing.
        _ = try await database.securePayloads.delete(entry.id, app: visit.app)
        return .redirect(visit.address("secure"), flash: .contentDeleted)
    }
}

/// The filter of the list of secure payloads.
struct SecureFilter {
    enum Kind: String, CaseIterable {
        case id, identity

        func title(_ t: Words) -> String {
            switch self {
            case .id: t("id")
            case .identity: t("identity")
            }
        }
    }

    let kind: Kind
    let text: String?
    let after: SecureCursor?

    init(_ visit: Visit) throws {
        kind = visit.query("by").flatMap(Kind.init(rawValue:)) ?? .id
        text = try visit.plainQuery("q")
        after = visit.query("after").flatMap(SecureCursor.init(_:))
    }

    var isEmpty: Bool { text == nil && after == nil }

    func address(_ visit: Visit, after: String?) -> Address {
        visit.address(
            "secure",
            query: ["by": text == nil ? nil : kind.rawValue, "q": text, "after": after]
        )
    }

    func form(_ visit: Visit) -> HTML {
        let t = visit.t
        let kinds = Kind.allCases.map { ($0.rawValue, $0.title(t)) }
        let search = Field("q", t("Search")).input(text ?? "", type: "search")
        let choice = Field("by", t("By")).select(kind.rawValue, kinds)
        return Part.filter(visit.address("secure"), search + choice, t("Search"))
    }
}

extension SecureState {
    fileprivate var hasContent: Bool { self == .waiting || self == .read }

    fileprivate func pill(_ t: Words) -> HTML {
        switch self {
        case .waiting: Part.pill(t("Waiting"), .quiet)
        case .read: Part.pill(t("Read"), .ok)
        case .deleted: Part.pill(t("Deleted"), .quiet)
        case .expired: Part.pill(t("Expired"), .warn)
        }
    }
}
