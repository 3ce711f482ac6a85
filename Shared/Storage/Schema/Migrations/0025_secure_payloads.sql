-- oldest usable: 1
--
-- Secure payloads: their content and who read it, the devices and secrets that prove a reader, and
-- how many readers a push has had.
--
-- A service of the version before knows none of it. What it saves of installations voids readers by
-- the trigger all the same, and its pushes have had no readers.

-- `ends_at` is when the content goes: when it expires, or, of what is read once, when its
-- grace is over. Then it is nulled, and the bare row stays a while.
CREATE TABLE secure_payloads (
    id text COLLATE "C" PRIMARY KEY,
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    identity text COLLATE "C" NOT NULL,
    push_id uuid NOT NULL,
    content bytea,
    is_sealed boolean NOT NULL,
    read_once boolean NOT NULL,
    is_kept boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    expires_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL,
    read_at timestamptz,
    deleted_at timestamptz,
    CHECK (content IS NULL OR is_kept AND NOT is_sealed))
WITH (fillfactor = 85);

-- What is encrypted does not shrink, and which key it is under is read without the rest.
ALTER TABLE secure_payloads ALTER COLUMN content SET STORAGE EXTERNAL;

CREATE INDEX secure_payloads_identity
    ON secure_payloads (app, identity, created_at, id);

CREATE INDEX secure_payloads_app ON secure_payloads (app, created_at, id);

CREATE INDEX secure_payloads_kept ON secure_payloads (ends_at) WHERE is_kept;

CREATE INDEX secure_payloads_over ON secure_payloads (ends_at) WHERE NOT is_kept;

CREATE TABLE secure_sealed (
    payload text COLLATE "C" NOT NULL REFERENCES secure_payloads ON DELETE CASCADE,
    app text COLLATE "C" NOT NULL,
    installation text COLLATE "C" NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (payload, installation));

ALTER TABLE secure_sealed ALTER COLUMN content SET STORAGE EXTERNAL;

CREATE INDEX secure_sealed_installation ON secure_sealed (app, installation);

-- An empty installation: the identity itself, without a device.
CREATE TABLE secure_reads (
    payload text COLLATE "C" NOT NULL REFERENCES secure_payloads ON DELETE CASCADE,
    app text COLLATE "C" NOT NULL,
    installation text COLLATE "C" NOT NULL,
    read_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (payload, installation));

CREATE INDEX secure_reads_installation ON secure_reads (app, installation)
    WHERE installation <> '';

CREATE TABLE secure_keys (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    key text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    identity text COLLATE "C" NOT NULL,
    payload text COLLATE "C" NOT NULL,
    push_id uuid NOT NULL,
    expires_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, key));

CREATE INDEX secure_keys_identity ON secure_keys (app, identity);

CREATE INDEX secure_keys_created_at ON secure_keys (created_at);

CREATE TABLE secure_readers (
    app text COLLATE "C" NOT NULL,
    installation text COLLATE "C" NOT NULL,
    identity text COLLATE "C" NOT NULL,
    digest bytea NOT NULL UNIQUE,
    sealing_key bytea,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, installation),
    FOREIGN KEY (app, installation) REFERENCES installations (app, object_id)
        ON UPDATE CASCADE ON DELETE CASCADE);

CREATE INDEX secure_readers_sealing ON secure_readers (app, identity)
    WHERE sealing_key IS NOT NULL;

CREATE TABLE identity_secrets (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    identity text COLLATE "C" NOT NULL,
    stored text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, identity));

-- Whoever gets the device next must not read with the secret of the one before, nor the one
-- before again once he has it back.
CREATE FUNCTION carillon_void_reader() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $body$
BEGIN
    DELETE FROM secure_readers
    WHERE app = NEW.app AND installation IN (OLD.object_id, NEW.object_id);
    RETURN NULL;
END
$body$;

CREATE TRIGGER carillon_void_reader AFTER UPDATE OF identity ON installations
    FOR EACH ROW WHEN (OLD.identity IS DISTINCT FROM NEW.identity)
    EXECUTE FUNCTION carillon_void_reader();

ALTER TABLE pushes ADD COLUMN confirmed integer NOT NULL DEFAULT 0;

-- Callers that name no app mean one at most.
CREATE UNIQUE INDEX apps_secure_unnamed ON apps ((true))
    WHERE settings->'secure-unnamed' = 'true'::jsonb;
