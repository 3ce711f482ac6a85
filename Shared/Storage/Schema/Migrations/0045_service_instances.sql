-- oldest usable: 1
--
-- Each running process of a service reports itself here every few seconds. A service of the version
-- before has no row, and is not missed.

CREATE TABLE service_instances (
    -- A new one for each process.
    id uuid PRIMARY KEY,
    service text COLLATE "C" NOT NULL,
    -- The host's name and the process' id.
    host text NOT NULL,
    version text NOT NULL,
    -- Postgres' clock.
    started_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    -- Readiness, circuit breakers, lag: ServiceState has the form.
    state jsonb NOT NULL);
