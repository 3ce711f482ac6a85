import InstallationStorage
import JSON
import Postgres
import PushCore
import Storage

extension FewDevicesStore {
    /// Writes pushes with the ends of their deliveries. If all deliveries of a push have ended, it
    /// is one row: if HTTP accepted the push, that is its row of `pushes`. Otherwise the push and
    /// its deliveries are separate rows. One transaction writes all, and only if the session is
    /// valid. A push that is already stored is left alone: another replica had the same event, or
    /// the reply to an earlier commit was lost.
    ///
    /// It takes one round trip, except if a token is dead, or a subject of these apps was erased
    /// after the look-up.
    ///
    /// - Parameters:
    ///   - session: The session that owns the deliveries in flight.
    ///   - pushes: The pushes, each once.
    /// - Returns: The pushes that were written, and those that were erased.
    /// - Throws: `StorageError`. If it is of kind `sessionLost`, nothing was written. It is
    ///   `isOfTheValues` if Postgres will never accept one of the pushes.
    package func write(session: Int, _ pushes: [SentPush]) async throws -> WrittenPushes {
        let pushes = pushes.sorted { $0.push.id < $1.push.id }
        guard let fence = WritingFence(of: pushes, session, database.clock.now()) else {
            return WrittenPushes()
        }
        guard pushes.allSatisfy(\.deadTokens.isEmpty) else {
            return try await writeStepwise(pushes, fence)
        }
        let ground = Self.ground(of: pushes, fence)
        let results = try await database.transaction(
            of: ground + Self.insertions(of: pushes, fence)
        )
        guard !results[0].isEmpty else { throw StorageError.sessionLost }
        let (ids, isFenced) = try Self.read(results.dropFirst(ground.count))
        guard isFenced else { return WrittenPushes(ids: ids) }
        var written = try await writeStepwise(pushes.filter { !ids.contains($0.push.id) }, fence)
        written.ids.formUnion(ids)
        return written
    }

    /// Writes pushes like `write`, but step by step in one transaction. For pushes that have dead
    /// tokens or may name erased subjects.
    private func writeStepwise(
        _ pushes: [SentPush],
        _ fence: WritingFence
    ) async throws -> WrittenPushes {
        let key = try await database.erasureKey.bytes(in: database)
        return try await database.transaction { transaction in
            var written = WrittenPushes()
            let ground = try await transaction.pipeline(
                Self.ground(of: pushes, fence) + [ErasureFence.fencedApps(of: fence.apps)]
            )
            guard !ground[0].isEmpty, let fenced = ground.last?.rows else {
                throw StorageError.sessionLost
            }
            if !fenced.isEmpty {
                let names = Self.names(in: pushes)
                for place in try await ErasureFence.erased(names, in: fenced, key: key, transaction)
                {
                    written.erased.insert(pushes[place].push.id)
                }
            }
            let kept = pushes.filter { !written.erased.contains($0.push.id) }
            let results = try await transaction.pipeline(
                Self.insertions(of: kept, fence.open)
            )
            let ids = try Self.read(results[...]).ids
            written.ids = ids
            try await DeadToken.disable(
                kept.filter { ids.contains($0.push.id) }.flatMap(\.deadTokens),
                transaction
            )
            return written
        }
    }

    /// Returns the statements that come first: they lock the session, the erasure fence and the
    /// pushes' ids. The first statement returns no row if the session is lost.
    private static func ground(
        of pushes: [SentPush],
        _ fence: WritingFence
    ) -> [(String, [PostgresValue])] {
        [
            (SessionStore.holdSQL, [.integer(fence.session)]),
            ErasureFence.passBarrier(of: fence.apps), PushLock.take(pushes.map(\.push.id)),
        ]
    }

