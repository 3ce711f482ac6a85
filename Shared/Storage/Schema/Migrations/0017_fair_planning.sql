-- oldest usable: 1
--
-- Planning is fair between apps: an index by which their pushes are found one app at a time, and of
-- which kind each is, so that nobody has to read its request for that. An older dispatcher leaves
-- the latter open, and sorts what the index has.

-- The index first: building it lets everyone read, what comes after it lets nobody.
CREATE INDEX pushes_planning_fair ON pushes (app, lane, created_at) WHERE is_planning;

ALTER TABLE pushes ADD COLUMN is_conditional boolean;

DROP INDEX pushes_planning;
