-- oldest usable: 1
--
-- The reasons why deliveries of a push failed (`FailureCounts`). A dispatcher of the version before
-- counts none: then they are fewer than `failed`.

ALTER TABLE pushes ADD COLUMN failures jsonb;
