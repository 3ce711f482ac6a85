-- oldest usable: 1
--
-- Everything that the first version keeps.

CREATE TABLE apps (
    id text COLLATE "C" PRIMARY KEY,
    id_folded text COLLATE "C" NOT NULL UNIQUE,
    app_key_sealed bytea NOT NULL,
    app_key_digest bytea NOT NULL UNIQUE,
    master_key_sealed bytea NOT NULL,
    master_key_digest bytea NOT NULL,
    settings jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now());

CREATE TABLE credentials (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    provider text NOT NULL,
    name text NOT NULL DEFAULT '',
    sealed bytea NOT NULL,
    summary jsonb NOT NULL DEFAULT '{}',
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, provider, name));

CREATE TABLE installations (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    object_id text COLLATE "C" NOT NULL,
    device_type text NOT NULL,
    provider text,
    token text,
    token_hash bytea,
    environment text NOT NULL DEFAULT '',
    identity text,
    channels text[] NOT NULL DEFAULT '{}',
    installation_id text,
    badge integer NOT NULL DEFAULT 0,
    time_zone text,
    locale text,
    apns_topic text,
    vendor text,
    device_profile text,
    fields jsonb NOT NULL DEFAULT '{}',
    valid boolean NOT NULL DEFAULT true,
    invalid_reason text,
    token_updated_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, object_id),
    CHECK ((token IS NULL) = (token_hash IS NULL)),
    CHECK (token IS NULL OR provider IS NOT NULL));

CREATE UNIQUE INDEX installations_token
    ON installations (app, provider, environment, token_hash)
    WHERE token_hash IS NOT NULL;

CREATE INDEX installations_token_hash ON installations (app, provider, token_hash)
    WHERE token_hash IS NOT NULL;

CREATE UNIQUE INDEX installations_installation_id
    ON installations (app, installation_id) WHERE installation_id IS NOT NULL;

CREATE INDEX installations_channels ON installations USING gin (channels);

CREATE INDEX installations_identity ON installations (app, identity)
    WHERE identity IS NOT NULL;

CREATE TABLE event_keys (
    app text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    push_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, source, id));

CREATE INDEX event_keys_created_at ON event_keys (created_at);

-- The request is `json`, not `jsonb`: it is kept as it came, and a text with \u0000 in
-- it, which `jsonb` refuses, must not fail the batch it came in.
CREATE TABLE pushes (
    id uuid PRIMARY KEY,
    app text COLLATE "C" NOT NULL,
    event_source text NOT NULL,
    event_id text NOT NULL,
    request json NOT NULL,
    status text NOT NULL,
    error text,
    notes jsonb NOT NULL DEFAULT '{}',
    lane smallint NOT NULL DEFAULT 0,
    targeted bigint NOT NULL DEFAULT 0,
    delivered bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    expired bigint NOT NULL DEFAULT 0,
    suppressed bigint NOT NULL DEFAULT 0,
    in_doubt bigint NOT NULL DEFAULT 0,
    pending bigint NOT NULL DEFAULT 0,
    invalid_tokens bigint NOT NULL DEFAULT 0,
    cursor text,
    planned_until timestamptz,
    planner bigint,
    expires_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz);

CREATE INDEX pushes_planning ON pushes (lane, created_at)
    WHERE status = 'planning';

CREATE INDEX pushes_planner ON pushes (planner) WHERE planner IS NOT NULL;

CREATE INDEX pushes_event ON pushes (event_id);

CREATE INDEX pushes_app ON pushes (app, created_at);

CREATE INDEX pushes_created_at ON pushes (created_at);

CREATE TABLE deliveries (
    day date NOT NULL,
    push_id uuid NOT NULL,
    target text COLLATE "C" NOT NULL,
    app text COLLATE "C" NOT NULL,
    installation_id text COLLATE "C",
    provider text NOT NULL,
    environment text NOT NULL DEFAULT '',
    environment_explicit boolean NOT NULL DEFAULT false,
    token text NOT NULL,
    locale text,
    apns_topic text,
    lane smallint NOT NULL,
    state smallint NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0,
    unanswered integer NOT NULL DEFAULT 0,
    due_at timestamptz NOT NULL DEFAULT now(),
    owner bigint,
    last_status integer,
    last_reason text,
    provider_message_id text,
    expires_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (day, push_id, target)) PARTITION BY RANGE (day);

CREATE INDEX deliveries_due ON deliveries (lane, due_at)
    WHERE state = 0 AND owner IS NULL;

CREATE INDEX deliveries_owner ON deliveries (owner)
    WHERE state = 0 AND owner IS NOT NULL;

-- Only for days that nobody created in time.
CREATE TABLE deliveries_default PARTITION OF deliveries DEFAULT;

CREATE TABLE dispatchers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    lease_until timestamptz NOT NULL);

CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kafka_topic text NOT NULL,
    key bytea,
    value bytea NOT NULL,
    headers jsonb NOT NULL DEFAULT '[]',
    created_at timestamptz NOT NULL DEFAULT now());