    private static func insertions(
        of pushes: [SentPush],
        _ fence: WritingFence
    ) -> [(String, [PostgresValue])] {
        let whole = pushes.filter { PushLedger.form(of: $0) == .row }
        return [
            (whole.filter(\.isPlain), plainRow), (whole.filter { !$0.isPlain }, oneRow),
            (pushes.filter { PushLedger.form(of: $0) != .row }, rows),
        ].filter { !$0.0.isEmpty }.map { pushes, insertion in insertion(pushes, fence) }
    }

    /// - Returns: The ids that were written, and whether an erasure kept some pushes from being
    ///   written.
    private static func read(
        _ results: ArraySlice<PostgresResult>
    ) throws -> (ids: Set<String>, isFenced: Bool) {
        var (ids, isFenced): (Set<String>, Bool) = ([], false)
        for result in results {
            for row in result.rows {
                if let id = try row.uuidOrNil("id") {
                    ids.insert(id)
                } else {
                    isFenced = true
                }
            }
        }
        return (ids, isFenced)
    }

    private static func names(in pushes: [SentPush]) -> [ErasureFence.Candidate] {
        pushes.enumerated().flatMap { place, push in
            ExactStringSet(push.push.names + push.deliveries.map(\.delivery.target)).map { name in
                ErasureFence.Candidate(
                    place: place,
                    app: push.push.app,
                    name: name,
                    atMicroseconds: push.createdAt.microseconds
                )
            }
        }
    }

    /// Returns the statement for pushes with one successful delivery and no further details. The
    /// other columns have their defaults.
    private static func plainRow(
        _ pushes: [SentPush],
        _ fence: WritingFence
    ) -> (String, [PostgresValue]) {
        eventPushes(pushes.map(WrittenPush.init), WrittenPush.plainColumns, fence)
    }

    private static func oneRow(
        _ pushes: [SentPush],
        _ fence: WritingFence
    ) -> (String, [PostgresValue]) {
        eventPushes(pushes.map(WrittenPush.init), WrittenPush.packedColumns, fence)
    }

    private static func eventPushes(
        _ pushes: [WrittenPush],
        _ columns: Columns<WrittenPush>,
        _ fence: WritingFence
    ) -> (String, [PostgresValue]) {
        fence.guarding(columns.parameters(of: pushes)) { isFree in
            """
            made AS (
                INSERT INTO event_pushes (\(columns.names), day, finished_at)
                SELECT \(columns.names(of: "i")), (i.created_at AT TIME ZONE 'UTC')::date,
                    date_trunc('milliseconds', now())
                FROM \(columns.source(as: "i"))
                WHERE \(isFree)
                    AND NOT EXISTS (SELECT FROM pushes p WHERE p.id = i.id OFFSET 0)
                RETURNING id
            )
            """
        }
    }

    // A push that was cancelled while it was sent stays cancelled. Its remaining rows are due at
    // once, and the session that claims them suppresses them. "IS TRUE" makes Postgres test against
    // a hashed list instead of a join: with `IndexPlan` a join would read all rows for each push.
    private static func rows(
        _ sent: [SentPush],
        _ fence: WritingFence
    ) -> (String, [PostgresValue]) {
        let pushes = sent.map(WrittenPush.init)
        let (own, rows) = (WrittenPush.columns, DeliveryRecord.columns)
        let sources = rows + DeliveryRecord.stateColumns
        let parameters =
            own.parameters(of: pushes)
            + sources.parameters(of: pushes.flatMap { $0.isPacked ? [] : $0.sent.deliveries })
        return fence.guarding(parameters) { isFree in
            """
            made AS (
                INSERT INTO pushes (\(own.names), lane, status, targeted, planned_until, updated_at,
                    finished_at)
                SELECT \(own.names(of: "i")), 0,
                    CASE WHEN i.pending = 0 THEN \(PushStatus.done.sql) ELSE \(PushStatus.sending.sql) END,
                    i.delivered + i.failed + i.expired + i.suppressed + i.in_doubt + i.pending,
                    i.created_at, now(), CASE WHEN i.pending = 0 THEN now() END
                FROM \(own.source(as: "i"))
                WHERE \(isFree)
                ON CONFLICT (id) DO UPDATE SET \(LedgerSQL.sentAtOnce), planned_until = now(),
                    created_at = excluded.created_at, accepted_at = pushes.created_at,
                    deliveries = excluded.deliveries, updated_at = now()
                WHERE pushes.planned_until IS NULL
                    AND pushes.status IN (\(PushStatus.queued.sql), \(PushStatus.cancelled.sql))
                RETURNING id, status
            ), ended AS (
                INSERT INTO deliveries (\(rows.names), lane, due_at, owner)
                SELECT \(rows.names(of: "d")), 0,
                    CASE WHEN (d.push_id IN (SELECT id FROM made
                            WHERE status = \(PushStatus.cancelled.sql))) IS TRUE THEN now()
                        ELSE coalesce(d.due_at, now()) END,
                    CASE WHEN d.is_open THEN $\(parameters.count + 1)::bigint END
                FROM \(sources.source(as: "d", after: own.count))
                WHERE (d.push_id IN (SELECT id FROM made)) IS TRUE
            )
            """
        }
    }
}

