-- oldest usable: 1
--
-- Imports of installations from the exports of other platforms. A batch of lines and its import's
-- progress are one transaction, so that an import continues exactly where it was interrupted.

CREATE TABLE imports (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    format text NOT NULL,
    -- Without its folder.
    file_name text NOT NULL,
    -- Null if the lines came through a pipe, which cannot be read again.
    file_bytes bigint,
    -- SHA-256 of the size and the first MiB.
    fingerprint bytea,
    -- The mapping of columns, and the treatment of existing installations.
    options jsonb NOT NULL DEFAULT '{}',
    state text NOT NULL
        CHECK (state IN ('running', 'paused', 'finished', 'failed', 'stopped')),
    failure text,
    -- The process that works on it.
    runner uuid,
    -- The first byte that was not read, of the decompressed file, and its line.
    position bigint NOT NULL DEFAULT 0,
    line bigint NOT NULL DEFAULT 1,
    -- The part of the file that was read, before decompression.
    consumed bigint NOT NULL DEFAULT 0,
    -- records = imported + updated + skipped + rejected.
    records bigint NOT NULL DEFAULT 0,
    imported bigint NOT NULL DEFAULT 0,
    updated bigint NOT NULL DEFAULT 0,
    skipped bigint NOT NULL DEFAULT 0,
    rejected bigint NOT NULL DEFAULT 0,
    author text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz);

CREATE INDEX imports_app ON imports (app, id);

CREATE INDEX imports_updated_at ON imports (updated_at);

-- The reasons of rejected lines; at most some hundred an import.
CREATE TABLE import_reasons (
    import bigint NOT NULL REFERENCES imports ON DELETE CASCADE,
    reason text COLLATE "C" NOT NULL,
    lines bigint NOT NULL DEFAULT 0,
    -- The first lines, at most five.
    examples bigint[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (import, reason));

-- The first rejected lines, by their number: nothing of their content.
CREATE TABLE import_rejections (
    import bigint NOT NULL REFERENCES imports ON DELETE CASCADE,
    line bigint NOT NULL,
    reason text COLLATE "C" NOT NULL,
    PRIMARY KEY (import, line));
