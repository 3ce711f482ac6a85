import JSON
import Postgres
import PushCore

extension FewDevicesStore {
    /// Writes pushes down as they ended: one row where all of one has ended (its own if HTTP accepted it), else
    /// the rows that any push has. One transaction, behind the fence of the session. What is known by now is
    /// left alone: the same event reached another replica at the same time, or the answer to an earlier
    /// commit was lost.
    ///
    /// It is one round trip, but where a token died, or somebody of these apps was erased since the look-up.
    ///
    /// - Parameters:
    ///   - session: Whose the deliveries become that are on their way.
    ///   - pushes: Each once.
    /// - Returns: What became of them.
    /// - Throws: `StorageError`: of kind `sessionLost` nothing was written; `isOfTheValues` where Postgres
    ///   will never take one of them.
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

    /// The same for pushes of which some may name erased subjects, or hold tokens that died: step by step,
    /// in one transaction.
    private func writeStepwise(
        _ pushes: [SentPush],
        _ fence: WritingFence
    ) async throws -> WrittenPushes {
        let key = try await database.erasureKey.bytes(in: database)
        return try await database.transaction { transaction in
            var written = WrittenPushes()
            let ground = try await transaction.pipeline(
                Self.ground(of: pushes, fence) + [ErasedNames.fencedApps(of: fence.apps)]
            )
            guard !ground[0].isEmpty, let fenced = ground.last?.rows else {
                throw StorageError.sessionLost
            }
            if !fenced.isEmpty {
                let names = Self.names(in: pushes)
                for place in try await ErasedNames.erased(names, in: fenced, key: key, transaction)
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

    /// What comes before the first row: the session, erasures, and who writes the same pushes. The first
    /// finds nothing where the session is lost.
    private static func ground(
        of pushes: [SentPush],
        _ fence: WritingFence
    ) -> [(String, [PostgresValue])] {
        [
            (SessionStore.holdSQL, [.integer(fence.session)]),
            ErasedNames.passBarrier(of: fence.apps), PushLock.take(pushes.map(\.push.id)),
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

    /// - Returns: What was written, and whether an erasure kept some of it back.
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

    private static func names(in pushes: [SentPush]) -> [ErasedNames.Candidate] {
        pushes.enumerated().flatMap { place, push in
            TextSet(push.push.names + push.deliveries.map(\.delivery.target)).map { name in
                ErasedNames.Candidate(
                    place: place,
                    app: push.push.app,
                    name: name,
                    atMicroseconds: push.createdAt.microseconds
                )
            }
        }
    }

    /// One delivery that went well, and nothing else to say: the other columns have their defaults.
    private static func plainRow(
        _ pushes: [SentPush],
        _ fence: WritingFence
    ) -> (String, [PostgresValue]) {
        let parameters =
            identity(pushes) + [
                .booleanArray(pushes.map { $0.push.request.environment == .sandbox }),
                .jsonArray(pushes.map(\.packed)),
                .timestampArray(pushes.map(\.createdAt.microseconds)),
            ]
        return fence.guarding(parameters) { isFree in
            """
            made AS (
                INSERT INTO event_pushes (id, day, app, event_source, event_id, request, is_sandbox,
                    deliveries, created_at, finished_at)
                SELECT i.id, (i.created_at AT TIME ZONE 'UTC')::date, i.app, i.source, i.event_id,
                    i.request, i.is_sandbox, i.deliveries, i.created_at,
                    date_trunc('milliseconds', now())
                FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::json[],
                    $6::boolean[], $7::jsonb[], $8::timestamptz[])
                    AS i(id, app, source, event_id, request, is_sandbox, deliveries, created_at)
                WHERE \(isFree)
                    AND NOT EXISTS (SELECT FROM pushes p WHERE p.id = i.id OFFSET 0)
                RETURNING id
            )
            """
        }
    }

    private static func oneRow(
        _ pushes: [SentPush],
        _ fence: WritingFence
    ) -> (String, [PostgresValue]) {
        let books = pushes.map { BooksChange($0.deliveries) }
        func counts(_ outcome: Outcome) -> PostgresValue {
            .integerArray(books.map { $0.ledger[outcome] })
        }
        let parameters =
            identity(pushes) + [
                .jsonArray(pushes.map { $0.push.notes.isEmpty ? nil : .object($0.push.notes) }),
                .booleanArray(pushes.map { $0.push.request.environment == .sandbox }),
                counts(.delivered), counts(.failed), counts(.expired), counts(.suppressed),
                counts(.inDoubt), .integerArray(books.map(\.ledger.invalidTokens)),
                .jsonArray(pushes.map(\.packed)), .jsonArray(books.map(\.failures.json)),
                .timestampArray(pushes.map { $0.push.expiresAt?.microseconds }),
                .timestampArray(pushes.map(\.createdAt.microseconds)),
            ]
        return fence.guarding(parameters) { isFree in
            """
            made AS (
                INSERT INTO event_pushes (id, day, app, event_source, event_id, request, notes,
                    is_sandbox, delivered, failed, expired, suppressed, in_doubt, invalid_tokens,
                    deliveries, failures, expires_at, created_at, finished_at)
                SELECT i.id, (i.created_at AT TIME ZONE 'UTC')::date, i.app, i.source, i.event_id,
                    i.request, i.notes, i.is_sandbox, i.delivered, i.failed, i.expired, i.suppressed,
                    i.in_doubt, i.invalid_tokens, i.deliveries, i.failures, i.expires_at,
                    i.created_at, date_trunc('milliseconds', now())
                FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::json[], $6::jsonb[],
                    $7::boolean[], $8::smallint[], $9::smallint[], $10::smallint[], $11::smallint[],
                    $12::smallint[], $13::smallint[], $14::jsonb[], $15::jsonb[], $16::timestamptz[],
                    $17::timestamptz[])
                    AS i(id, app, source, event_id, request, notes, is_sandbox, delivered, failed,
                        expired, suppressed, in_doubt, invalid_tokens, deliveries, failures,
                        expires_at, created_at)
                WHERE \(isFree)
                    AND NOT EXISTS (SELECT FROM pushes p WHERE p.id = i.id OFFSET 0)
                RETURNING id
            )
            """
        }
    }

    /// `$1` to `$5`.
    private static func identity(_ pushes: [SentPush]) -> [PostgresValue] {
        [
            .uuidArray(pushes.map(\.push.id)), .textArray(pushes.map(\.push.app)),
            .textArray(pushes.map(\.push.eventSource)), .textArray(pushes.map(\.push.eventID)),
            .jsonArray(pushes.map { .object($0.push.object) }),
        ]
    }

    // One that was cancelled on its way stays cancelled; what is left of it is due at once, to be
    // suppressed by whoever claims it. IS TRUE: asked of a hashed list, not joined, for which `IndexPlan`
    // would leave no way but to read all for each.
    private static func rows(
        _ pushes: [SentPush],
        _ fence: WritingFence
    ) -> (String, [PostgresValue]) {
        let books = pushes.map { BooksChange($0.deliveries) }
        func counts(_ outcome: Outcome) -> PostgresValue {
            .integerArray(books.map { $0.ledger[outcome] })
        }
        let isPacked = pushes.map { PushLedger.form(of: $0) == .packed }
        let all = zip(pushes, isPacked).flatMap { $1 ? [] : $0.deliveries }
        let parameters =
            identity(pushes) + [
                .jsonArray(pushes.map { .object($0.push.notes) }),
                .textArray(pushes.map(\.push.request.environment.rawValue)),
                .timestampArray(pushes.map { $0.push.expiresAt?.microseconds }),
                counts(.delivered), counts(.failed), counts(.expired), counts(.suppressed),
                counts(.inDoubt), .integerArray(books.map(\.ledger.invalidTokens)),
                .integerArray(books.map(\.ledger.pending)), .jsonArray(books.map(\.failures.json)),
                .timestampArray(pushes.map(\.createdAt.microseconds)),
                .textArray(all.map(\.delivery.key.day)), .uuidArray(all.map(\.delivery.pushID)),
                .textArray(all.map(\.delivery.target)), .textArray(all.map(\.delivery.app)),
                .textArray(all.map(\.delivery.installationID)),
                .textArray(all.map(\.delivery.device.provider.rawValue)),
                .textArray(all.map(\.delivery.device.environment.rawValue)),
                .booleanArray(all.map(\.delivery.device.environmentIsExplicit)),
                .textArray(all.map(\.delivery.device.token)),
                .textArray(all.map(\.delivery.locale)), .textArray(all.map(\.delivery.apnsTopic)),
                .timestampArray(all.map { $0.delivery.expiresAt?.microseconds }),
                .timestampArray(all.map(\.delivery.createdAt.microseconds)),
                .jsonArray(all.map { $0.delivery.values.map(JSONValue.object) }),
                .integerArray(all.map(\.state.rawValue)), .integerArray(all.map(\.attempts)),
                .integerArray(all.map(\.unanswered)), .integerArray(all.map { $0.end?.status }),
                // Why one in flight is not to be sent at all, as long as no answer says more.
                .textArray(all.map { $0.end.map(\.reason) ?? $0.delivery.suppression }),
                .textArray(all.map { $0.end?.outcome == nil ? nil : $0.end?.messageID }),
                .timestampArray(all.map { $0.end?.decision.dueAt?.microseconds }),
                .booleanArray(all.map { $0.end == nil }),
                .jsonArray(
                    zip(pushes, isPacked).map { $1 && !$0.deliveries.isEmpty ? $0.packed : nil }
                ),
            ]
        return fence.guarding(parameters) { isFree in
            """
            made AS (
                INSERT INTO pushes (id, app, event_source, event_id, request, notes, lane, environment,
                    expires_at, status, targeted, delivered, failed, expired, suppressed, in_doubt,
                    invalid_tokens, pending, failures, planned_until, created_at, updated_at,
                    finished_at, deliveries)
                SELECT i.id, i.app, i.source, i.event_id, i.request, coalesce(i.notes, '{}'), 0,
                    i.environment, i.expires_at,
                    CASE WHEN i.pending = 0 THEN \(PushStatus.done.sql) ELSE \(PushStatus.sending.sql) END,
                    i.delivered + i.failed + i.expired + i.suppressed + i.in_doubt + i.pending,
                    i.delivered, i.failed, i.expired, i.suppressed, i.in_doubt, i.invalid_tokens,
                    i.pending, i.failures, i.created_at, i.created_at, now(),
                    CASE WHEN i.pending = 0 THEN now() END, i.deliveries
                FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::json[], $6::jsonb[],
                    $7::text[], $8::timestamptz[], $9::bigint[], $10::bigint[], $11::bigint[],
                    $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::jsonb[],
                    $17::timestamptz[], $40::jsonb[])
                    AS i(id, app, source, event_id, request, notes, environment, expires_at, delivered,
                        failed, expired, suppressed, in_doubt, invalid_tokens, pending, failures,
                        created_at, deliveries)
                WHERE \(isFree)
                ON CONFLICT (id) DO UPDATE SET \(PushBooks.sentAtOnce), planned_until = now(),
                    created_at = excluded.created_at, accepted_at = pushes.created_at,
                    deliveries = excluded.deliveries, updated_at = now()
                WHERE pushes.planned_until IS NULL
                    AND pushes.status IN (\(PushStatus.queued.sql), \(PushStatus.cancelled.sql))
                RETURNING id, status
            ), ended AS (
                INSERT INTO deliveries (day, push_id, target, app, installation_id, provider,
                    environment, environment_explicit, token, locale, apns_topic, lane, expires_at,
                    created_at, template_values, state, attempts, unanswered, last_status,
                    last_reason, provider_message_id, due_at, owner)
                SELECT d.day, d.push_id, d.target, d.app, d.installation_id, d.provider,
                    d.environment, d.environment_explicit, d.token, d.locale, d.apns_topic, 0,
                    d.expires_at, d.created_at, d.template_values, d.state, d.attempts, d.unanswered,
                    d.status, d.reason, d.message_id,
                    CASE WHEN (d.push_id IN (SELECT id FROM made
                            WHERE status = \(PushStatus.cancelled.sql))) IS TRUE THEN now()
                        ELSE coalesce(d.due_at, now()) END,
                    CASE WHEN d.is_open THEN $\(parameters.count + 1)::bigint END
                FROM unnest($18::date[], $19::uuid[], $20::text[], $21::text[], $22::text[],
                    $23::text[], $24::text[], $25::boolean[], $26::text[], $27::text[], $28::text[],
                    $29::timestamptz[], $30::timestamptz[], $31::json[], $32::smallint[],
                    $33::integer[], $34::integer[], $35::integer[], $36::text[], $37::text[],
                    $38::timestamptz[], $39::boolean[])
                    AS d(day, push_id, target, app, installation_id, provider, environment,
                        environment_explicit, token, locale, apns_topic, expires_at, created_at,
                        template_values, state, attempts, unanswered, status, reason, message_id,
                        due_at, is_open)
                WHERE (d.push_id IN (SELECT id FROM made)) IS TRUE
            )
            """
        }
    }
}

/// What every row that is written waits for, and stands behind.
private struct WritingFence {
    let session: Int
    let apps: [String]
    /// Names that were erased after this keep all back; `nil`: somebody has looked.
    private var erasedAfter: Int64?
    private let days: EventDays

    /// `nil` without pushes.
    init?(of pushes: [SentPush], _ session: Int, _ now: Instant) {
        let times = pushes.map(\.createdAt).sorted()
        guard let first = times.first, let last = times.last else { return nil }
        self.session = session
        apps = Set(pushes.map(\.push.app)).sorted()
        erasedAfter = first.microseconds - ErasedNames.clockDifferenceMicroseconds
        days = EventDays(from: first, back: 1, to: max(last, now))
    }

    /// The same for those that name no erased subject.
    var open: WritingFence {
        var fence = self
        fence.erasedAfter = nil
        return fence
    }

    /// A statement that writes rows `i` as `made`. It returns their ids: none if the session is lost, and
    /// null if names were erased.
    ///
    /// An event is looked for in the days around: two replicas may have looked it up on both sides of a
    /// midnight, and each day may have a partition of its own. OFFSET 0 has each id looked for by itself: as
    /// a join with a table that is still empty, it would be planned to read all of it.
    ///
    /// - Parameters:
    ///   - parameters: Those of `insertion`; behind them come the session, the apps and a time.
    ///   - insertion: From the condition of a row.
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

    /// Whether it is one row that says nothing but that its one delivery went well.
    fileprivate var isPlain: Bool {
        guard PushLedger.form(of: self) == .row, deliveries.count == 1, let end = deliveries[0].end
        else { return false }
        return end.outcome == .delivered && end.tokenDiedAt == nil && push.expiresAt == nil
            && push.notes.isEmpty
    }

    /// As `event_pushes.deliveries` has them.
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
                // APNs' is the one that it was sent with, which follows from push and target.
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
