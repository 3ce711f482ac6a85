-- oldest usable: 1
--
-- A broadcast is cut into shards, and a delivery's row is written once, with its outcome. An older
-- dispatcher knows nothing of shards: it plans on, from the same cursor, as rows, leaves the shards
-- that there are to the newer ones, and does not give back those of a session that it ends, which
-- the next newer one does.

-- The members of a shard are those behind `lower_id` up to `upper_id` (null: no bound).
-- Those up to `cursor` have a row each, `recorded` of them; of the others, which have
-- none, there are `expected` - `recorded`: pending until the shard is finished, or, where
-- the push was cancelled, `cancelled` for ever.
CREATE TABLE shards (
    push_id uuid NOT NULL REFERENCES pushes ON DELETE CASCADE,
    shard integer NOT NULL,
    app text COLLATE "C" NOT NULL,
    day date NOT NULL,
    pushed_at timestamptz NOT NULL,
    lower_id text COLLATE "C" NOT NULL DEFAULT '',
    upper_id text COLLATE "C",
    is_sparse boolean NOT NULL DEFAULT false,
    is_paced boolean NOT NULL DEFAULT false,
    zones text[],
    cursor text COLLATE "C",
    expected integer NOT NULL,
    recorded integer NOT NULL DEFAULT 0,
    cancelled integer NOT NULL DEFAULT 0,
    due_at timestamptz NOT NULL DEFAULT now(),
    owner bigint,
    finished boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (push_id, shard));

CREATE INDEX shards_waiting ON shards (app, pushed_at, push_id, shard)
    WHERE NOT finished AND owner IS NULL;

CREATE INDEX shards_due ON shards (due_at) WHERE NOT finished AND owner IS NULL;

CREATE INDEX shards_owner ON shards (owner) WHERE owner IS NOT NULL;

CREATE INDEX shards_day ON shards (day) WHERE NOT finished;

-- A push is done when nothing is pending and no shard is open.
ALTER TABLE pushes ADD COLUMN open_shards integer NOT NULL DEFAULT 0;

-- When a provider's answer made it invalid: what a restoration goes by.
ALTER TABLE installations ADD COLUMN invalidated_at timestamptz;

CREATE INDEX installations_invalidated_at ON installations (invalidated_at)
    WHERE invalidated_at IS NOT NULL;