/// A push as it is written, with the change of its ledger.
private struct WrittenPush {
    let sent: SentPush
    let books: LedgerChange
    let isPacked: Bool

    init(_ sent: SentPush) {
        self.sent = sent
        books = LedgerChange(sent.deliveries)
        isPacked = PushLedger.form(of: sent) == .packed
    }

    private static let identity = Columns<WrittenPush>([
        .uuid("id") { $0.sent.push.id }, .text("app") { $0.sent.push.app },
        .text("event_source") { $0.sent.push.eventSource },
        .text("event_id") { $0.sent.push.eventID },
        .json("request") { .object($0.sent.push.object) },
        .time("created_at") { $0.sent.createdAt },
    ])

    /// The columns of `event_pushes` for a plain push.
    static let plainColumns =
        identity
        + Columns([
            .boolean("is_sandbox") { $0.sent.push.request.environment == .sandbox },
            .jsonb("deliveries") { $0.sent.packed },
        ])

    /// The columns of `event_pushes` for a push that has more details.
    static let packedColumns =
        plainColumns + counts { .smallint($0, $1) }
        + Columns([
            .jsonb("notes") { $0.sent.push.notes.isEmpty ? nil : .object($0.sent.push.notes) },
            .jsonb("failures") { $0.books.failures.json },
            .time("expires_at") { $0.sent.push.expiresAt },
        ])

    /// The columns of `pushes`.
    static let columns =
        identity + counts { .bigint($0, $1) }
        + Columns([
            .jsonb("notes") { .object($0.sent.push.notes) },
            .text("environment") { $0.sent.push.request.environment.rawValue },
            .time("expires_at") { $0.sent.push.expiresAt },
            .bigint("pending") { $0.books.ledger.pending },
            .jsonb("failures") { $0.books.failures.json },
            .jsonb("deliveries") {
                $0.isPacked && !$0.sent.deliveries.isEmpty ? $0.sent.packed : nil
            },
        ])

    private static func counts(
        _ column: (String, @escaping @Sendable (WrittenPush) -> Int?) -> Columns<WrittenPush>.Column
    ) -> Columns<WrittenPush> {
        Columns([
            column("delivered") { $0.books.ledger[.delivered] },
            column("failed") { $0.books.ledger[.failed] },
            column("expired") { $0.books.ledger[.expired] },
            column("suppressed") { $0.books.ledger[.suppressed] },
            column("in_doubt") { $0.books.ledger[.inDoubt] },
            column("invalid_tokens") { $0.books.ledger.invalidTokens },
        ])
    }
}

/// The values that each write is checked against: the session, the apps and the erasures.
private struct WritingFence {
    let session: Int
    let apps: [String]
    /// The time from which an erased name of one of the apps stops all pushes; `nil` if the names
    /// were already checked.
    private var erasedAfter: Int64?
    private let days: EventDays

