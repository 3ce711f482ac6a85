-- The tables of `carillon-bench postgres`.
\set ON_ERROR_STOP on
SET client_min_messages = warning;
DROP TABLE IF EXISTS bench_upsert, bench_copy;
CREATE TABLE bench_upsert (id int PRIMARY KEY, body jsonb NOT NULL);
INSERT INTO bench_upsert SELECT id, :'body' FROM generate_series(1, 10000) AS id;
CREATE TABLE bench_copy AS
    SELECT id::bigint, md5(id::text) || md5('token') AS token, id % 7 > 0 AS valid,
        timestamptz '2026-01-01' + id * interval '1 ms' AS updated_at
    FROM generate_series(1, 500000) AS id;
VACUUM ANALYZE bench_upsert, bench_copy;
CHECKPOINT;
