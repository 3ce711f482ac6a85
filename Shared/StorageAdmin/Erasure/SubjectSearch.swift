import InstallationStorage
import JSON
import Postgres
import PushCore
import PushStorage
import Storage

/// The search for the stored data of a subject: its installations, the pushes that name it or were sent to it, and
/// the shards that are being sent to it.
enum SubjectSearch {
    /// The number of pushes of one page.
    private static let pushesOfPage = 2000
    /// The number of names per statement for a page of pushes.
    private static let namesAtOnce = 200
    /// The number of deliveries per statement, not counting those of its last push.
    private static let deliveriesAtOnce = 200_000
    /// The number of pushes that are read at once.
    private static let textsAtOnce = 100
    private static let zeroUUID = "00000000-0000-0000-0000-000000000000"

    /// Returns the names of a subject, and its installations.
    static func resolve(
        _ subject: Subject,
        isLocking: Bool,
        _ transaction: PostgresTransaction
    ) async throws -> (names: SubjectNames, installations: [Installation]) {
        let condition =
            switch subject.kind {
            case .installation: "(object_id = $2 OR installation_id = $2)"
            case .identity: "identity = $2"
            }
        let found = try await transaction.execute(
            """
            SELECT \(InstallationRow.columns), 
                encode(coalesce(token_hash, sha256(convert_to(token, 'UTF8'))), 'hex') AS hash
            FROM installations WHERE app = $1 AND \(condition)
            ORDER BY object_id\(isLocking ? " FOR UPDATE" : "")
            """,
            [.text(subject.app), .text(subject.id)]
        )
        var names = SubjectNames(subject)
        var installations: [Installation] = []
        for row in found.rows {
            let installation = try InstallationRow.read(row)
            names.add(installation, tokenHash: try row.textOrNil("hash"))
            installations.append(installation)
        }
        return (names, installations)
    }

    /// A page of an app's pushes, with those that concern a subject.
    struct Page {
        /// The ids in order.
        var ids: [String] = []
        /// The start of the next page.
        var last: (Int64, String)?
        /// Whether the page is full; otherwise it is the last: later pushes do not belong to this erasure.
        var isFull = false
        /// The pushes whose requests, event ids or notes contain one of its names.
        var named: Set<String> = []
        /// The pushes that have a delivery to it.
        var delivered: Set<String> = []
    }

    /// Reads the page after a cursor, of pushes that were accepted until a given time. No statement
    /// takes long, whatever the number of names.
    static func page(
        of app: String,
        _ names: SubjectNames,
        after cursor: (Int64?, String?),
        until: Int64? = nil,
        _ transaction: PostgresTransaction
    ) async throws -> Page {
        let (needles, targets) = (names.needles, names.targets)
        let isSmall = max(needles.count, targets.count) <= namesAtOnce
        let most = isSmall ? pushesOfPage : pushesOfPage / 4
        let rows = try await transaction.execute(
            """
            SELECT id, created_at FROM all_pushes
            WHERE app = $1 AND (created_at, id) > ($2::timestamptz, $3::uuid)
                AND ($5::timestamptz IS NULL OR coalesce(accepted_at, created_at) <= $5::timestamptz)
            ORDER BY created_at, id LIMIT $4
            """,
            [
                .text(app), .timestamp(cursor.0 ?? 0), .uuid(cursor.1 ?? zeroUUID),
                .integer(most), .optional(timestamp: until),
            ]
        ).rows
        var page = Page()
        page.ids = try rows.map { try $0.uuid("id") }
        page.isFull = rows.count == most
        guard let last = rows.last else { return page }
        page.last = (try last.timestampMicroseconds("created_at"), try last.uuid("id"))
        if isSmall {
            let found = try await transaction.execute(
                findSQL,
                [.uuidArray(page.ids), .textArray(needles), .textArray(targets)]
            )
            for row in found.rows {
                let id = try row.uuid("id")
                if try row.boolean("is_named") { page.named.insert(id) }
                if try row.boolean("is_delivered") { page.delivered.insert(id) }
            }
        } else {
            page.named = try await named(NameSearch(needles), among: page.ids, transaction)
            page.delivered = try await delivered(targets, among: page.ids, transaction)
        }
        return page
    }

    // Each push is searched for the few targets by the primary key of its day's deliveries: an
    // index by target would cost every write of a delivery, for a search that is so rare. OFFSET 0:
    // a request is converted to text once, not for each name.
    private static let findSQL = """
        SELECT * FROM (
            SELECT p.id,
                EXISTS (SELECT FROM unnest($2::text[]) AS n(needle)
                    WHERE strpos(p.request, n.needle) > 0 OR strpos(p.event_id, n.needle) > 0
                        OR strpos(p.notes, n.needle) > 0) AS is_named,
                \(DeliveryChunks.hasDelivery("p", to: "$3::text[]")) AS is_delivered
            FROM (SELECT id, (created_at AT TIME ZONE 'UTC')::date AS day,
                    request::text AS request, event_id, notes::text AS notes
                FROM all_pushes WHERE id = ANY ($1::uuid[]) OFFSET 0) p) f
        WHERE is_named OR is_delivered
        """

