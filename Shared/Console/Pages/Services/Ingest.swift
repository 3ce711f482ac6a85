import Gateway
import HTTPServer
import IngestStorage
import JSON
import Outbox
import PushCore
import PushEvents
import Storage

/// The pages of ingest: the types of objects that devices send, and one type.
extension ConsoleSurface {
    var ingestRoutes: [SurfaceRoute] {
        [
            page(.get, "/ingest", for: .viewer) { .page(try await ingestTypes($0)) },
            page(.get, "/ingest/:type", for: .viewer) { .page(try await ingestType($0)) },
        ]
    }

    private static let pageSize = 25

    // MARK: Types

    /// `GET /console/{app}/ingest?after=`: declared types by name, then the built-in ones.
    private func ingestTypes(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let after = visit.query("after")
        var types = try await database.ingestTypes.list(of: visit.app)
        if let after, let place = types.firstIndex(where: { $0.name == after }) {
            types = Array(types[(place + 1)...])
        }
        let shown = Array(types.prefix(Self.pageSize))
        let views = try await database.ingestState.views(of: visit.app)
        let counts = try await database.ingestState.estimatedCounts(
            of: shown.filter { $0.app != nil }.map(\.number)
        )
        let table = Table(
            caption: t("Types"),
            columns: [
                .init(t("Type")), .init(t("Schema version")),
                .init(t("Objects, estimated"), .number), .init(t("Retention")),
                .init(t("View"), width: 1),
            ],
            rows: shown.map { type in
                [
                    """
                    <a href="\(visit.address("ingest", type.name))" translate="no">\(type.name)</a>
                    """,
                    type.versionText(t), HTML(text: counts[type.number].map(t.number) ?? ""),
                    HTML(text: type.retentionText(t)), views[type.number].map(Part.code) ?? .empty,
                ]
            }
        )
        let next =
            types.count > Self.pageSize
            ? shown.last.map { visit.address("ingest", query: ["after": $0.name]) } : nil
        let first = after == nil ? nil : visit.address("ingest")
        var page = Page(
            t("Ingest"),
            .ingest,
            body: """
                \(table.html)\(Part.pages(next: next, first: first, t))
                <p class="hint">\(t("Postgres estimates the numbers. Built-in types share their tables among apps, so theirs are not shown."))\
                </p>
                """
        )
        page.lead = HTML(
            text: t(
                "Objects that devices send. Each type has a topic in Kafka and a view in Postgres."
            )
        )
        return page
    }

    // MARK: One type

    private func ingestType(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let name = visit.parameter("type")
        guard !name.utf8.contains(0),
            let type = try await database.ingestTypes.find(name, of: visit.app)
        else {
            throw ConsoleError.missing(
                t("This app has no type {name}.", ["name": String(name.prefix(64))])
            )
        }
        let view = try await database.ingestState.view(ofType: type.number, app: visit.app)
        let counts = try await database.ingestState.estimatedCounts(
            of: type.app == nil ? [] : [type.number]
        )
        var list = KeyValues()
        list.add(t("Schema version"), type.versionText(t))
        list.add(t("Objects, estimated"), text: counts[type.number].map(t.number))
        list.add(t("Retention"), text: type.retentionText(t))
        list.add(t("Names a person"), type.subjects.map(Part.code).joined(by: ", "))
        list.add(t("View"), view.map { Part.code($0.name) })
        list.add(t("Topic"), Part.code(acceptance.topics.ingest(type.name)))
        list.add(t("Changed"), t.time(type.updatedAt))
        let schema = type.schema.map { schema -> HTML in
            Part.card(t("Schema"), Part.block(schema.indented, id: "schema", t))
        }
        var page = Page(
            type.name,
            .ingest,
            body: """
                <div class="stack">\(Part.card(t("Type"), list.html))
                \(Part.card(t("Columns of the view"), columns(of: view, visit)))\(schema)</div>
                """
        )
        page.crumbs = [(t("Ingest"), visit.address("ingest"))]
        return page
    }

    private func columns(of view: StoredIngestView?, _ visit: Visit) -> HTML {
        let t = visit.t
        guard let view else {
            return "<p>\(t("There is no view of these objects. Run carillon migrate."))</p>"
        }
        let fixed: [(String, String, String)] = [
            ("_id", "text", t("the object's id")),
            ("_received_at", "timestamptz", t("when it was received")),
            ("_schema_version", "integer", t("the version that it was checked by")),
            ("_object", "jsonb", t("the whole object")),
        ]
        let rows: [[HTML]] =
            fixed.map { [Part.code($0.0), Part.code($0.1), HTML(text: $0.2)] }
            + view.columns.prefix(Self.maximumColumns).map { column in
                [
                    Part.code(column.name), Part.code(column.type.rawValue),
                    column.property == column.name
                        ? .empty
                        : t.html("of the property {name}", ["name": Part.code(column.property)]),
                ]
            }
        let table = Table(
            caption: t("Columns of the view"),
            columns: [.init(t("Column")), .init(t("Type")), .init(t("Notes"), width: 1)],
            rows: rows
        )
        guard view.columns.count > Self.maximumColumns else { return table.html }
        return """
            \(table.html)<p class="hint">\(t("Only the first {count} are shown.", [
                "count": t.number(Self.maximumColumns)
            ]))</p>
            """
    }

    private static let maximumColumns = 200
}

extension StoredIngestType {
    fileprivate func versionText(_ t: Words) -> HTML {
        app == nil ? Part.pill(t("built in"), .quiet) : HTML(text: String(version))
    }

    fileprivate func retentionText(_ t: Words) -> String {
        retentionDays.map { t.count($0, one: "{count} day", other: "{count} days") }
            ?? t("for ever")
    }
}
