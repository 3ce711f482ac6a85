-- oldest usable: 1
--
-- The members of a shard whose push has a condition, in the order of their object ids: chosen once,
-- when it is cut, and gone when it is finished. An older dispatcher refuses a push with a condition
-- anyway.

ALTER TABLE shards ADD COLUMN members text[] COLLATE "C";
