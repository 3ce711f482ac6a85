-- oldest usable: 1
--
-- Pushes to few devices that HTTP accepted can have their deliveries in their own row, once all
-- have ended. This version reads, unpacks, erases and exports that form; only a later one writes
-- it, so that no service of a version before this is asked for what it cannot see.

-- A list of objects, in the form of `event_pushes.deliveries`.
ALTER TABLE pushes ADD COLUMN deliveries jsonb;

-- For `Maintenance`, which forgets them at the age at which it drops a day of `deliveries`.
CREATE INDEX pushes_packed ON pushes (created_at) WHERE deliveries IS NOT NULL;

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
        CROSS JOIN LATERAL unnest(c.targets, c.messages) AS m(target, message)
    UNION ALL
    SELECT (p.created_at AT TIME ZONE 'UTC')::date, p.id, d.t COLLATE "C", p.app,
        CASE WHEN d.n THEN NULL ELSE d.t END COLLATE "C", d.p,
        coalesce(d.e, ''), '', NULL::text, NULL::text, d.s, coalesce(d.a, 1), NULL::bigint,
        d.c, d.r, d.m, NULL::json, NULL::integer, p.created_at, p.updated_at,
        d.t COLLATE "C", d.t COLLATE "C"
    FROM pushes p CROSS JOIN LATERAL jsonb_to_recordset(p.deliveries)
        AS d(t text, n boolean, p text, e text, s smallint, a integer, c integer, r text,
            m text);
