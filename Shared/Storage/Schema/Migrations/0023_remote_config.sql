-- oldest usable: 1
--
-- Remote config: versions of templates and how they stand, what is announced, who may publish, by
-- which names an app is known elsewhere, and which version an installation was given.
--
-- A row of the outbox may carry an order key. A relay of the version before does not know it, and
-- brings such rows as any others; what they say is right in any order.

-- A template is `json`, not `jsonb`: its conditions and parameters keep their order. Its time
-- is one that all can read and reckon with, whoever writes it.
CREATE TABLE config_versions (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    namespace text COLLATE "C" NOT NULL
        CHECK (namespace IN ('firebase', 'firebase-server')),
    version bigint NOT NULL CHECK (version BETWEEN 1 AND 9007199254740992),
    template json NOT NULL,
    description text NOT NULL DEFAULT '',
    update_type text NOT NULL DEFAULT 'INCREMENTAL_UPDATE',
    update_origin text NOT NULL DEFAULT 'REST_API',
    user_name text NOT NULL DEFAULT session_user,
    user_email text NOT NULL DEFAULT session_user || '@postgres',
    rollback_source bigint,
    published_at timestamptz NOT NULL DEFAULT clock_timestamp()
        CHECK (published_at >= '0001-01-01T00:00:00Z'
            AND published_at < '10000-01-01T00:00:00Z'),
    state smallint NOT NULL DEFAULT 0,
    reason text,
    PRIMARY KEY (app, namespace, version));

CREATE INDEX config_versions_unchecked ON config_versions (published_at)
    WHERE state = 0;

CREATE INDEX config_versions_published_at ON config_versions (published_at);

CREATE TABLE config_heads (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    namespace text COLLATE "C" NOT NULL,
    last_version bigint NOT NULL DEFAULT 0,
    current_version bigint NOT NULL DEFAULT 0,
    revision bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (app, namespace));

CREATE INDEX config_heads_revision ON config_heads (revision);

-- One row. Whoever changes what is current takes the next revision, last of all, and holds
-- it until he commits: so revisions are in the order of commits.
CREATE TABLE config_clock (revision bigint NOT NULL);

INSERT INTO config_clock VALUES (0);

CREATE TABLE config_announcements (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    namespace text COLLATE "C" NOT NULL,
    announced_version bigint NOT NULL DEFAULT 0,
    announced_at timestamptz,
    PRIMARY KEY (app, namespace));

-- What is to be announced. Whoever publishes writes it down without a time: it counts from
-- when it is seen, which is after its commit, however long that took.
CREATE TABLE config_pending (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    namespace text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    update_type text NOT NULL,
    seen_at timestamptz,
    PRIMARY KEY (app, namespace, version));

CREATE INDEX config_pending_seen_at ON config_pending (seen_at);

CREATE TABLE config_tokens (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    name text COLLATE "C" NOT NULL,
    digest bytea NOT NULL UNIQUE,
    read_only boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, name));

CREATE TABLE app_links (
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, name));

CREATE INDEX app_links_app ON app_links (app);

CREATE TABLE config_fetched (
    app text COLLATE "C" NOT NULL,
    installation text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    fetched_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, installation),
    FOREIGN KEY (app, installation) REFERENCES installations (app, object_id)
        ON UPDATE CASCADE ON DELETE CASCADE);

ALTER TABLE outbox ADD COLUMN order_key text COLLATE "C";

CREATE INDEX outbox_order ON outbox (order_key, id) WHERE order_key IS NOT NULL;

-- Both find their tables wherever the caller looks for his own.
CREATE FUNCTION carillon_note_config() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $body$
BEGIN
    INSERT INTO config_heads AS h (app, namespace, last_version)
    VALUES (NEW.app, NEW.namespace, NEW.version)
    ON CONFLICT (app, namespace) DO UPDATE
        SET last_version = greatest(h.last_version, EXCLUDED.last_version);
    PERFORM pg_notify('carillon_config_rows', '');
    RETURN NULL;
END
$body$;

CREATE TRIGGER carillon_note_config AFTER INSERT ON config_versions
    FOR EACH ROW WHEN (NEW.state = 0) EXECUTE FUNCTION carillon_note_config();

CREATE FUNCTION carillon_publish_config(
    app text, namespace text, template json, description text DEFAULT '')
RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $body$
#variable_conflict use_column
DECLARE number bigint;
BEGIN
    SELECT coalesce(max(known.version), 0) + 1 INTO number
    FROM (SELECT a.announced_version AS version FROM config_announcements a
        WHERE a.app = $1 AND a.namespace = $2
        UNION ALL
        SELECT p.version FROM config_pending p
        WHERE p.app = $1 AND p.namespace = $2) known;
    INSERT INTO config_heads AS h (app, namespace, last_version)
    VALUES ($1, $2, number)
    ON CONFLICT (app, namespace) DO UPDATE
        SET last_version = greatest(h.last_version + 1, EXCLUDED.last_version)
    RETURNING h.last_version INTO number;
    INSERT INTO config_versions (app, namespace, version, template, description)
    VALUES ($1, $2, number, $3, coalesce($4, ''));
    RETURN number;
END
$body$;
