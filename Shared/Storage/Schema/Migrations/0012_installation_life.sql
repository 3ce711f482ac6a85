-- oldest usable: 1
-- whole
--
-- The life of an installation, and room for it: a save that changes nothing that is searched for
-- writes no index, as long as the page has room for the new version.
--
-- The new column makes Postgres write the table anew, with its indexes.

ALTER TABLE installations SET (fillfactor = 85);

-- One index finds a token in all environments and keeps it unique in each.
DROP INDEX installations_token_hash;

DROP INDEX installations_token;

-- The day on which a device was last heard of: what an index of `updated_at` itself
-- would find as well, but at the price of an entry for each save.
ALTER TABLE installations ADD COLUMN seen_on date NOT NULL
    GENERATED ALWAYS AS ((updated_at AT TIME ZONE 'UTC')::date) STORED;

CREATE UNIQUE INDEX installations_token
    ON installations (app, provider, token_hash, environment)
    WHERE token_hash IS NOT NULL;

-- What waits to be sorted in is read by each search: never much. Its writer sorts it in,
-- which takes as long as it is large.
ALTER INDEX installations_channels SET (gin_pending_list_limit = 256);

ALTER INDEX installations_fields SET (gin_pending_list_limit = 256);

-- An expression, that nobody else's `app = …` may mean this index: to a planner that does
-- not know an app yet, reading all of its devices looks as cheap as finding one.
CREATE INDEX installations_seen ON installations ((app || ''), valid, seen_on);

-- Tokens as Parse's clients name them, where they lead nowhere.
CREATE INDEX installations_unrouted
    ON installations (app, hashtextextended(fields->>'deviceToken', 0))
    WHERE token_hash IS NULL AND fields->>'deviceToken' IS NOT NULL;
