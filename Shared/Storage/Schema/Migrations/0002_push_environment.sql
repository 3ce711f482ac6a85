-- oldest usable: 1
--
-- The environment that a push's `prod` selects, stored beside the request: SQL must not look into
-- that for each delivery, as it may be a megabyte, and may hold a \u0000, over which Postgres
-- fails.

ALTER TABLE pushes ADD COLUMN environment text NOT NULL DEFAULT 'production';
