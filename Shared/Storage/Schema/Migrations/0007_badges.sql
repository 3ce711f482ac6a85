-- oldest usable: 1
--
-- The badge that a delivery sends, raised when it was planned; and how far the badges of a shard's
-- members are raised.

ALTER TABLE deliveries ADD COLUMN badge integer;

ALTER TABLE shards ADD COLUMN prepared text COLLATE "C";
