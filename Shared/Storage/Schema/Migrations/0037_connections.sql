-- oldest usable: 1
--
-- Messages for devices that hold a connection of their own: the content once a push and variant, a
-- small row a device. A device is named by a digest of its app and `installationId`, which is its
-- bearer secret. Dispatchers write messages, connection nodes delete them when they are acknowledged.

CREATE TABLE connection_contents (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    push_id uuid NOT NULL,
    digest bytea NOT NULL,
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    event_id text NOT NULL,
    -- The push's `data` for this platform, JSON.
    body bytea NOT NULL,
    -- The channels that the push names, for the client's callback of a channel.
    channels text[] NOT NULL DEFAULT '{}',
    -- After this time it is looked up whether messages need it.
    keep_until timestamptz NOT NULL,
    UNIQUE (push_id, digest));

CREATE INDEX connection_contents_keep_until ON connection_contents (keep_until);

CREATE INDEX connection_contents_app ON connection_contents (app);

CREATE TABLE connection_messages (
    -- The order of a device's messages.
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    device bytea NOT NULL,
    -- The same on every repeat of the delivery.
    id uuid NOT NULL,
    content bigint NOT NULL,
    -- The installation's object id.
    target text COLLATE "C" NOT NULL,
    collapse text,
    stored_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    -- Whether `expires_at` is the push's own.
    has_own_expiry boolean NOT NULL,
    -- The first of the push's channels that the installation had.
    channel text COLLATE "C",
    -- A node that reads new rows by `seq` finds those that were committed late by this.
    tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
    UNIQUE (device, id));

CREATE INDEX connection_messages_device ON connection_messages (device, seq);

CREATE INDEX connection_messages_collapse ON connection_messages (device, collapse)
    WHERE collapse IS NOT NULL;

CREATE INDEX connection_messages_content ON connection_messages (content);

CREATE INDEX connection_messages_expires_at ON connection_messages (expires_at);

CREATE INDEX connection_messages_app ON connection_messages (app, target);

-- Where messages went, by app: kept = received + displaced + expired + waiting. Several rows an app,
-- so that writers do not wait for each other.
CREATE TABLE connection_counts (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    slot smallint NOT NULL,
    kept bigint NOT NULL DEFAULT 0,
    received bigint NOT NULL DEFAULT 0,
    displaced bigint NOT NULL DEFAULT 0,
    expired bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (app, slot));

-- The nodes that hold connections, with the open ones by app and dialect.
CREATE TABLE connection_nodes (
    node text PRIMARY KEY,
    seen_at timestamptz NOT NULL DEFAULT now(),
    open jsonb NOT NULL DEFAULT '{}');

-- The opens that LeanCloud's old SDKs report: of the app, and of these the ones by a push. The day is
-- UTC's. Several rows a day, so that writers do not wait for each other.
CREATE TABLE app_opens (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    day date NOT NULL,
    slot smallint NOT NULL,
    opens bigint NOT NULL DEFAULT 0,
    push_opens bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (app, day, slot));

CREATE INDEX app_opens_day ON app_opens (day);
