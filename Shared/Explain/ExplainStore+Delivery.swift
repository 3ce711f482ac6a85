import Cryptography
import JSON
import Postgres
import PushCore
import PushStorage
import Storage

/// The facts about a push and its delivery to one device.
extension ExplainStore {
    /// Returns the time at which the audience was chosen; `nil` if it was not yet.
    func audienceTime(of push: StoredPush) async throws -> Instant? {
        let row = try await database.singles.execute(
            "SELECT planned_until FROM pushes WHERE id = $1",
            [.uuid(push.id)]
        ).first
        // A push of the fast path that came from Kafka has no such row; it was planned at once.
        guard let row else { return push.createdAt }
        return try row.instantOrNil("planned_until")
    }

    /// Returns the delivery to the first of the targets that has one.
    func delivery(
        of push: StoredPush,
        to targets: [String]
    ) async throws -> ExplainFacts.Delivery? {
        for target in targets {
            let key: [PostgresValue] = [
                .text(push.createdAt.day), .uuid(push.id), .text(target),
            ]
            let found = try await database.singles.execute([
                (Self.deliverySQL, key), (Self.rowSQL, key),
            ])
            guard let row = found[0].first else { continue }
            var delivery = try Self.delivery(row)
            delivery.isToTopic = target.hasPrefix(AudienceTopic.targetPrefix)
            delivery.expiresAt = push.expiresAt
            if delivery.provider == .apns, delivery.attempts > 0, delivery.messageID == nil {
                delivery.messageID = Self.apnsID(of: push.id, target)
            }
            if let row = found[1].first {
                delivery.dueAt =
                    delivery.state == .pending ? try row.instant("due_at") : nil
                delivery.expiresAt = try row.instantOrNil("expires_at") ?? push.expiresAt
                delivery.earlier = Self.attempts(try row.jsonOrNil("answers"), delivery.provider)
            }
            return delivery
        }
        return nil
    }

    /// Returns the `apns-id` of a delivery. It is Carillon's own, and often not stored.
    private static func apnsID(of pushID: String, _ target: String) -> String {
        let hasher = SHA256Hasher()
        var ids = NotificationIDs(pushID: pushID) { hasher.hash($0, into: &$1) }
        return ids.id(of: target)
    }

    private static let deliverySQL = """
        SELECT provider, environment, state, attempts, owner, last_status, last_reason,
            provider_message_id, updated_at
        FROM all_deliveries
        WHERE day = $1::date AND push_id = $2 AND first_id <= $3 AND last_id >= $3 AND target = $3
        LIMIT 1
        """

    /// The columns that only a row of `deliveries` has.
    private static let rowSQL = """
        SELECT due_at, expires_at, answers FROM deliveries
        WHERE day = $1::date AND push_id = $2 AND target = $3
        """

    private static func delivery(_ row: PostgresRow) throws -> ExplainFacts.Delivery {
        let name = try row.text("provider")
        guard let platform = Platform(rawValue: name) else {
            throw StorageError(.corrupt, "a delivery is for the unknown provider \(name)")
        }
        var delivery = ExplainFacts.Delivery(
            provider: platform,
            environment: PushEnvironment(rawValue: try row.text("environment")) ?? .none,
            state: DeliveryState(rawValue: try row.integer("state")) ?? .pending,
            attempts: try row.integer("attempts"),
            status: try row.integerOrNil("last_status"),
            reason: try row.textOrNil("last_reason"),
            messageID: try row.textOrNil("provider_message_id"),
            updatedAt: try row.instant("updated_at")
        )
        delivery.isOwned = try row.integerOrNil("owner") != nil
        return delivery
    }

    /// Reads the answers to attempts before the last one.
    static func attempts(_ json: JSONValue?, _ platform: Platform) -> [Explanation.Attempt] {
        (json?.array ?? []).compactMap { answer in
            guard let number = answer["n"]?.integer, let time = answer["t"]?.integer else {
                return nil
            }
            return Explanation.Attempt(
                number: number,
                provider: platform,
                status: answer["c"]?.integer,
                reason: answer["r"]?.string,
                at: Instant(milliseconds: Int64(time))
            )
        }
    }

    /// Whether deliveries of the push are stored, or none was ever made.
    func hasDeliveries(_ push: StoredPush) async throws -> Bool {
        guard push.ledger.targeted > push.ledger.pending else { return true }
        return try await database.singles.execute(
            """
            SELECT EXISTS (SELECT FROM deliveries WHERE day = $1::date AND push_id = $2)
                OR EXISTS (SELECT FROM delivery_chunks WHERE day = $1::date AND push_id = $2)
                OR EXISTS (SELECT FROM event_pushes WHERE id = $2)
                OR EXISTS (SELECT FROM pushes WHERE id = $2 AND deliveries IS NOT NULL)
                OR EXISTS (SELECT FROM shards WHERE push_id = $2 AND cancelled > 0) AS are_there
            """,
            [.text(push.createdAt.day), .uuid(push.id)]
        ).first?.boolean("are_there") ?? false
    }

