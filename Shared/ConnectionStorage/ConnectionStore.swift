import JSON
package import Postgres
import PushCore
import Storage

/// The messages for devices that hold a connection of their own.
///
/// A dispatcher keeps a message before it counts as delivered; a node sends it to the device and deletes
/// it when it is acknowledged. Both count what they did by app, in the same transaction.
package struct ConnectionStore: Sendable {
    let database: Database
    /// The database whose connections use `IndexPlan`, for the statements of nodes: the tables grow
    /// faster than their statistics.
    let indexed: Database
    let cache: MessageContentCache

    /// The most that waits for one device, if nothing else is configured.
    package static let defaultWaiting = 100
    /// The limit of all messages' lifetimes.
    static let longest = Duration.seconds(28 * 86_400)
    /// The rows of `connection_counts` of an app.
    static let slots = 16

    private static let contentColumns = Columns<NewMessage.Content>([
        .uuid("push_id") { $0.pushID },
        .bytes("digest") { $0.digest },
        .text("app") { $0.app },
        .text("event_id") { $0.eventID },
        .bytes("body") { $0.body },
        .text("channels") {
            $0.channels.isEmpty ? nil : JSONValue.array($0.channels.map(JSONValue.string)).text
        },
    ])

    private static let columns = Columns<NewMessage>([
        .uuid("push_id") { $0.content.pushID },
        .bytes("digest") { $0.content.digest },
        .text("app") { $0.content.app },
        .bytes("device") { $0.device.bytes },
        .uuid("id") { $0.id },
        .text("target") { $0.target },
        .text("collapse") { $0.collapseID },
        .time("expires_at") { $0.expiresAt },
    ])

    /// Stores messages; one that is stored already stays as it is. Older ones with the same collapse id,
    /// and those beyond `maximumWaiting` of a device, are displaced.
    ///
    /// - Parameters:
    ///   - messages: At most some hundreds.
    ///   - lifetime: How long a message without an expiry of its own is kept, at most `longest`.
    ///   - maximumWaiting: The most that wait for one device.
    /// - Returns: The ids of messages whose installation has been deleted: these are not stored.
    /// - Throws: `StorageError`; then none is stored.
    @discardableResult
    package func keep(
        _ messages: [NewMessage],
        for lifetime: Duration,
        maximumWaiting: Int = defaultWaiting
    ) async throws -> Set<String> {
        guard !messages.isEmpty else { return [] }
        // In one order, so that transactions do not wait for each other in a circle.
        let messages = messages.sorted {
            ($0.device.bytes.lexicographicallyPrecedes($1.device.bytes))
        }
        let contents = Array(Set(messages.map(\.content))).sorted { $0.pushID < $1.pushID }
        let limits: [PostgresValue] = [
            .integer(Int(clamping: lifetime.wholeMilliseconds)),
            .integer(Int(clamping: Self.longest.wholeMilliseconds)),
        ]
        let collapsing = messages.filter { $0.collapseID != nil }
        let devices = Set(messages.map(\.device)).map(\.bytes)
        let stored = try await database.transaction { transaction in
            let results = try await transaction.pipeline([
                (IndexPlan.joiningSQL, []),
                (Self.contentSQL, Self.contentColumns.parameters(of: contents)),
                (Self.keepSQL, limits + Self.columns.parameters(of: messages)),
                (
                    Self.collapseSQL,
                    [
                        .bytesArray(collapsing.map(\.device.bytes)),
                        .uuidArray(collapsing.map(\.id)),
                        .textArray(collapsing.map(\.collapseID)),
                    ]
                ), (Self.overflowSQL, [.bytesArray(devices), .integer(maximumWaiting)]),
            ])
            var counts: [String: ConnectionCounts] = [:]
            var stored: Set<String> = []
            for row in results[2].rows {
                counts[try row.text("app"), default: ConnectionCounts()].kept += 1
                stored.insert(try row.uuid("id"))
            }
            for result in results[3...] {
                for row in result.rows {
                    counts[try row.text("app"), default: ConnectionCounts()].displaced += 1
                }
            }
            guard !counts.isEmpty else { return stored }
            _ = try await transaction.pipeline([Self.counting(counts)])
            return stored
        }
        return try await deleted(messages.filter { !stored.contains($0.id) })
    }

    /// Wakes the nodes, as messages were stored. Not in the transaction that stores them: Postgres
    /// commits those that notify one after the other, each with its write to the disk.
    package func notifyNodes() async throws {
        _ = try await database.execute(
            "SELECT pg_notify('\(NotifyChannel.connections.rawValue)', '')"
        )
    }

    /// Returns the ids of messages whose installation does not exist.
    private func deleted(_ messages: [NewMessage]) async throws -> Set<String> {
        guard !messages.isEmpty else { return [] }
        let rows = try await database.execute(
            """
            SELECT g.id FROM unnest($1::text[], $2::text[], $3::uuid[]) AS g(app, target, id)
            WHERE NOT EXISTS (
                SELECT FROM installations i WHERE i.app = g.app AND i.object_id = g.target)
            """,
            [
                .textArray(messages.map(\.content.app)), .textArray(messages.map(\.target)),
                .uuidArray(messages.map(\.id)),
            ]
        )
        return Set(try rows.rows.map { try $0.uuid("id") })
    }

    // A conflict locks the row until the commit: `expire` does not delete it before its messages are seen.
    private static let contentSQL = """
        INSERT INTO connection_contents AS c (push_id, digest, app, event_id, body, channels, keep_until)
        SELECT g.push_id, g.digest, g.app, g.event_id, g.body,
            coalesce(ARRAY(SELECT jsonb_array_elements_text(g.channels::jsonb)), '{}'),
            now() + interval '10 minutes'
        FROM \(contentColumns.source(as: "g"))
        ORDER BY g.push_id, g.digest
        ON CONFLICT (push_id, digest) DO UPDATE SET keep_until = excluded.keep_until
            WHERE c.keep_until < now()
        """

    // The installations are locked until the commit, so that an erasure sees these messages.
    private static let keepSQL = """
        WITH new AS MATERIALIZED (SELECT * FROM \(columns.source(as: "g", after: 2, place: "n"))
        ), held AS MATERIALIZED (
            SELECT i.app, i.object_id, i.channels
            FROM (SELECT DISTINCT app, target FROM new) g
            JOIN installations i ON i.app = g.app AND i.object_id = g.target
            ORDER BY i.app, i.object_id FOR KEY SHARE OF i)
        INSERT INTO connection_messages (app, device, id, content, target, collapse, expires_at,
            has_own_expiry, channel)
        SELECT g.app, g.device, g.id, c.id, g.target, g.collapse,
            now() + interval '1 millisecond' * (CASE WHEN g.expires_at IS NULL
                THEN least($1::bigint, $2::bigint)
                ELSE least(extract(epoch FROM g.expires_at - now()) * 1000, $2::bigint)
                END)::double precision,
            g.expires_at IS NOT NULL, CASE WHEN c.channels <> '{}' THEN (
                SELECT k.n FROM unnest(c.channels) WITH ORDINALITY AS k(n, place)
                WHERE k.n = ANY (i.channels) ORDER BY k.place LIMIT 1) END
        FROM new g
        JOIN connection_contents c ON c.push_id = g.push_id AND c.digest = g.digest
        JOIN held i ON i.app = g.app AND i.object_id = g.target
        ORDER BY g.n
        ON CONFLICT (device, id) DO NOTHING RETURNING app, id
        """

    private static let collapseSQL = """
        WITH old AS MATERIALIZED (
            SELECT m.seq FROM unnest($1::bytea[], $2::uuid[], $3::text[]) AS g(device, id, collapse)
            JOIN connection_messages n ON n.device = g.device AND n.id = g.id
            JOIN connection_messages m ON m.device = g.device AND m.collapse = g.collapse
                AND m.seq < n.seq
            ORDER BY m.seq FOR UPDATE OF m)
        DELETE FROM connection_messages m USING old WHERE m.seq = old.seq RETURNING m.app
        """

    private static let overflowSQL = """
        WITH old AS MATERIALIZED (
            SELECT o.seq FROM unnest($1::bytea[]) AS d(device)
            CROSS JOIN LATERAL (
                SELECT m.seq FROM connection_messages m WHERE m.device = d.device
                ORDER BY m.seq DESC OFFSET $2) o
            ORDER BY o.seq)
        DELETE FROM connection_messages m USING old WHERE m.seq = old.seq RETURNING m.app
        """

    /// Returns the statement that adds to the counters, for a transaction of the caller's.
    static func counting(
        _ counts: [String: ConnectionCounts]
    ) -> (sql: String, parameters: [PostgresValue]) {
        let rows = counts.sorted { $0.key < $1.key }
        return (
            """
            INSERT INTO connection_counts AS c (app, slot, kept, received, displaced, expired)
            SELECT g.app, \(slotSQL), g.kept, g.received, g.displaced, g.expired
            FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
                AS g(app, kept, received, displaced, expired)
            ORDER BY g.app
            ON CONFLICT (app, slot) DO UPDATE SET kept = c.kept + excluded.kept,
                received = c.received + excluded.received,
                displaced = c.displaced + excluded.displaced, expired = c.expired + excluded.expired
            """,
            [
                .textArray(rows.map(\.key)), .integerArray(rows.map(\.value.kept)),
                .integerArray(rows.map(\.value.received)),
                .integerArray(rows.map(\.value.displaced)),
                .integerArray(rows.map(\.value.expired)),
            ]
        )
    }

    /// Returns the statement that counts messages which an erasure has deleted.
    package static func counting(
        displaced count: Int,
        of app: String
    ) -> (sql: String, parameters: [PostgresValue]) {
        var counts = ConnectionCounts()
        counts.displaced = count
        return counting(count > 0 ? [app: counts] : [:])
    }

    /// A connection's slot, so that few writers share one.
    static let slotSQL = "pg_backend_pid() % \(slots)"

    // MARK: Reports

    /// Returns where the messages of an app went; all are 0 for an app that never had messages.
    ///
    /// - Parameters:
    ///   - app: The app's id.
    ///   - maximumWaiting: No more waiting messages than this are counted; `nil`: all.
    /// - Returns: The counts.
    /// - Throws: `StorageError`.
    package func counts(
        of app: String,
        maximumWaiting: Int? = nil
    ) async throws -> ConnectionCounts {
        let rows = try await database.execute(
            """
            SELECT coalesce(sum(kept), 0)::bigint AS kept,
                coalesce(sum(received), 0)::bigint AS received,
                coalesce(sum(displaced), 0)::bigint AS displaced,
                coalesce(sum(expired), 0)::bigint AS expired,
                (SELECT count(*) FROM (SELECT FROM connection_messages WHERE app = $1 LIMIT $2) m)
                    AS waiting
            FROM connection_counts WHERE app = $1
            """,
            [.text(app), .optional(integer: maximumWaiting)]
        )
        var counts = ConnectionCounts()
        guard let row = rows.first else { return counts }
        counts.kept = try row.integer("kept")
        counts.received = try row.integer("received")
        counts.displaced = try row.integer("displaced")
        counts.expired = try row.integer("expired")
        counts.waiting = try row.integer("waiting")
        return counts
    }

    /// Returns those of the apps that do not exist or have no connections.
    package func unserved(of apps: [String]) async throws -> Set<String> {
        guard !apps.isEmpty else { return [] }
        let rows = try await database.execute(
            "SELECT id, settings FROM apps WHERE id = ANY ($1::text[])",
            [.textArray(apps)]
        ).rows
        var unserved = Set(apps)
        for row in rows
        where AppSettings(try row.json("settings").object ?? [:]).sendsToConnections {
            unserved.remove(try row.text("id"))
        }
        return unserved
    }

    /// Returns the number of messages that wait for all devices, as Postgres estimates it.
    package func estimatedWaitingCount() async throws -> Int {
        try await database.execute(
            """
            SELECT greatest(reltuples, 0)::bigint AS waiting FROM pg_class
            WHERE oid = 'connection_messages'::regclass
            """
        ).first?.integer("waiting") ?? 0
    }

    /// Returns the number of messages that wait for one device.
    package func waitingCount(of device: DeviceKey) async throws -> Int {
        try await database.execute(
            "SELECT count(*) AS waiting FROM connection_messages WHERE device = $1",
            [.bytes(device.bytes)]
        ).first?.integer("waiting") ?? 0
    }

    /// Stores a node's open connections; the time is Postgres'.
    package func report(_ node: ConnectionNode) async throws {
        let open = JSONObject(
            node.open.map { app, dialects in
                (app, .object(JSONObject(dialects.map { ($0, JSONValue($1)) })))
            }
        )
        _ = try await database.execute(
            """
            INSERT INTO connection_nodes (node, seen_at, open) VALUES ($1, now(), $2::jsonb)
            ON CONFLICT (node) DO UPDATE SET seen_at = now(), open = excluded.open
            """,
            [.text(node.name), .json(.object(open))]
        )
    }

    /// Removes a node that stops.
    package func forget(node: String) async throws {
        _ = try await database.execute(
            "DELETE FROM connection_nodes WHERE node = $1",
            [.text(node)]
        )
    }

    /// Returns the nodes that reported within a minute, by name.
    package func nodes() async throws -> [ConnectionNode] {
        try await database.execute(
            """
            SELECT node, seen_at, open FROM connection_nodes
            WHERE seen_at > now() - interval '1 minute' ORDER BY node
            """
        ).rows.map { row in
            var open: [String: [String: Int]] = [:]
            for (app, dialects) in try row.json("open").object ?? [:] {
                for (dialect, count) in dialects.object ?? [:] {
                    open[app, default: [:]][dialect] = Int(count.integer ?? 0)
                }
            }
            return ConnectionNode(
                name: try row.text("node"),
                open: open,
                seenAt: try row.instant("seen_at")
            )
        }
    }
}
