-- oldest usable: 1
-- whole
--
-- The books of a push are written with each of its deliveries. Indexes that ask for its status
-- would make each of these writes one of every index as well; a column of its own, which stays as
-- it is from the plan to the end, does not, as long as the page has room for the new version.

ALTER TABLE pushes
    ADD COLUMN is_planning boolean NOT NULL
        GENERATED ALWAYS AS (status = 'planning') STORED,
    ADD COLUMN is_waiting boolean NOT NULL
        GENERATED ALWAYS AS (status IN ('queued', 'scheduled')
            AND release_at IS NOT NULL) STORED;

ALTER TABLE pushes SET (fillfactor = 70);

DROP INDEX pushes_planning;

CREATE INDEX pushes_planning ON pushes (lane, created_at) WHERE is_planning;

DROP INDEX pushes_release;

CREATE INDEX pushes_release ON pushes (release_at) WHERE is_waiting;
