-- oldest usable: 1
--
-- Files of imports that the console has uploaded. A replica claims an import by a lease, reads its parts,
-- and deletes them as they are imported.

CREATE TABLE import_uploads (
    import bigint PRIMARY KEY REFERENCES imports ON DELETE CASCADE,
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    -- All but the last part have 1 MiB.
    parts integer NOT NULL DEFAULT 0,
    is_whole boolean NOT NULL DEFAULT false,
    is_gzip boolean NOT NULL DEFAULT false,
    -- What a replica has to do; null: nothing.
    task text CHECK (task IN ('dry_run', 'run')),
    -- The replica that does it, as long as its lease is valid.
    runner uuid,
    leased_until timestamptz,
    -- When the replica began, and the records that were imported before.
    started_at timestamptz,
    started_records bigint NOT NULL DEFAULT 0,
    -- The counts and reasons of the last dry run.
    dry_run jsonb,
    updated_at timestamptz NOT NULL DEFAULT now());

CREATE INDEX import_uploads_app ON import_uploads (app);

CREATE INDEX import_uploads_task ON import_uploads (import) WHERE task IS NOT NULL;

CREATE INDEX import_uploads_updated_at ON import_uploads (updated_at);

CREATE TABLE import_parts (
    import bigint NOT NULL REFERENCES import_uploads ON DELETE CASCADE,
    number integer NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (import, number));

-- Compressing them would cost more than they are stored for.
ALTER TABLE import_parts ALTER COLUMN bytes SET STORAGE EXTERNAL;
