-- oldest usable: 1
--
-- What each app's Realm clients are and do: their versions, their objects, and the errors that they
-- report. A service of the version before has no such clients.

CREATE TABLE realm_figures (
    app text COLLATE "C" NOT NULL,
    -- RealmFigure.Kind.
    kind text COLLATE "C" NOT NULL,
    -- The version, or another name within the kind; for sockets the process.
    name text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    -- Postgres' clock.
    changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, kind, name));
