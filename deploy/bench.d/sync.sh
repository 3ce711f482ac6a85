# Push sync: changes of datasets from Kafka to the provider, compared with events; records over
# HTTP, compared with the same statements by SQL; and the latency of calls among many. Sourced by
# deploy/bench.
# shellcheck shell=bash

sync_pool=us-east-1:be4c4000

bench_sync() {
    local size app runs=0 count=100000 identities=10000 sync_round=0 chunk=0 datasets=2000 keys=100
    local -x HTTP_ACCESS_LOG=false
    use_stack
    start_apns constant
    size="$(printf '%s\n' "${sizes[@]}" | sort -n | tail -n 1)"
    ((size >= identities * 10)) || size=$((identities * 10))
    app="sync-$(size_name "$size")"
    create_app "$app" "$size"
    sync_rows
    start_registration
    sync_requests
    sync_script

    start_dispatcher events "$(apns_origin constant)"
    take_turns sync-notified -- sync_notified -- our_events
    stop_dispatcher events
    compare sync-notified per_second "changes of datasets, notified" events /s least 0.5
    figure sync-notified pushes "pushes for $count changes" "" - 0
    figure sync-notified dispatcher_cpu "changes, dispatcher's CPU" ns - 0
    figure sync-notified postgres_cpu "changes, Postgres' CPU" ns - 0

    take_turns sync-updates -- sync_updates 64 3 -- sync_pgbench 3
    compare sync-updates per_second "UpdateRecords, 64 clients" pgbench /s least 0.5
    take_turns sync-update -- sync_updates 8 3 -- true
    figure sync-update p99 "UpdateRecords of one, 8 clients, p99" ms most 20
    take_turns sync-list -- sync_load lists any 8 3 -- true
    figure sync-list p99 "ListRecords of 20, 8 clients, p99" ms most 20
    take_turns sync-subscribe -- sync_load subscriptions any 8 3 -- true
    figure sync-subscribe p99 "Subscribe, 8 clients, p99" ms most 20
    stop_service "$registration_pid"
}

# sync_rows: makes an identity for each of a tenth of the installations, subscribed to 20 datasets;
# the first `datasets` of them have 20 records in the first.
sync_rows() {
    local devices=$((size / 10)) title
    title="$(size_name "$devices")"
    if [[ "$(sql "SELECT count(*) FROM sync_pools WHERE name = '$sync_pool'")" != 0 ]]; then return; fi
    carillon app link "$app" --cognito-identity-pool "$sync_pool" >/dev/null
    carillon app set "$app" sync-unsigned=on >/dev/null
    note "subscribing $title devices to 20 datasets each"
    sql "UPDATE sync_pools SET is_pushing = true,
            push_sync = '{\"ApplicationArns\": [\"arn:aws:sns:us-east-1:1:app/APNS/x\"]}'"
    sql "INSERT INTO sync_devices (pool, identity, device_id, platform, app, installation)
        SELECT p.id, 'us-east-1:' || o, o, 'APNS', '$app', o FROM sync_pools p,
            generate_series(1, $devices) AS i, LATERAL (SELECT lpad(to_hex(i), 24, '0')) AS n (o)"
    sql "INSERT INTO sync_datasets (pool, identity, name)
        SELECT p.id, 'us-east-1:' || lpad(to_hex(i), 24, '0'), 'd' || n FROM sync_pools p,
            generate_series(1, $devices) AS i, generate_series(0, 19) AS n"
    sql "INSERT INTO sync_subscriptions (dataset, device)
        SELECT d.id, v.id FROM sync_datasets d JOIN sync_devices v ON v.identity = d.identity"
    # A dataset that others report on has no records: it is not one of those that are written.
    sql "INSERT INTO sync_records (dataset, key, value, sync_count, modified_at)
        SELECT d.id, 'seed-' || k, repeat('x', 100), 1, now()
        FROM sync_datasets d, generate_series(1, 20) AS k
        WHERE d.name = 'd1' AND d.identity <= 'us-east-1:' || lpad(to_hex($datasets), 24, '0')"
    sql "UPDATE sync_datasets d SET sync_count = 1, records = 20, bytes = 2200
        WHERE d.name = 'd1' AND d.identity <= 'us-east-1:' || lpad(to_hex($datasets), 24, '0')"
    sql 'VACUUM (ANALYZE) sync_datasets, sync_records, sync_devices, sync_subscriptions'
    sql CHECKPOINT
}

# sync_requests: makes files of requests in the form that carillon-bench reads.
sync_requests() {
    python3 "$root/Tests/Benchmarks/sync_requests.py" "$registration_port" "$sync_pool" "$datasets" \
        "$keys" "$stack" || fail "no requests were made"
}

# sync_load FILE any|each CLIENTS SECONDS
sync_load() { "$bench" requests "$registration_port" "$stack/sync-$1" "$2" "$3" "$4"; }

# sync_updates CLIENTS SECONDS: saves new keys.
sync_updates() {
    local lines=$((datasets * keys / (2 * rounds)))
    sed -n "$((chunk * lines + 1)),$(((chunk + 1) * lines))p" "$stack/sync-updates" >"$stack/sync-chunk"
    chunk=$((chunk + 1))
    sync_load chunk each "$1" "$2"
}

# ── From Kafka ──────────────────────────────────────────────────────────────────────────────────

