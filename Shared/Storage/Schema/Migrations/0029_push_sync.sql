-- oldest usable: 1
--
-- Push sync: pools of identities and what is linked to them, datasets with their records, who wants
-- to hear of them, and what they are to be told.
--
-- Who changes a dataset locks its row first, then its records, its window, its subscriptions.

-- Of an app that is no more nothing is left. A pool that is not linked keeps its data.
CREATE TABLE sync_pools (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    is_linked boolean NOT NULL DEFAULT true,
    push_sync json,
    is_pushing boolean NOT NULL DEFAULT false,
    streams json,
    sessions bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    modified_at timestamptz NOT NULL DEFAULT now());

CREATE INDEX sync_pools_app ON sync_pools (app, name);

-- A dataset that was deleted stays as a row without records: its counts go on. `bytes` and
-- `records` are of what is there, `tombstone_bytes` the keys of what is not.
CREATE TABLE sync_datasets (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pool bigint NOT NULL REFERENCES sync_pools ON DELETE CASCADE,
    identity text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    is_there boolean NOT NULL DEFAULT true,
    sync_count bigint NOT NULL DEFAULT 0,
    deleted_count bigint NOT NULL DEFAULT 0,
    records integer NOT NULL DEFAULT 0,
    bytes integer NOT NULL DEFAULT 0,
    tombstone_bytes integer NOT NULL DEFAULT 0,
    modified_by text,
    created_at timestamptz NOT NULL DEFAULT now(),
    modified_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (pool, identity, name)) WITH (fillfactor = 80);

-- Of a key a hash is looked for: it may be longer than an index takes. Only one has a key, as
-- who writes holds the dataset. A record without a value was removed.
CREATE TABLE sync_records (
    dataset bigint NOT NULL REFERENCES sync_datasets ON DELETE CASCADE,
    key text COLLATE "C" NOT NULL,
    value text,
    sync_count bigint NOT NULL,
    modified_at timestamptz NOT NULL,
    modified_by text,
    device_modified_at timestamptz);

CREATE INDEX sync_records_key ON sync_records (dataset, hashtextextended(key, 0));

CREATE INDEX sync_records_count ON sync_records (dataset, sync_count);

CREATE INDEX sync_records_removed ON sync_records (modified_at) WHERE value IS NULL;

CREATE TABLE sync_devices (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pool bigint NOT NULL REFERENCES sync_pools ON DELETE CASCADE,
    identity text COLLATE "C" NOT NULL,
    device_id text COLLATE "C" NOT NULL,
    platform text NOT NULL,
    app text COLLATE "C" NOT NULL,
    installation text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    registered_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (pool, identity, device_id),
    FOREIGN KEY (app, installation) REFERENCES installations (app, object_id)
        ON DELETE CASCADE);

CREATE INDEX sync_devices_installation ON sync_devices (app, installation);

-- `told` is the last count that the device was told of; before `told_at` that of when it
-- subscribed, which it knows.
CREATE TABLE sync_subscriptions (
    dataset bigint NOT NULL REFERENCES sync_datasets ON DELETE CASCADE,
    device bigint NOT NULL REFERENCES sync_devices ON DELETE CASCADE,
    told bigint NOT NULL DEFAULT 0,
    told_at timestamptz,
    PRIMARY KEY (dataset, device)) WITH (fillfactor = 80);

CREATE INDEX sync_subscriptions_device ON sync_subscriptions (device);

-- What changed and is to be told. `writer` made all of the changes; null: not one device did.
CREATE TABLE sync_windows (
    dataset bigint PRIMARY KEY REFERENCES sync_datasets ON DELETE CASCADE,
    sync_count bigint NOT NULL,
    changes integer NOT NULL,
    writer text,
    opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at timestamptz NOT NULL);

CREATE INDEX sync_windows_due ON sync_windows (due_at);

-- The last bulk publish of a pool: how far it is, by dataset.
CREATE TABLE sync_bulk (
    pool bigint PRIMARY KEY REFERENCES sync_pools ON DELETE CASCADE,
    status text NOT NULL,
    cursor bigint NOT NULL DEFAULT 0,
    told bigint NOT NULL DEFAULT 0,
    failure text,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at timestamptz);
