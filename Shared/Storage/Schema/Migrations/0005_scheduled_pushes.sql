-- oldest usable: 1
--
-- Pushes that wait for their time. An older dispatcher leaves them to the newer ones, but for what
-- `push_time` says: what it reads from Kafka itself it still refuses.

-- When a push is released, `created_at` becomes that moment, so that its deliveries are
-- kept from then on, in that day's partition; `accepted_at` keeps when it came in.
ALTER TABLE pushes ADD COLUMN release_at timestamptz,
    ADD COLUMN accepted_at timestamptz, ADD COLUMN schedule_id bigint;

-- What LeanCloud's clients name a scheduled push by.
CREATE SEQUENCE pushes_schedule_id OWNED BY pushes.schedule_id;

CREATE INDEX pushes_release ON pushes (release_at)
    WHERE status IN ('queued', 'scheduled') AND release_at IS NOT NULL;

CREATE UNIQUE INDEX pushes_schedule ON pushes (schedule_id)
    WHERE schedule_id IS NOT NULL;

-- The members of a shard of a device-local push: those in its zones, or all but those.
ALTER TABLE shards ADD COLUMN zones_excluded boolean NOT NULL DEFAULT false,
    ADD COLUMN expires_at timestamptz;