# sync_notified: runs one round of `count` changes over `identities`, written as fast as Kafka accepts
# them, and measures from the timestamp of the first to the end of the last push.
sync_notified() {
    local first turns=$((count / identities)) base cpu
    when_closed clear_books
    base=$((sync_round * turns))
    sync_round=$((sync_round + 1))
    awk -v pool="$sync_pool" -v base="$base" -v turns="$turns" -v identities="$identities" 'BEGIN {
        for (turn = 1; turn <= turns; turn++) for (i = 1; i <= identities; i++) {
            identity = sprintf("us-east-1:%024x", i)
            printf "%s\t{\"identityPoolId\":\"%s\",\"identityId\":\"%s\",\"datasetName\":\"d0\",\"syncCount\":%d}\n",
                identity, pool, identity, base + turn
        } }' >"$stack/changes"
    cpu="$(cpu_now constant)"
    first="$(milliseconds_now)"
    kcat -P -b "$KAFKA_BOOTSTRAP_SERVERS" -t "${KAFKA_TOPIC_PREFIX}dataset.changes" -K '\t' -l "$stack/changes"
    wait_for "${dispatcher_pid[events]}" 300 sync_is_notified $((base + turns)) || fail "not all devices were notified"
    cpu="$(cpu_since "$cpu" constant "$count")"
    jq -n --argjson count "$count" --argjson first "$first" --argjson cpu "$cpu" \
        --argjson to "$(sql "SELECT extract(epoch FROM max(finished_at)) * 1000 FROM all_pushes")" \
        --argjson pushes "$(sql 'SELECT count(*) FROM all_pushes')" \
        '{per_second: ($count * 1000 / ($to - $first)), $pushes} + $cpu'
}

# sync_is_notified COUNT: succeeds once each of the identities was notified by a push that has ended.
sync_is_notified() {
    sleep 0.3
    [[ "$(sql "SELECT (SELECT count(*) FROM sync_windows) + (SELECT count(*) FROM outbox)
        + (SELECT count(*) FROM all_pushes WHERE finished_at IS NULL)
        + abs($identities - (SELECT count(*) FROM sync_subscriptions s
            JOIN sync_datasets d ON d.id = s.dataset WHERE d.name = 'd0' AND s.told = $1))
        + abs($identities - (SELECT count(*) FROM all_pushes WHERE event_id LIKE '%/d0/$1'))")" == 0 ]]
}

# ── The same by SQL ─────────────────────────────────────────────────────────────────────────────

# sync_script: makes a script of the statements of SyncDatasetStore. The pool is a variable: pgbench
# reads the word after a colon as one, in strings too.
sync_script() {
    cat >"$stack/sync-update.sql" <<SQL
\\set i random(1, $datasets)
\\set k random(1, 1000000000000000)
\\startpipeline
BEGIN;
SELECT d.id, d.sync_count, d.records, d.bytes, d.tombstone_bytes, clock_timestamp() AS now
FROM sync_datasets d
WHERE d.pool = (SELECT p.id FROM sync_pools p WHERE p.name = :pool AND p.app = '$app' AND p.is_linked)
    AND d.identity = 'us-east-1:' || lpad(to_hex(:i::bigint), 24, '0') AND d.name = 'd2'
    AND d.is_there FOR NO KEY UPDATE;
SELECT r.key, r.sync_count, octet_length(r.value) AS bytes
FROM unnest(ARRAY['p' || :k::bigint]) AS k(key)
JOIN sync_records r ON hashtextextended(r.key, 0) = hashtextextended(k.key, 0) AND r.key = k.key
WHERE r.dataset = (SELECT d.id FROM sync_datasets d
    WHERE d.pool = (SELECT p.id FROM sync_pools p WHERE p.name = :pool AND p.app = '$app' AND p.is_linked)
    AND d.identity = 'us-east-1:' || lpad(to_hex(:i::bigint), 24, '0') AND d.name = 'd2');
INSERT INTO sync_records (dataset, key, value, sync_count, modified_at, modified_by, device_modified_at)
SELECT d.id, 'p' || :k::bigint, repeat('x', 100), d.sync_count + 1, now(), NULL, NULL
FROM sync_datasets d WHERE d.name = 'd2'
    AND d.pool = (SELECT p.id FROM sync_pools p WHERE p.name = :pool)
    AND d.identity = 'us-east-1:' || lpad(to_hex(:i::bigint), 24, '0');
UPDATE sync_datasets d SET sync_count = sync_count + 1, modified_at = now(), modified_by = NULL,
    records = records + 1, bytes = bytes + 110, tombstone_bytes = 0
WHERE d.name = 'd2' AND d.pool = (SELECT p.id FROM sync_pools p WHERE p.name = :pool)
    AND d.identity = 'us-east-1:' || lpad(to_hex(:i::bigint), 24, '0');
INSERT INTO outbox (kafka_topic, key, value, headers, order_key)
SELECT '${KAFKA_TOPIC_PREFIX}dataset.changes', convert_to('us-east-1:' || :i::bigint, 'UTF8'),
    convert_to(:record, 'UTF8'), '[["content-type", "application/json"]]'::jsonb, NULL;
SELECT pg_notify('carillon_outbox', '');
\\endpipeline
COMMIT;
SQL
}

# sync_pgbench SECONDS: runs it while the registration is stopped, and deletes the outbox records.
sync_pgbench() {
    local record
    record="$(jq -nc --arg pool "$sync_pool" '{identityPoolId: $pool, identityId: "us-east-1:\("0" * 24)",
        datasetName: "d2", syncCount: 1}')"
    kill -STOP "$registration_pid"
    "$(postgres_bin)/pgbench" -n -M prepared -c 4 -j 2 -T "$1" -D record="$record" \
        -D pool="$sync_pool" \
        -f "$stack/sync-update.sql" "$stack_database" 2>"$stack/pgbench.log" |
        awk '/^tps/ { printf "{\"per_second\": %s}\n", $3 }'
    sql 'DELETE FROM outbox' >/dev/null
    kill -CONT "$registration_pid"
}
