-- oldest usable: 1
--
-- Keys that were replaced and are still accepted for a while, what was done with master keys, and
-- erasures that are under way.

CREATE TABLE retired_keys (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    kind text NOT NULL CHECK (kind IN ('app', 'master')),
    digest bytea NOT NULL,
    sealed bytea NOT NULL,
    valid_until timestamptz NOT NULL,
    PRIMARY KEY (app, kind, digest));

-- An app key names its app by itself.
CREATE UNIQUE INDEX retired_keys_digest ON retired_keys (digest) WHERE kind = 'app';

CREATE INDEX retired_keys_valid_until ON retired_keys (valid_until);

-- No reference to `apps`: what was done to an app outlives it.
CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app text COLLATE "C" NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    targets text[] NOT NULL DEFAULT '{}',
    address text,
    status integer NOT NULL,
    detail jsonb NOT NULL DEFAULT '{}',
    at timestamptz NOT NULL DEFAULT now());

CREATE INDEX audit_app ON audit (app, at);

CREATE INDEX audit_at ON audit (at);

CREATE INDEX audit_targets ON audit USING gin (targets);

-- The names of what is being erased, until it is: an erasure that was cut short goes on
-- from here.
CREATE TABLE erasures (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    kind text NOT NULL,
    id text COLLATE "C" NOT NULL,
    names jsonb NOT NULL,
    counts jsonb NOT NULL DEFAULT '{}',
    cursor_at timestamptz,
    cursor_id uuid,
    started_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, kind, id));