    /// Finds the pushes that contain one of many names. Reads some pushes at a time.
    private static func named(
        _ search: NameSearch,
        among ids: [String],
        _ transaction: PostgresTransaction
    ) async throws -> Set<String> {
        var found: Set<String> = []
        for start in stride(from: 0, to: ids.count, by: textsAtOnce) {
            let part = Array(ids.dropFirst(start).prefix(textsAtOnce))
            let rows = try await transaction.execute(
                """
                SELECT id, request::text || ' ' || event_id || ' ' || notes::text AS words
                FROM all_pushes WHERE id = ANY ($1::uuid[])
                """,
                [.uuidArray(part)]
            ).rows
            for row in rows where search.isFound(in: Array(try row.text("words").utf8)) {
                found.insert(try row.uuid("id"))
            }
        }
        return found
    }

    /// Finds the pushes that have one of many targets. If a push has more deliveries than there are
    /// targets, it is searched for each target, some at a time. Otherwise all its deliveries are
    /// read.
    private static func delivered(
        _ targets: [String],
        among ids: [String],
        _ transaction: PostgresTransaction
    ) async throws -> Set<String> {
        var found: Set<String> = []
        func ask(_ condition: String, _ part: [String], among ids: [String]) async throws {
            // The statement is not prepared, as Postgres makes a table of the list only if it sees
            // the values.
            let rows = try await transaction.pipeline(
                [
                    (
                        """
                        SELECT p.id FROM (SELECT id, targeted,
                                (created_at AT TIME ZONE 'UTC')::date AS day
                            FROM all_pushes WHERE id = ANY ($1::uuid[])) p
                        WHERE \(condition)
                        """,
                        [.uuidArray(ids), .textArray(part), .integer(targets.count)]
                    )
                ],
                isPrepared: false
            )[0].rows
            for row in rows { found.insert(try row.uuid("id")) }
        }
        let small = try await transaction.execute(
            "SELECT id, targeted FROM all_pushes WHERE id = ANY ($1::uuid[]) AND targeted <= $2",
            [.uuidArray(ids), .integer(targets.count)]
        ).rows
        var (part, deliveries): ([String], Int) = ([], 0)
        for (index, row) in small.enumerated() {
            part.append(try row.uuid("id"))
            deliveries += try row.integer("targeted")
            guard deliveries >= deliveriesAtOnce || index == small.count - 1 else { continue }
            try await ask(
                """
                p.targeted <= $3 AND EXISTS (SELECT FROM (SELECT target FROM all_deliveries d
                    WHERE d.day = p.day AND d.push_id = p.id OFFSET 0) t
                    WHERE t.target = ANY ($2::text[]))
                """,
                targets,
                among: part
            )
            (part, deliveries) = ([], 0)
        }
        for start in stride(from: 0, to: targets.count, by: namesAtOnce) {
            try await ask(
                """
                p.targeted > $3 AND \(DeliveryChunks.hasDelivery("p", to: "$2::text[]"))
                """,
                Array(targets.dropFirst(start).prefix(namesAtOnce)),
                among: ids
            )
        }
        return found
    }

    /// Returns the shards that are being sent now, and that included the subject when their members
    /// were read. Only shards of pushes that were accepted until a given time count.
    static func inFlight(
        _ names: SubjectNames,
        of app: String,
        until: Int64?,
        _ database: Database
    ) async throws -> [(pushID: String, shard: Int)] {
        guard !names.objectIDs.isEmpty else { return [] }
        return try await database.execute(
            """
            SELECT s.push_id, s.shard FROM shards s JOIN pushes p ON p.id = s.push_id
            WHERE s.owner IS NOT NULL AND s.app = $1 AND NOT s.finished
                AND ($3::timestamptz IS NULL
                    OR coalesce(p.accepted_at, p.created_at) <= $3::timestamptz)
                AND EXISTS (SELECT FROM unnest($2::text[]) AS n(id)
                    WHERE n.id COLLATE "C" > s.lower_id
                        AND (s.upper_id IS NULL OR n.id COLLATE "C" <= s.upper_id)
                        AND (s.cursor IS NULL OR n.id COLLATE "C" > s.cursor))
            """,
            [.text(app), .textArray(names.objectIDs.sorted()), .optional(timestamp: until)]
        ).rows.map { (try $0.uuid("push_id"), try $0.integer("shard")) }
    }
}
