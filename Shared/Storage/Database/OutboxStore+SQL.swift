// A backlog grows from nothing to 100,000 rows in seconds, faster than its statistics. A statement that was
// planned for an empty table must not read all rows then, nor the dead ones that a claim leaves. So all
// statements use `IndexPlan`, and leave the planner one index each:
//
// - Ranges of a queue are compared as rows, and sorted by all columns of `outbox_queues`. An equal `queue`
//   would also allow `outbox_due`, which has the records of all apps.
// - Rows are found again by `ctid`, which other transactions cannot change while the row is locked.
extension OutboxStore {
    /// Whether a row has no order key or is the first of its key.
    private static let isFirst = """
        (order_key IS NULL OR id = (SELECT e.id FROM outbox e
            WHERE e.order_key IS NOT NULL AND (e.order_key, e.id) >= (w.order_key, 0)
            ORDER BY e.order_key, e.id LIMIT 1))
        """

    /// `heads` skips from queue to queue and counts those with due records: their number is the cost of a
    /// claim, not the number of records. A record that is not due, such as a claimed one, may be the first
    /// of a queue only if all are. `shares` takes an equal part of each queue, `long` is the queues that
    /// have more, and `rest` gives them the parts that others left.
    static let claimSQL = """
        WITH RECURSIVE heads AS (
            (SELECT queue, due_at, (due_at <= now())::int AS number FROM outbox
                WHERE queue >= $3 ORDER BY queue, due_at, id LIMIT 1)
            UNION ALL
            SELECT n.queue, n.due_at, h.number + (n.due_at <= now())::int
            FROM heads h CROSS JOIN LATERAL (SELECT queue, due_at FROM outbox o
                WHERE o.queue > h.queue ORDER BY queue, due_at, id LIMIT 1) n
            WHERE h.number <= $1
        ), turns AS MATERIALIZED (
            SELECT queue, due_at FROM heads WHERE due_at <= now() AND number <= $1
        ), part AS MATERIALIZED (
            SELECT $1 / greatest(count(*), 1) AS size FROM turns
        ), shares AS MATERIALIZED (
            SELECT f.* FROM turns t CROSS JOIN LATERAL (
                SELECT ctid, id, queue, due_at FROM outbox w
                WHERE (queue, due_at) >= (t.queue, t.due_at)
                    AND (queue, due_at) <= (t.queue, now()) AND \(isFirst)
                ORDER BY queue, due_at, id LIMIT (SELECT size FROM part)
                FOR UPDATE SKIP LOCKED) f
        ), long AS MATERIALIZED (
            SELECT queue, max(due_at) AS due_at,
                (array_agg(id ORDER BY due_at DESC, id DESC))[1] AS id
            FROM shares GROUP BY queue HAVING count(*) >= (SELECT size FROM part)
        ), rest AS MATERIALIZED (
            SELECT f.ctid FROM long l CROSS JOIN LATERAL (
                SELECT ctid FROM outbox w
                WHERE (queue, due_at, id) > (l.queue, l.due_at, l.id)
                    AND (queue, due_at) <= (l.queue, now()) AND \(isFirst)
                ORDER BY queue, due_at, id
                LIMIT ($1 - (SELECT count(*) FROM shares)) / (SELECT count(*) FROM long)
                FOR UPDATE SKIP LOCKED) f
        )
        UPDATE outbox o SET due_at = now() + make_interval(secs => $2)
        WHERE o.ctid = ANY (ARRAY(SELECT ctid FROM shares UNION ALL SELECT ctid FROM rest))
        RETURNING o.id, o.due_at, o.kafka_topic, o.key, o.value, o.headers, o.order_key, o.queue,
            EXISTS (SELECT FROM long) AS has_more,
            (SELECT max(queue) FROM heads WHERE number > $1) AS next_queue
        """

    static let finishSQL = """
        WITH said AS MATERIALIZED (
            SELECT o.ctid, s.verdict, o.due_at = s.claim AS is_ours
            FROM unnest($1::bigint[], $2::timestamptz[], $3::smallint[])
                AS s(id, claim, verdict)
            CROSS JOIN LATERAL (SELECT ctid, due_at FROM outbox w
                WHERE w.id >= s.id AND w.id <= s.id ORDER BY w.id LIMIT 1 FOR UPDATE) o
        ), kept AS (
            DELETE FROM outbox
            WHERE ctid = ANY (ARRAY(SELECT ctid FROM said WHERE verdict = 0))
        )
        UPDATE outbox o SET
            refusals = o.refusals + CASE WHEN said.verdict = 2 THEN 1 ELSE 0 END,
            due_at = CASE WHEN said.verdict = 2 THEN now() + least(
                    interval '5 minutes', interval '1 second' * power(2, least(o.refusals, 10)))
                ELSE o.created_at END
        FROM said WHERE o.ctid = said.ctid AND said.verdict <> 0 AND said.is_ours
        """
}
