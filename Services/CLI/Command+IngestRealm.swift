import IngestStorage
import JSON
import PushCore
import ServiceKit
import Storage

extension Command {
    static let ingestRealmStatus = Command(
        "ingest realm status <app>",
        "Show an app's Realm clients, their objects and the errors they report",
        options: [json]
    ) { arguments, context in
        let (database, app) = try await context.existingApp(arguments)
        let settings = try await database.apps.find(app).map { AppSettings($0.settings) }
        let isOn = settings?.takesRealmClients == true
        let figures = try await database.realmFigures.list(of: app)
        let complaints = figures.filter { $0.key.kind == .complaint }.reduce(0) { $0 + $1.count }
        let listing = Listing(
            figures,
            columns: [
                .text("kind", title: "KIND", \.key.kind.rawValue),
                .text("name", title: "NAME", \.key.name),
                .number("count", title: "COUNT", \.count),
                .text("changedAt", title: "LAST", \.changedAt.iso8601),
            ]
        )
        let alarm =
            "\n\nALARM: clients report \(complaints) errors of this service; see"
            + " deploy/guides/realm.md"
        return arguments.answer(
            [
                "app": .string(app), "realmSync": .bool(isOn),
                "rescueUntil": settings?.realmRescueEnd.map { .string($0) } ?? .null,
                "complaints": JSONValue(complaints), "figures": listing.json,
            ],
            "realm-sync \(isOn ? "on" : "off")"
                + (figures.isEmpty ? "; no client has come yet" : "\n\n" + listing.table())
                + (complaints > 0 ? alarm : "")
        )
    }
}