    /// Returns the shard that covers an object id, one with the device as a member first.
    func shard(of pushID: String, _ id: String) async throws -> ExplainFacts.Shard? {
        try await database.singles.execute(
            """
            SELECT s.is_member, coalesce(s.cursor >= $2, false) AS is_passed, s.finished,
                s.owner IS NOT NULL AS is_owned, s.due_at, s.cancelled
            FROM (SELECT *, $2 = ANY (members) AS is_member FROM shards
                WHERE push_id = $1 AND lower_id < $2 AND (upper_id IS NULL OR upper_id >= $2)
                OFFSET 0) s
            ORDER BY s.is_member DESC NULLS LAST, s.finished, s.shard LIMIT 1
            """,
            [.uuid(pushID), .text(id)]
        ).first.flatMap { row -> ExplainFacts.Shard? in
            let isMember = try row.booleanOrNil("is_member")
            if isMember == false { return nil }
            return ExplainFacts.Shard(
                isMember: isMember,
                isPassed: try row.boolean("is_passed"),
                isFinished: try row.boolean("finished"),
                isOwned: try row.boolean("is_owned"),
                dueAt: try row.instant("due_at"),
                cancelled: try row.integer("cancelled")
            )
        }
    }

    func receipts(of push: StoredPush, _ id: String) async throws -> [ExplainFacts.Receipt] {
        try await database.singles.execute(
            """
            SELECT kind, min(at) AS at FROM push_receipts
            WHERE app = $1 AND target IN ($2, $3) AND kind IN (1, 2) AND who = $4
            GROUP BY kind ORDER BY 2
            """,
            [.text(push.app), .text(push.id), .text("event/" + push.eventID), .text(id)]
        ).rows.compactMap { row in
            guard let kind = ReceiptKind(rawValue: try row.integer("kind")) else { return nil }
            return ExplainFacts.Receipt(kind, at: try row.instant("at"))
        }
    }

    private static let maximumWaiting = 50

    /// Returns what keeps deliveries of the app from a provider: those that wait after a failed
    /// attempt, and the open circuit breaker of a dispatcher.
    func trouble(
        at platform: Platform,
        _ facts: ExplainFacts
    ) async throws -> ExplainFacts.Trouble? {
        let waiting = try await waiting(of: facts.app, at: platform)
        let open = try await database.instances.breaker(
            of: facts.app,
            at: platform,
            isSandbox: facts.isSandbox
        )
        guard let open else { return waiting }
        var trouble =
            waiting
            ?? ExplainFacts.Trouble(
                count: 0,
                since: open.since,
                status: nil,
                reason: nil,
                dueAt: max(open.retryAt, facts.asOf)
            )
        trouble.isBreaker = true
        trouble.since = min(trouble.since, open.since)
        return trouble
    }

    /// Returns the deliveries of an app that wait at a provider after a failed attempt: those of the
    /// next 50 that are due.
    private func waiting(
        of app: String,
        at platform: Platform
    ) async throws -> ExplainFacts.Trouble? {
        let rows = try await database.singles.execute(
            """
            SELECT w.* FROM unnest('{0, 1}'::smallint[]) AS l(lane) CROSS JOIN LATERAL (
                SELECT last_status, last_reason, updated_at, due_at, answers FROM deliveries
                WHERE state = \(DeliveryState.pending.sql) AND owner IS NULL AND lane = l.lane
                    AND app = $1 AND provider = $2
                ORDER BY due_at LIMIT \(Self.maximumWaiting)) w
            """,
            [.text(app), .text(platform.rawValue)]
        ).rows
        var trouble: ExplainFacts.Trouble?
        for row in rows {
            let reason = try row.textOrNil("last_reason")
            let status = try row.integerOrNil("last_status")
            guard reason != nil || status != nil else { continue }
            let first = Self.attempts(try row.jsonOrNil("answers"), platform).first?.at
            let since = try first ?? row.instant("updated_at")
            let dueAt = try row.instant("due_at")
            guard var known = trouble else {
                trouble = ExplainFacts.Trouble(
                    count: 1,
                    isMore: rows.count >= Self.maximumWaiting,
                    isBreaker: reason == LocalWait.breaker.rawValue,
                    since: since,
                    status: status,
                    reason: reason,
                    dueAt: dueAt
                )
                continue
            }
            known.count += 1
            known.since = min(known.since, since)
            if reason == LocalWait.breaker.rawValue { known.isBreaker = true }
            // A provider's own answer says more than that its breaker is open.
            if known.reason == LocalWait.breaker.rawValue || known.reason == nil {
                known.reason = reason
                known.status = status ?? known.status
            }
            trouble = known
        }
        return trouble
    }
}
