import Gateway
import HTTPServer
import JSON
import PushCore
import Storage

/// Filters of the lists of pushes and devices, by a name of their own.
extension ConsoleSurface {
    var savedFilterRoutes: [SurfaceRoute] {
        [
            page(.post, "/filters", for: .sender) { try await saveFilter($0) },
            page(.post, "/filters/remove", for: .sender) { try await removeFilter($0) },
        ]
    }

    /// A list that has filters; the last segment of its address.
    enum FilteredPage: String {
        case pushes, devices

        /// The values of the list's form.
        static let fields = ["status", "by", "q"]
    }

    private static let maximumValueBytes = 500

    private static func filteredPage(_ visit: Visit) throws -> FilteredPage {
        guard let page = FilteredPage(rawValue: visit.form.text("page")) else {
            throw ConsoleError.badForm
        }
        return page
    }

    // MARK: Acts

    /// `POST /console/{app}/filters`.
    private func saveFilter(_ visit: Visit) async throws -> PageAnswer {
        let t = visit.t
        let page = try Self.filteredPage(visit)
        let name = try Self.name(visit.form.text("name"), t)
        visit.note(page.rawValue)
        var filter: JSONObject = [:]
        for field in FilteredPage.fields {
            let value = visit.form.text(field)
            guard value.utf8.count <= Self.maximumValueBytes, !value.utf8.contains(0) else {
                throw ConsoleError.badForm
            }
            if !value.isEmpty { filter[field] = .string(value) }
        }
        guard !filter.isEmpty, DeviceFilter.maySave(filter) else { throw ConsoleError.badForm }
        guard
            try await database.savedFilters.save(
                name,
                filter,
                app: visit.app,
                page: page.rawValue,
                author: visit.session.actor
            )
        else {
            throw ConsoleError.conflict(
                t(
                    "A page has at most {most} saved filters. Remove one first.",
                    ["most": t.number(SavedFilterStore.maximum)]
                )
            )
        }
        return .redirect(Self.address(of: filter, page, visit), flash: .saved)
    }

    private func removeFilter(_ visit: Visit) async throws -> PageAnswer {
        let page = try Self.filteredPage(visit)
        let name = visit.form.text("name")
        guard !name.utf8.contains(0) else { throw ConsoleError.badForm }
        visit.note(page.rawValue)
        guard
            try await database.savedFilters.remove(name, app: visit.app, page: page.rawValue)
        else { throw ConsoleError.conflict(visit.t("There is no such filter any more.")) }
        return .redirect(visit.address(page.rawValue), flash: .deleted)
    }

    private static func address(
        of filter: JSONObject,
        _ page: FilteredPage,
        _ visit: Visit
    ) -> Address {
        visit.address(
            page.rawValue,
            query: [
                "status": filter["status"]?.string, "by": filter["by"]?.string,
                "q": filter["q"]?.string,
            ]
        )
    }

    // MARK: Parts

    /// The links of a list's saved filters, and their removal.
    func savedFilters(of page: FilteredPage, _ visit: Visit) async throws -> HTML {
        let t = visit.t
        let filters = try await database.savedFilters.list(app: visit.app, page: page.rawValue)
            .filter { page == .pushes || DeviceFilter.mayShow($0.filter, to: visit.role) }
        guard !filters.isEmpty else { return .empty }
        let links = filters.map { filter -> HTML in
            """
            <li><a class="btn small" href="\(Self.address(of: filter.filter, page, visit))">\
            \(Part.own(filter.name))</a></li>
            """
        }
        return """
            <nav aria-label="\(t("Saved filters"))"><ul class="links">\(links)</ul></nav>
            \(visit.role >= .sender ? removals(filters, page, visit) : .empty)
            """
    }

    private func removals(
        _ filters: [SavedFilter],
        _ page: FilteredPage,
        _ visit: Visit
    ) -> HTML {
        let t = visit.t
        let table = Table(
            caption: t("Saved filters"),
            columns: [
                .init(t("Name")), .init(t("Saved by")), .init(t("Time (UTC)"), width: 1),
                .init(t("Remove"), .actions),
            ],
            rows: filters.map { filter in
                [
                    Part.own(filter.name), Part.own(filter.author), t.time(filter.createdAt),
                    """
                    <form class="inline" method="post" action="\(visit.address("filters", "remove"))">\
                    \(visit.formToken)<input type="hidden" name="page" value="\(page.rawValue)">\
                    <input type="hidden" name="name" value="\(filter.name)">\
                    <button class="btn small">\(t("Remove"))\
                    <span class="hidden"> \(filter.name)</span></button></form>
                    """,
                ]
            }
        )
        return "<details><summary>\(t("Edit the saved filters"))</summary>\(table.html)</details>"
    }

    /// The form that saves the filter of the list that is shown, by the values of the list's form;
    /// empty without values.
    func saveFilterForm(
        _ page: FilteredPage,
        _ values: KeyValuePairs<String, String?>,
        _ visit: Visit
    ) -> HTML {
        guard visit.role >= .sender, !values.isEmpty else { return .empty }
        let t = visit.t
        let hidden = values.map { name, value -> HTML in
            value.map { "<input type=\"hidden\" name=\"\(name)\" value=\"\($0)\">" } ?? .empty
        }
        return """
            <details><summary>\(t("Save this filter"))</summary>
            <form class="filters" method="post" action="\(visit.address("filters"))">\
            \(visit.formToken)<input type="hidden" name="page" value="\(page.rawValue)">\(hidden)
            \(Field("name", t("Name")).input("", isRequired: true))
            <button class="btn">\(t("Save"))</button></form></details>
            """
    }
}
