-- oldest usable: 1
--
-- Erased names, by their digests, for a day: records that are written later do not contain them. A
-- service of the version before writes its audit with the name.

CREATE TABLE erased_names (
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    digest bytea NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (app, digest));

CREATE INDEX erased_names_at ON erased_names (at);
