-- oldest usable: 1
--
-- Counts of outcomes by the minute and by the hour, for charts. The ledger stays the truth. The
-- version before writes none, so its time shows as a gap.

CREATE TABLE push_figures (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    -- A push to many devices; zero: all pushes of the app.
    push_id uuid NOT NULL,
    -- The minutes that a row covers: 1 or 60. A push has no rows of 60.
    minutes smallint NOT NULL,
    at timestamptz NOT NULL,
    provider text COLLATE "C" NOT NULL,
    -- A number of the process, new at each start. A process writes only rows of its own.
    replica bigint NOT NULL,
    delivered integer NOT NULL,
    failed integer NOT NULL,
    expired integer NOT NULL,
    suppressed integer NOT NULL,
    in_doubt integer NOT NULL,
    -- The answered direct deliveries by the time since they were due: element n counts those of
    -- less than 2 to the power of n - 1 milliseconds. Zeros at the end are left out.
    latency integer[] NOT NULL,
    PRIMARY KEY (app, push_id, minutes, at, provider, replica))
WITH (fillfactor = 70);

CREATE INDEX push_figures_at ON push_figures (at);

-- The minutes in which a dispatcher counted, so that a minute without outcomes is no gap.
CREATE TABLE push_figure_minutes (
    at timestamptz NOT NULL,
    replica bigint NOT NULL,
    PRIMARY KEY (at, replica));
