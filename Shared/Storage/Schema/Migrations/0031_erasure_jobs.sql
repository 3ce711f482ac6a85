-- oldest usable: 1
--
-- Erased names are fenced by a keyed digest, and an erasure is done by a program that knows the
-- whole schema, or not at all.
--
-- A service of the version before runs on. It writes and honours plain digests only, and it cannot
-- erase: its first statement is refused, before anything is deleted.

-- Sealed under the key ring; one row at most.
CREATE TABLE erasure_key (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    sealed bytea NOT NULL);

-- The erasures that are under way. What a version before had begun goes on here.
CREATE TABLE erasure_jobs (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    kind text NOT NULL,
    id text COLLATE "C" NOT NULL,
    names jsonb NOT NULL,
    counts jsonb NOT NULL DEFAULT '{}',
    cursor_at timestamptz,
    cursor_id uuid,
    started_at timestamptz NOT NULL DEFAULT now(),
    touched_at timestamptz NOT NULL DEFAULT now(),
    wanted_by jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (app, kind, id));

CREATE FUNCTION carillon_refuse_erasure() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    RAISE EXCEPTION 'this version of Carillon cannot erase what newer services store'
        USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Upgrade the program that erases, and repeat the erasure.';
END
$body$;

CREATE TRIGGER carillon_refuse_erasure BEFORE INSERT ON erasures
    FOR EACH ROW EXECUTE FUNCTION carillon_refuse_erasure();

-- Their walk begins again, as what the version before went past may hold something still.
WITH begun AS (DELETE FROM erasures RETURNING *)
INSERT INTO erasure_jobs (app, kind, id, names, counts, started_at, touched_at, wanted_by)
SELECT app, kind, id, names, counts, started_at, touched_at, wanted_by FROM begun;
