import ConnectionStorage
import InstallationStorage
import JSON
import PushCore
import ServiceKit
import Storage

extension Command {
    static let connections = Command(
        "connections <app>",
        "Show open connections of devices, and the messages that wait for them",
        options: [
            .value("--installation", "<id>", "the messages that wait for this one: its object id"),
            json,
        ]
    ) { arguments, context in
        let (database, app) = try await context.existingApp(arguments)
        let store = database.connections
        if let id = arguments.value("--installation") {
            guard let device = try await database.installations.find(app: app, objectID: id) else {
                throw CommandFailure("\(app) has no installation \(Terminal.short(id, 64))")
            }
            return try await show(device, store, arguments)
        }
        let (counts, nodes) = (try await store.counts(of: app), try await store.nodes())
        let open = nodes.flatMap { node in
            (node.open[app] ?? [:]).sorted { $0.key < $1.key }
                .map { OpenConnections(node: node.name, dialect: $0.key, count: $0.value) }
        }
        let listing = OpenConnections.listing(open)
        let total = open.reduce(0) { $0 + $1.count }
        return arguments.answer(
            [
                "app": .string(app), "open": JSONValue(total), "connections": listing.json,
                "messages": .object(counts.json),
            ],
            Terminal.table(
                [["open", "\(total)"]] + counts.json.map { [$0.key, $0.value.plain] }
            ) + (open.isEmpty ? "" : "\n\n" + listing.table())
        )
    }

    private static func show(
        _ device: Installation,
        _ store: ConnectionStore,
        _ arguments: Arguments
    ) async throws -> Int32 {
        let isConnected = device.platform == .connection
        let waiting =
            if let id = device.installationID {
                try await store.waitingCount(of: DeviceKey(app: device.app, installationID: id))
            } else {
                0
            }
        return arguments.answer(
            [
                "installation": .string(device.objectID), "waiting": JSONValue(waiting),
                "isConnection": .bool(isConnected),
            ],
            lines: [
                ["installation", device.objectID],
                ["reached by", device.platform?.rawValue ?? "no provider"],
                ["waiting", "\(waiting)"],
            ]
        )
    }
}

/// The open connections of one node and dialect.
private struct OpenConnections {
    let node: String
    let dialect: String
    let count: Int

    static func listing(_ rows: [OpenConnections]) -> Listing<OpenConnections> {
        Listing(
            rows,
            columns: [
                .text("node", title: "NODE", \.node), .text("dialect", title: "DIALECT", \.dialect),
                .number("open", title: "OPEN", \.count),
            ]
        )
    }
}

extension ConnectionCounts {
    fileprivate var json: JSONObject {
        [
            "kept": JSONValue(kept), "received": JSONValue(received),
            "displaced": JSONValue(displaced), "expired": JSONValue(expired),
            "waiting": JSONValue(waiting),
        ]
    }
}
