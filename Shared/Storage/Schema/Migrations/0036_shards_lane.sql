-- oldest usable: 1
--
-- Devices that a push names one by one, where they are many, are a shard too, of the direct lane:
-- it waits for no broadcast's. The version before claims it as any other.

ALTER TABLE shards ADD COLUMN lane smallint NOT NULL DEFAULT 1;

CREATE INDEX shards_direct ON shards (app, pushed_at, push_id, shard)
    WHERE NOT finished AND owner IS NULL AND lane = 0;