    /// Returns `nil` without pushes.
    init?(of pushes: [SentPush], _ session: Int, _ now: Instant) {
        let times = pushes.map(\.createdAt).sorted()
        guard let first = times.first, let last = times.last else { return nil }
        self.session = session
        apps = Set(pushes.map(\.push.app)).sorted()
        erasedAfter = first.microseconds - ErasureFence.clockDifferenceMicroseconds
        days = EventDays(from: first, back: 1, to: max(last, now))
    }

    /// A copy without the check for erasures, for pushes that name no erased subject.
    var open: WritingFence {
        var fence = self
        fence.erasedAfter = nil
        return fence
    }

    /// Returns a statement that writes rows `i`; `insertion` must call them `made`. The statement
    /// returns their ids. It returns no row if the session is lost, and null if names were erased.
    ///
    /// It looks for an event in the days around: two replicas may have looked up the event on both
    /// sides of midnight, and each day may have a separate partition. OFFSET 0 makes Postgres look
    /// up each id by itself: a join with a table that is still empty would be planned to read the
    /// whole table.
    ///
    /// - Parameters:
    ///   - parameters: The parameters of `insertion`; the session, the apps and a time follow them.
    ///   - insertion: Returns the insertion; its argument is the condition on which a row is
    ///     inserted.
    /// - Returns: The statement and its parameters.
    func guarding(
        _ parameters: [PostgresValue],
        _ insertion: (_ isFree: String) -> String
    ) -> (String, [PostgresValue]) {
        let count = parameters.count
        let isFree = """
            EXISTS (SELECT FROM dispatchers WHERE id = $\(count + 1)::bigint)
                AND NOT EXISTS (SELECT FROM gone)
                AND NOT EXISTS (
                    SELECT FROM event_pushes e WHERE e.id = i.id AND \(days.sql(of: "e")) OFFSET 0)
            """
        return (
            """
            WITH gone AS MATERIALIZED (
                SELECT FROM (
                    SELECT app FROM erased_names WHERE at > $\(count + 3)::timestamptz OFFSET 0) e
                WHERE app = ANY ($\(count + 2)::text[]) LIMIT 1
            ), \(insertion(isFree))
            SELECT id FROM made UNION ALL SELECT NULL FROM gone
            """,
            parameters + [
                .integer(session), .textArray(apps), .timestamp(erasedAfter ?? .max),
            ]
        )
    }
}

extension SentPush {
    fileprivate var deadTokens: [DeadToken] { deliveries.compactMap(\.deadToken) }

    /// Whether it is one row with one successful delivery and no other details.
    fileprivate var isPlain: Bool {
        guard PushLedger.form(of: self) == .row, deliveries.count == 1, let end = deliveries[0].end
        else { return false }
        return end.outcome == .delivered && end.tokenDiedAt == nil && push.expiresAt == nil
            && push.notes.isEmpty
    }

    /// The value of `event_pushes.deliveries`.
    fileprivate var packed: JSONValue {
        .array(
            deliveries.map { record in
                let delivery = record.delivery
                var object: JSONObject = [
                    "t": .string(delivery.target), "p": .string(delivery.device.provider.rawValue),
                ]
                if delivery.installationID == nil { object["n"] = true }
                let environment = delivery.device.environment.rawValue
                if !environment.isEmpty { object["e"] = .string(environment) }
                guard let end = record.end, let outcome = end.outcome else {
                    return .object(object)
                }
                object["s"] = JSONValue(DeliveryState(outcome).rawValue)
                if end.attempts != 1 { object["a"] = JSONValue(end.attempts) }
                if let status = end.status { object["c"] = JSONValue(status) }
                if let reason = end.reason { object["r"] = .string(reason) }
                // APNs' id is Carillon's own, and can be derived from push and target.
                if let id = end.messageID,
                    delivery.device.provider != .apns || outcome != .delivered
                        || delivery.installationID == nil
                {
                    object["m"] = .string(id)
                }
                return .object(object)
            }
        )
    }
}
