package import JSON
import Postgres
package import PushCore

/// What an erasure took away, by kind of row.
package struct ErasureCounts: Equatable, Sendable {
    package private(set) var byName: [String: Int] = [:]

    /// In the order in which they are shown.
    package static let names = [
        "installations", "identities", "deliveries", "endedDeliveries", "pushes", "outboxRecords",
        "eventKeys", "shards", "auditEntries",
    ]

    init() { self.init([:]) }

    init(_ json: JSONObject) {
        for name in Self.names { byName[name] = json[name]?.integer ?? 0 }
    }

    subscript(_ name: String) -> Int {
        get { byName[name] ?? 0 }
        set { byName[name] = newValue }
    }

    package var isNothing: Bool { byName.values.allSatisfy { $0 == 0 } }

    package var json: JSONObject {
        JSONObject(Self.names.map { ($0, JSONValue(self[$0])) })
    }
}

/// That a subject was erased: what of it, and when. Names it by a hash alone.
package struct ErasureReceipt: Equatable, Sendable {
    package var app: String
    package var kind: Subject.Kind
    /// SHA-256 of `<app>/<kind>/<id>`, in hex.
    package var subject: String
    package var erased: ErasureCounts
    /// Shards of broadcasts that were being sent to the subject and did not come to a checkpoint in
    /// time: each may still write one delivery down, so an erasure some seconds later is due.
    package var inFlight: Int
    package var at: Instant

    /// Nobody of that name was known.
    package var isOfNobody: Bool { erased.isNothing && inFlight == 0 }

    package var json: JSONObject {
        [
            "app": .string(app), "kind": .string(kind.rawValue), "subject": .string(subject),
            "erasedAt": .string(at.iso8601), "erased": .object(erased.json),
            "inFlight": JSONValue(inFlight),
        ]
    }
}

