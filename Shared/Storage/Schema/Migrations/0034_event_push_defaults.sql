-- oldest usable: 1
--
-- Most events for few devices are one delivery that went well: their counters need not be written.
--
-- The partitions of `event_pushes` have up to seven days from here on, where they had one.
-- Maintenance makes them (`DayTable`), behind those that are there. That of the version before
-- cannot make a day of its own inside them: it fails and says so, and drops none too early.

ALTER TABLE event_pushes ALTER COLUMN delivered SET DEFAULT 1,
    ALTER COLUMN failed SET DEFAULT 0, ALTER COLUMN expired SET DEFAULT 0,
    ALTER COLUMN suppressed SET DEFAULT 0, ALTER COLUMN in_doubt SET DEFAULT 0,
    ALTER COLUMN invalid_tokens SET DEFAULT 0;
