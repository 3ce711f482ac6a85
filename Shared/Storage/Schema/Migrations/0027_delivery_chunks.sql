-- oldest usable: 1
--
-- The deliveries that a checkpoint of a broadcast records as delivered: one row for all that have
-- the same provider, attempts and status, where each had one.
--
-- A service of the version before does not see them: what it counts of a push's deliveries is
-- without.

-- `targets` are installations; one that was erased is null there. `messages`, as many, are the
-- providers' ids of them; null where the provider's id is ours. The first and the last id are
-- those of the targets that are not erased.
CREATE TABLE delivery_chunks (
    day date NOT NULL,
    push_id uuid NOT NULL,
    first_id text COLLATE "C",
    last_id text COLLATE "C",
    app text COLLATE "C" NOT NULL,
    provider text NOT NULL,
    environment text NOT NULL,
    attempts integer NOT NULL,
    last_status integer,
    targets text[] COLLATE "C" NOT NULL,
    messages text[],
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL) PARTITION BY RANGE (day);

-- Ids are as good as random: trying to compress them costs more than writing them.
ALTER TABLE delivery_chunks ALTER COLUMN targets SET STORAGE EXTERNAL;

CREATE INDEX delivery_chunks_push ON delivery_chunks (push_id, first_id, last_id);

-- Only for days that nobody created in time.
CREATE TABLE delivery_chunks_default PARTITION OF delivery_chunks DEFAULT;

-- Who looks for a target says also that it lies from `first_id` to `last_id`: then only the
-- chunks are read that may have it.
CREATE OR REPLACE VIEW all_deliveries AS
    SELECT day, push_id, target, app, installation_id, provider, environment, token, locale,
        apns_topic, state, attempts, owner, last_status, last_reason, provider_message_id,
        template_values, badge, created_at, updated_at, target AS first_id, target AS last_id
    FROM deliveries
    UNION ALL
    SELECT e.day, e.id, d.t COLLATE "C", e.app,
        CASE WHEN d.n THEN NULL ELSE d.t END COLLATE "C", d.p,
        coalesce(d.e, ''), '', NULL::text, NULL::text, d.s, coalesce(d.a, 1), NULL::bigint,
        d.c, d.r, d.m, NULL::json, NULL::integer, e.created_at, e.finished_at,
        d.t COLLATE "C", d.t COLLATE "C"
    FROM event_pushes e CROSS JOIN LATERAL jsonb_to_recordset(e.deliveries)
        AS d(t text, n boolean, p text, e text, s smallint, a integer, c integer, r text,
            m text)
    UNION ALL
    SELECT c.day, c.push_id, coalesce(m.target, 'erased') COLLATE "C", c.app,
        m.target COLLATE "C", c.provider, c.environment, '', NULL::text, NULL::text,
        1::smallint, c.attempts, NULL::bigint, c.last_status, NULL::text, m.message,
        NULL::json, NULL::integer, c.created_at, c.updated_at, c.first_id, c.last_id
    FROM delivery_chunks c
        CROSS JOIN LATERAL unnest(c.targets, c.messages) AS m(target, message);