/// Erasing a device or a user: everything that is stored of it, in one call.
///
/// First the installations and the identity go, in one transaction with a note of their names; so
/// whatever is planned from then on does not meet them. Then the app's pushes are walked through,
/// page by page, each page a transaction: deliveries lose what they say of the device and stay as
/// rows without a name, so that the books of their pushes balance, and those that were pending end;
/// requests lose the names. An erasure that was cut short goes on from its note at the next call, or
/// in the maintenance loop. It may be repeated: what is not there is not erased again.
package struct ErasureStore: Sendable {
    let database: Database

    /// Pushes of one transaction.
    static let pushesOfPage = 2000
    /// Names that one statement looks for in a page of pushes.
    private static let namesAtOnce = 200
    /// Deliveries that one statement reads, but for those of the last of its pushes.
    private static let deliveriesAtOnce = 200_000
    /// Texts of pushes that are read at once.
    private static let textsAtOnce = 100
    private static let zeroUUID = "00000000-0000-0000-0000-000000000000"
    static let reason = "erased"
    /// How often what is in flight is looked at, a tenth of a second apart.
    private static let looks = 30

    /// - Parameters:
    ///   - subject: Whom.
    ///   - entry: Who wants it and how: the receipt is added, and it is written to the audit.
    ///   - unknown: The entry's status where nothing was known.
    /// - Returns: The receipt; of nothing but zeros where nothing was known.
    /// - Throws: `StorageError`; then a further call goes on where this one stopped.
    package func erase(
        _ subject: Subject,
        by entry: AuditEntry,
        unknown: Int? = nil
    ) async throws -> ErasureReceipt {
        let names = try await begin(subject, entry)
        return try await goOn(subject, names, entry, unknown: unknown)
    }

    private func goOn(
        _ subject: Subject,
        _ names: SubjectNames,
        _ entry: AuditEntry,
        unknown: Int? = nil
    ) async throws -> ErasureReceipt {
        let sent = try await inFlight(names, of: subject.app)
        while try await erasePage(of: subject) {}
        let late = try await erase(sent, names, of: subject)
        // Services write their audit a moment later, and may be about to name the subject.
        try await Task.sleep(for: .milliseconds(300))
        return try await finish(subject, entry, inFlight: late, unknown: unknown)
    }

    /// Finishes one erasure that was cut short: that nobody has worked at for a minute. Any replica
    /// may call it at any time; each takes another.
    ///
    /// - Returns: Whether there was one; its receipt is in the audit, for who had wanted it.
    /// - Throws: `StorageError`; then it is taken up again a minute later.
    func finishAbandoned() async throws -> Bool {
        let found = try await database.execute(
            """
            UPDATE erasures e SET touched_at = clock_timestamp()
            FROM (SELECT app, kind, id FROM erasures
                WHERE touched_at < now() - interval '1 minute'
                ORDER BY touched_at LIMIT 1 FOR UPDATE SKIP LOCKED) a
            WHERE e.app = a.app AND e.kind = a.kind AND e.id = a.id
            RETURNING e.app, e.kind, e.id, e.names, e.wanted_by
            """
        )
        guard let row = found.first, let kind = Subject.Kind(rawValue: try row.text("kind"))
        else { return false }
        let subject = Subject(app: try row.text("app"), kind, try row.text("id"))
        let wanted = try row.json("wanted_by")
        _ = try await goOn(
            subject,
            SubjectNames(try row.json("names")),
            AuditEntry(
                app: subject.app,
                actor: wanted["actor"]?.string ?? "maintenance",
                action: wanted["action"]?.string ?? "erase",
                address: wanted["address"]?.string,
                status: wanted["status"]?.integer ?? 200
            )
        )
        return true
    }

    // MARK: Steps

    /// Erases what the subject is known by first, and notes its names.
    private func begin(
        _ subject: Subject,
        _ entry: AuditEntry
    ) async throws -> SubjectNames {
        try await database.transaction { transaction in
            // Who comes second waits here, and goes on with the names that the first has found.
            let known = try await transaction.execute(
                """
                INSERT INTO erasures (app, kind, id, names) VALUES ($1, $2, $3, '{}')
                ON CONFLICT (app, kind, id) DO UPDATE SET touched_at = clock_timestamp()
                RETURNING names, counts
                """,
                Self.key(subject)
            )
            var counts = ErasureCounts(try known.first?.json("counts").object ?? [:])
            var (names, installations) = try await Self.resolve(
                subject,
                isLocking: true,
                transaction
            )
            if let row = known.first { names.formUnion(SubjectNames(try row.json("names"))) }
            counts["installations"] += try await transaction.execute(
                "DELETE FROM installations WHERE app = $1 AND object_id = ANY ($2::text[])",
                [.text(subject.app), .textArray(installations.map(\.objectID))]
            ).affectedRows
            if subject.kind == .identity {
                counts["identities"] += try await transaction.execute(
                    "DELETE FROM identities WHERE app = $1 AND id = $2",
                    [.text(subject.app), .text(subject.id)]
                ).affectedRows
            }
            _ = try await transaction.execute(
                """
                UPDATE erasures SET names = $4, counts = $5, wanted_by = $6, touched_at = clock_timestamp(),
                    cursor_at = CASE WHEN names = $4 THEN cursor_at END,
                    cursor_id = CASE WHEN names = $4 THEN cursor_id END
                WHERE app = $1 AND kind = $2 AND id = $3
                """,
                Self.key(subject) + [
                    .json(names.json), .json(.object(counts.json)), .json(Self.wish(entry)),
                ]
            )
            return names
        }
    }

    /// - Returns: Whether there is more.
    private func erasePage(of subject: Subject) async throws -> Bool {
        try await database.transaction { transaction in
            let found = try await transaction.execute(
                """
                SELECT names, counts, cursor_at, cursor_id FROM erasures
                WHERE app = $1 AND kind = $2 AND id = $3 FOR UPDATE
                """,
                Self.key(subject)
            )
            // Another call has brought it to its end.
            guard let row = found.first else { return false }
            let names = SubjectNames(try row.json("names"))
            var counts = ErasureCounts(try row.json("counts").object ?? [:])
            try await IndexPlan.require(transaction)
            let page = try await Self.page(
                of: subject.app,
                names,
                after: (
                    try row.timestampMicrosecondsOrNil("cursor_at"),
                    try row.uuidOrNil("cursor_id")
                ),
                transaction
            )
            guard let last = page.last else { return false }
            try await Self.clean(page, names, &counts, transaction)
            _ = try await transaction.execute(
                """
                UPDATE erasures SET counts = $4, cursor_at = $5, cursor_id = $6, touched_at = clock_timestamp()
                WHERE app = $1 AND kind = $2 AND id = $3
                """,
                Self.key(subject) + [
                    .json(.object(counts.json)), .timestamp(last.0), .uuid(last.1),
                ]
            )
            return page.isFull
        }
    }

    /// What waits for Kafka, what the audit names, and the end of the note.
    private func finish(
        _ subject: Subject,
        _ entry: AuditEntry,
        inFlight: Int,
        unknown: Int?
    ) async throws -> ErasureReceipt {
        try await database.transaction { transaction in
            let found = try await transaction.execute(
                """
                DELETE FROM erasures WHERE app = $1 AND kind = $2 AND id = $3
                RETURNING names, counts, encode(sha256(convert_to(
                    app || '/' || kind || '/' || id, 'UTF8')), 'hex') AS subject
                """,
                Self.key(subject)
            )
            let names = try found.first.map { SubjectNames(try $0.json("names")) }
            var counts = ErasureCounts(try found.first?.json("counts").object ?? [:])
            if let names { try await Self.cleanRest(of: subject, names, &counts, transaction) }
            let hash = try await transaction.execute(
                "SELECT encode(sha256(convert_to($1, 'UTF8')), 'hex') AS subject",
                [.text("\(subject.app)/\(subject.kind.rawValue)/\(subject.id)")]
            )
            let receipt = ErasureReceipt(
                app: subject.app,
                kind: subject.kind,
                subject: try hash.first?.text("subject") ?? "",
                erased: counts,
                inFlight: inFlight,
                at: .now()
            )
            var entry = entry
            entry.detail = receipt.json
            entry.at = receipt.at
            if let unknown, receipt.isOfNobody { entry.status = unknown }
            let (sql, parameters) = AuditStore.insertion(of: [entry])
            _ = try await transaction.execute(sql, parameters)
            return receipt
        }
    }

    /// What waits for Kafka, and what the audit names.
    static func cleanRest(
        of subject: Subject,
        _ names: SubjectNames,
        _ counts: inout ErasureCounts,
        _ transaction: PostgresTransaction
    ) async throws {
        counts["outboxRecords"] += try await cleanOutbox(names, of: subject.app, transaction)
        counts["auditEntries"] += try await transaction.execute(
            """
            UPDATE audit SET targets = ARRAY(SELECT CASE WHEN t = ANY ($2::text[])
                THEN $3 ELSE t END FROM unnest(targets) AS t)
            WHERE app = $1 AND targets && $2::text[]
            """,
            [
                .text(subject.app), .textArray(names.texts.sorted()), .text(Redaction.mark),
            ]
        ).affectedRows
    }

    /// Who wants an erasure, for the audit of one that others finish.
    private static func wish(_ entry: AuditEntry) -> JSONValue {
        var object: JSONObject = [
            "actor": .string(entry.actor), "action": .string(entry.action),
            "status": JSONValue(entry.status),
        ]
        object["address"] = entry.address.map(JSONValue.string)
        return .object(object)
    }

    static func key(_ subject: Subject) -> [PostgresValue] {
        [.text(subject.app), .text(subject.kind.rawValue), .text(subject.id)]
    }

    // MARK: What is found

    /// The names of a subject, and the installations that it has.
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
            SELECT \(InstallationRow.columns), encode(token_hash, 'hex') AS hash
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

    /// A page of an app's pushes, and which of them have to do with a subject.
    struct Page {
        /// In their order.
        var ids: [String] = []
        /// Where the next page begins.
        var last: (Int64, String)?
        /// Or there was nothing behind it: what comes later is none of this erasure's.
        var isFull = false
        /// Whose requests, event ids or notes hold one of its names.
        var named: Set<String> = []
        /// That have a delivery to it.
        var delivered: Set<String> = []
    }

    /// Reads the page behind a cursor. However many names there are, no statement takes long.
    static func page(
        of app: String,
        _ names: SubjectNames,
        after cursor: (Int64?, String?),
        _ transaction: PostgresTransaction
    ) async throws -> Page {
        let (needles, targets) = (names.needles, names.targets)
        let isSmall = max(needles.count, targets.count) <= namesAtOnce
        let most = isSmall ? pushesOfPage : pushesOfPage / 4
        let rows = try await transaction.execute(
            """
            SELECT id, created_at FROM pushes
            WHERE app = $1 AND (created_at, id) > ($2::timestamptz, $3::uuid)
            ORDER BY created_at, id LIMIT $4
            """,
            [
                .text(app), .timestamp(cursor.0 ?? 0), .uuid(cursor.1 ?? zeroUUID),
                .integer(most),
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

    // Each push is asked for the few targets by the primary key of its day's deliveries: an index
    // by target would cost every delivery that is written, for something that is asked so seldom.
    // OFFSET 0: a request is made a text once, not for each name.
    private static let findSQL = """
        SELECT * FROM (
            SELECT p.id,
                EXISTS (SELECT FROM unnest($2::text[]) AS n(needle)
                    WHERE strpos(p.request, n.needle) > 0 OR strpos(p.event_id, n.needle) > 0
                        OR strpos(p.notes, n.needle) > 0) AS is_named,
                EXISTS (SELECT FROM deliveries d WHERE d.day = p.day AND d.push_id = p.id
                    AND d.target = ANY ($3::text[])) AS is_delivered
            FROM (SELECT id, (created_at AT TIME ZONE 'UTC')::date AS day,
                    request::text AS request, event_id, notes::text AS notes
                FROM pushes WHERE id = ANY ($1::uuid[]) OFFSET 0) p) f
        WHERE is_named OR is_delivered
        """

    /// Of many names: the texts are read, some at a time.
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
                FROM pushes WHERE id = ANY ($1::uuid[])
                """,
                [.uuidArray(part)]
            ).rows
            for row in rows where search.isFound(in: Array(try row.text("words").utf8)) {
                found.insert(try row.uuid("id"))
            }
        }
        return found
    }

    /// Of many targets: a push that has more deliveries than there are targets is asked for each of
    /// these, some at a time; of any other all deliveries are looked at.
    private static func delivered(
        _ targets: [String],
        among ids: [String],
        _ transaction: PostgresTransaction
    ) async throws -> Set<String> {
        var found: Set<String> = []
        func ask(_ condition: String, _ part: [String], among ids: [String]) async throws {
            // Not prepared: only then does Postgres see the list, and makes a table of it.
            let rows = try await transaction.pipeline(
                [
                    (
                        """
                        SELECT p.id FROM (SELECT id, targeted,
                                (created_at AT TIME ZONE 'UTC')::date AS day
                            FROM pushes WHERE id = ANY ($1::uuid[])) p
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
            "SELECT id, targeted FROM pushes WHERE id = ANY ($1::uuid[]) AND targeted <= $2",
            [.uuidArray(ids), .integer(targets.count)]
        ).rows
        var (part, deliveries): ([String], Int) = ([], 0)
        for (index, row) in small.enumerated() {
            part.append(try row.uuid("id"))
            deliveries += try row.integer("targeted")
            guard deliveries >= deliveriesAtOnce || index == small.count - 1 else { continue }
            try await ask(
                """
                p.targeted <= $3 AND EXISTS (SELECT FROM (SELECT target FROM deliveries d
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
                p.targeted > $3 AND EXISTS (SELECT FROM deliveries d
                    WHERE d.day = p.day AND d.push_id = p.id AND d.target = ANY ($2::text[]))
                """,
                Array(targets.dropFirst(start).prefix(namesAtOnce)),
                among: ids
            )
        }
        return found
    }

    /// The shards that somebody is sending now, and whose members the subject was among when they
    /// were read.
    private func inFlight(
        _ names: SubjectNames,
        of app: String
    ) async throws -> [(pushID: String, shard: Int)] {
        guard !names.objectIDs.isEmpty else { return [] }
        return try await database.execute(
            """
            SELECT s.push_id, s.shard FROM shards s
            WHERE s.owner IS NOT NULL AND s.app = $1 AND NOT s.finished
                AND EXISTS (SELECT FROM unnest($2::text[]) AS n(id)
                    WHERE n.id COLLATE "C" > s.lower_id
                        AND (s.upper_id IS NULL OR n.id COLLATE "C" <= s.upper_id)
                        AND (s.cursor IS NULL OR n.id COLLATE "C" > s.cursor))
            """,
            [.text(app), .textArray(names.objectIDs.sorted())]
        ).rows.map { (try $0.uuid("push_id"), try $0.integer("shard")) }
    }

    /// Waits until those shards have written down what they had read, and erases that.
    ///
    /// - Returns: How many have not in time.
    private func erase(
        _ sent: [(pushID: String, shard: Int)],
        _ names: SubjectNames,
        of subject: Subject
    ) async throws -> Int {
        guard !sent.isEmpty else { return 0 }
        var open = sent
        for look in 0..<Self.looks where !open.isEmpty {
            if look > 0 { try await Task.sleep(for: .milliseconds(100)) }
            let now = try await inFlight(names, of: subject.app)
            open = open.filter { shard in now.contains { $0 == shard } }
        }
        let pushIDs = Set(sent.map(\.pushID)).sorted()
        try await database.transaction { transaction in
            let found = try await transaction.execute(
                "SELECT counts FROM erasures WHERE app = $1 AND kind = $2 AND id = $3 FOR UPDATE",
                Self.key(subject)
            )
            var counts = ErasureCounts(try found.first?.json("counts").object ?? [:])
            try await IndexPlan.require(transaction)
            try await Self.clean(pushIDs, names, &counts, transaction)
            _ = try await transaction.execute(
                """
                UPDATE erasures SET counts = $4, touched_at = clock_timestamp()
                WHERE app = $1 AND kind = $2 AND id = $3
                """,
                Self.key(subject) + [.json(.object(counts.json))]
            )
        }
        return open.count
    }
}

// MARK: Rows that stay

extension ErasureStore {
    /// The object ids at which finished shards began and ended say nothing to anybody any more.
    private static func forgetBounds(
        of pushIDs: [String],
        _ names: SubjectNames,
        _ transaction: PostgresTransaction
    ) async throws -> Int {
        guard !names.objectIDs.isEmpty else { return 0 }
        return try await transaction.execute(
            """
            WITH found AS (
                SELECT push_id, shard FROM shards
                WHERE push_id = ANY ($1::uuid[]) AND finished AND owner IS NULL
                    AND (lower_id = ANY ($2::text[]) OR upper_id = ANY ($2::text[])
                        OR cursor = ANY ($2::text[]) OR prepared = ANY ($2::text[]))
                ORDER BY push_id, shard FOR UPDATE
            )
            UPDATE shards s SET lower_id = '', upper_id = NULL, cursor = NULL, prepared = NULL
            FROM found f WHERE s.push_id = f.push_id AND s.shard = f.shard
            """,
            [.uuidArray(pushIDs.sorted()), .textArray(names.objectIDs.sorted())]
        ).affectedRows
    }

    /// What the pushes of a page hold of the subject.
    static func clean(
        _ page: Page,
        _ names: SubjectNames,
        _ counts: inout ErasureCounts,
        _ transaction: PostgresTransaction
    ) async throws {
        counts["shards"] += try await forgetBounds(of: page.ids, names, transaction)
        let affected = page.named.union(page.delivered).sorted()
        try await clean(affected, names, &counts, transaction)
    }

    /// The deliveries of some pushes to the subject, and what their requests say of it.
    private static func clean(
        _ pushIDs: [String],
        _ names: SubjectNames,
        _ counts: inout ErasureCounts,
        _ transaction: PostgresTransaction
    ) async throws {
        guard !pushIDs.isEmpty else { return }
        let pushIDs = pushIDs.sorted()
        let locked = try await transaction.execute(
            """
            SELECT id, app, event_source, event_id, request, notes, status
            FROM pushes WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE
            """,
            [.uuidArray(pushIDs)]
        )
        let targets = names.targets
        for start in stride(from: 0, to: targets.count, by: namesAtOnce) {
            let part = Array(targets.dropFirst(start).prefix(namesAtOnce))
            let rows = try await transaction.execute(
                deliveriesSQL,
                [.uuidArray(pushIDs), .textArray(part), .text(reason)]
            )
            counts["deliveries"] += try rows.first?.integer("erased") ?? 0
            counts["endedDeliveries"] += try rows.first?.integer("ended") ?? 0
        }
        try await redact(locked.rows, names, &counts, transaction)
    }

    // A row that stays tells that something was sent to somebody, and what became of it. One that
    // nobody has sent yet ends as suppressed. One that a dispatcher has may be on its way: nobody
    // will know, and the dispatcher finds that it is not its own any more.
    private static let deliveriesSQL = """
        WITH found AS (
            SELECT d.day, d.push_id, d.target, d.state, d.owner
            FROM pushes p JOIN deliveries d ON d.day = (p.created_at AT TIME ZONE 'UTC')::date
                AND d.push_id = p.id AND d.target = ANY ($2::text[])
            WHERE p.id = ANY ($1::uuid[]) FOR UPDATE OF d
        ), changed AS (
            UPDATE deliveries d SET target = 'erased-' || gen_random_uuid(), installation_id = NULL,
                token = '', locale = NULL, apns_topic = NULL, template_values = NULL, badge = NULL,
                provider_message_id = NULL, owner = NULL,
                state = CASE WHEN f.state <> \(DeliveryState.pending.sql) THEN f.state
                    WHEN f.owner IS NULL THEN \(DeliveryState.suppressed.sql)
                    ELSE \(DeliveryState.inDoubt.sql) END,
                last_reason = CASE WHEN f.state = \(DeliveryState.pending.sql) THEN $3 ELSE d.last_reason END,
                updated_at = now()
            FROM found f
            WHERE d.day = f.day AND d.push_id = f.push_id AND d.target = f.target
            RETURNING d.push_id, f.state = \(DeliveryState.pending.sql) AS is_ended, f.owner IS NULL AS is_free
        ), sums AS (
            SELECT push_id, count(*) AS ended, count(*) FILTER (WHERE is_free) AS suppressed,
                count(*) FILTER (WHERE NOT is_free) AS in_doubt
            FROM changed WHERE is_ended GROUP BY push_id
        ), books AS (
            UPDATE pushes p SET \(PushBooks.change([
                .pending: "-s.ended", .suppressed: "s.suppressed", .inDoubt: "s.in_doubt",
            ]))
            FROM sums s WHERE p.id = s.push_id
        )
        SELECT count(*) AS erased, count(*) FILTER (WHERE is_ended) AS ended FROM changed
        """

    private static func redact(
        _ rows: PostgresRows,
        _ names: SubjectNames,
        _ counts: inout ErasureCounts,
        _ transaction: PostgresTransaction
    ) async throws {
        let redaction = Redaction(names)
        for row in rows {
            let id = try row.uuid("id")
            let request = try row.json("request").object ?? [:]
            let eventID = try row.text("event_id")
            var notes = try row.json("notes").object ?? [:]
            if redaction.isForNobodyElse(request) { notes.removeValue(forKey: "dryRun") }
            let status = PushStatus(rawValue: try row.text("status"))
            let isOver = status?.isFinal ?? true
            let after = (
                request: isOver
                    ? redaction.redactedSent(request) : redaction.redactedUnsent(request),
                eventID: redaction.withoutNames(eventID),
                notes: isOver ? redaction.redactedSent(.object(notes)) : .object(notes)
            )
            if after.eventID != eventID {
                // The event may come again: as nobody is selected any more, it is a push to nobody.
                counts["eventKeys"] += try await transaction.execute(
                    "DELETE FROM event_keys WHERE app = $1 AND source = $2 AND id = $3",
                    [
                        .text(try row.text("app")), .text(try row.text("event_source")),
                        .text(eventID),
                    ]
                ).affectedRows
            }
            counts["pushes"] += try await transaction.execute(
                """
                UPDATE pushes SET request = $2, event_id = $3, notes = $4
                WHERE id = $1 AND (request::text <> $2::json::text OR event_id <> $3 OR notes <> $4)
                """,
                [
                    .uuid(id), .json(.object(after.request)), .text(after.eventID),
                    .json(after.notes),
                ]
            ).affectedRows
        }
    }

    /// Records that were accepted and have not gone to Kafka yet.
    private static func cleanOutbox(
        _ names: SubjectNames,
        of app: String,
        _ transaction: PostgresTransaction
    ) async throws -> Int {
        let redaction = Redaction(names)
        let needles = names.needles.map { Array($0.utf8) }
        var count = 0
        for start in stride(from: 0, to: needles.count, by: namesAtOnce) {
            let found = try await transaction.execute(
                """
                SELECT id, value FROM outbox
                WHERE EXISTS (SELECT FROM unnest($1::bytea[]) AS n(needle)
                    WHERE position(n.needle IN value) > 0)
                ORDER BY id FOR UPDATE
                """,
                [.bytesArray(Array(needles.dropFirst(start).prefix(namesAtOnce)))]
            )
            for row in found.rows {
                let value = try row.bytes("value")
                guard let object = try? JSONValue.parse(value).object,
                    object["app"]?.string == app
                else { continue }
                let after = JSONValue.object(redaction.redactedUnsent(object)).bytes
                guard after != value else { continue }
                _ = try await transaction.execute(
                    "UPDATE outbox SET value = $2 WHERE id = $1",
                    [.integer(try row.integer("id")), .bytes(after)]
                )
                count += 1
            }
        }
        return count
    }
}
