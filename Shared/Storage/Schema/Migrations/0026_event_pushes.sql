-- oldest usable: 1
--
-- Events for few devices, written once, as they ended: the push and its deliveries are one row,
-- which goes with its day.
--
-- A service of the version before does not see them: its lists and answers are without. What comes
-- to it a second time it takes for known all the same, by the trigger.

-- `deliveries` is a list of objects: "t" the target, "n" true where it is no installation, "p"
-- the provider, "e" the environment, "s" the state, "a" attempts, "c" the last status, "r" the
-- last reason, "m" the provider's message id; what is not there is null, or not said: one
-- attempt, no environment. The key begins with the id, which is looked for in every day.
CREATE TABLE event_pushes (
    id uuid NOT NULL,
    day date NOT NULL,
    app text COLLATE "C" NOT NULL,
    event_source text NOT NULL,
    event_id text NOT NULL,
    request json NOT NULL,
    notes jsonb,
    is_sandbox boolean NOT NULL,
    delivered smallint NOT NULL,
    failed smallint NOT NULL,
    expired smallint NOT NULL,
    suppressed smallint NOT NULL,
    in_doubt smallint NOT NULL,
    invalid_tokens smallint NOT NULL,
    deliveries jsonb NOT NULL,
    failures jsonb,
    expires_at timestamptz,
    created_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    PRIMARY KEY (id, day)) PARTITION BY RANGE (day);

CREATE INDEX event_pushes_event ON event_pushes (event_id);

CREATE INDEX event_pushes_app ON event_pushes (app, created_at);

-- Only for days that nobody created in time.
CREATE TABLE event_pushes_default PARTITION OF event_pushes DEFAULT;

-- An event that is a push already does not become one again, whoever plans it.
CREATE FUNCTION carillon_known_event() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $body$
BEGIN
    IF EXISTS (SELECT FROM event_pushes WHERE id = NEW.push_id) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END
$body$;

CREATE TRIGGER carillon_known_event BEFORE INSERT ON event_keys
    FOR EACH ROW EXECUTE FUNCTION carillon_known_event();

-- Whoever reads pushes or deliveries reads these. Whoever changes one of the others makes it
-- rows first (`EventPushes.unpack`).
CREATE VIEW all_pushes AS
    SELECT id, app, event_source, event_id, request, status, error, notes, lane, targeted,
        delivered, failed, expired, suppressed, in_doubt, pending, invalid_tokens, confirmed,
        failures, environment, expires_at, release_at, schedule_id, is_waiting, accepted_at,
        created_at, updated_at, finished_at, hidden_at
    FROM pushes
    UNION ALL
    SELECT id, app, event_source, event_id, request, 'done'::text, NULL::text,
        coalesce(notes, '{}'::jsonb), 0::smallint,
        (delivered + failed + expired + suppressed + in_doubt)::bigint, delivered::bigint,
        failed::bigint, expired::bigint, suppressed::bigint, in_doubt::bigint, 0::bigint,
        invalid_tokens::bigint, 0, failures,
        CASE WHEN is_sandbox THEN 'sandbox'::text ELSE 'production'::text END, expires_at,
        NULL::timestamptz, NULL::bigint, false, NULL::timestamptz, created_at, finished_at,
        finished_at, NULL::timestamptz
    FROM event_pushes;

-- A push is looked for in it by LATERAL, and with its day.
CREATE VIEW all_deliveries AS
    SELECT day, push_id, target, app, installation_id, provider, environment, token, locale,
        apns_topic, state, attempts, owner, last_status, last_reason, provider_message_id,
        template_values, badge, created_at, updated_at
    FROM deliveries
    UNION ALL
    SELECT e.day, e.id, d.t COLLATE "C", e.app,
        CASE WHEN d.n THEN NULL ELSE d.t END COLLATE "C", d.p,
        coalesce(d.e, ''), '', NULL::text, NULL::text, d.s, coalesce(d.a, 1), NULL::bigint,
        d.c, d.r, d.m, NULL::json, NULL::integer, e.created_at, e.finished_at
    FROM event_pushes e CROSS JOIN LATERAL jsonb_to_recordset(e.deliveries)
        AS d(t text, n boolean, p text, e text, s smallint, a integer, c integer, r text,
            m text);
