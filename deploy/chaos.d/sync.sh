# Datasets that are written while registration and dispatcher are killed. Sourced by deploy/chaos.
# shellcheck shell=bash

sync_pool=us-east-1:c4a05000

scenario_sync() {
    local app=chaos-sync kills=5 kill port pid driver verdict count=200 paths="$stack/paths-sync"
    start_apns sync 100000000 "$paths"
    create_app "$app" "$count"
    sync_setup "$app"
    start_dispatcher 0 "$(apns_origin sync)"
    port="$(free_port)"
    start_sync_registration
    python3 "$root/deploy/chaos.d/sync_clients.py" "$sync_pool" "$count" "$updates" "$port" \
        >"$stack/sync.json" 2>"$run_folder/sync-clients.log" &
    driver=$!
    for ((kill = 1; kill <= kills; kill++)); do
        wait_for "$driver" 120 are_synced $((updates * (2 * kill - 1) / (2 * kills + 1))) || break
        kill -KILL "$pid"
        wait "$pid" 2>/dev/null || true
        forget "$pid"
        start_sync_registration
        wait_for "$driver" 120 are_synced $((updates * 2 * kill / (2 * kills + 1))) || break
        kill_dispatcher 0
        start_dispatcher 0 "$(apns_origin sync)"
    done
    say "  $((kill - 1)) times kill -9 of each, at $(synced) of $updates updates"
    wait "$driver" || fail "the clients did not end: $(tail -n 5 "$run_folder/sync-clients.log")"
    verdict="$(jq -c . "$stack/sync.json")"
    say "  $verdict"
    wait_for "${dispatcher_pid[0]}" 120 sync_is_notified || true
    # nginx buffers its log for a second.
    sleep 2

    promise "five kills of each came in time" $((kill - 1 == kills))
    promise "each of $updates updates was answered" \
        "$(jq --argjson updates "$updates" 'if .answered == $updates then 1 else 0 end' <<<"$verdict")"
    promise "no answered update is missing, and none was done twice" "$(sql "SELECT
        (sum(sync_count) = $updates AND count(*) = $count)::int FROM sync_datasets d
        JOIN sync_pools p ON p.id = d.pool WHERE p.name = '$sync_pool'")"
    promise "each record is what was answered last" \
        "$(jq 'if .different == 0 then 1 else 0 end' <<<"$verdict")"
    promise "every subscriber was notified of its dataset's last count" "$(sql "SELECT
        (bool_and(s.told = d.sync_count) AND count(*) = $count)::int
        FROM sync_subscriptions s JOIN sync_datasets d ON d.id = s.dataset")"
    promise "and its push is delivered" "$(sql "SELECT (count(*) = $count)::int
        FROM sync_datasets d JOIN all_pushes u ON u.event_source = 'carillon/sync'
            AND u.event_id = '$sync_pool/' || d.identity || '/' || d.name || '/' || d.sync_count
        WHERE u.targeted = 1 AND u.delivered = 1")"
    promise "nobody was told of a count twice, and the provider got each push" "$(sync_at_provider)"
    promise "the books of all pushes balance" "$(sql "SELECT (count(*) = 0)::int FROM all_pushes
        WHERE pending > 0 OR targeted <> delivered + failed + expired + suppressed + in_doubt")"
    sync_bulk_publish
    stop_service "$pid"
    stop_dispatcher 0
    clear_books
}

# sync_bulk_publish: notifies 100,000 subscriptions of their counts, by a dispatcher that is killed
# half-way.
sync_bulk_publish() {
    local subscriptions=100000
    sql "INSERT INTO sync_datasets (pool, identity, name, sync_count)
        SELECT p.id, 'us-east-1:' || lpad(to_hex(i), 24, '0'), 'bulk' || n, 1
        FROM sync_pools p, generate_series(1, $count) AS i, generate_series(1, 500) AS n
        WHERE p.name = '$sync_pool'"
    sql "INSERT INTO sync_subscriptions (dataset, device) SELECT d.id, v.id FROM sync_datasets d
        JOIN sync_devices v ON v.identity = d.identity WHERE d.name LIKE 'bulk%'"
    sql "INSERT INTO sync_bulk (pool, status) SELECT id, 'IN_PROGRESS' FROM sync_pools
        WHERE name = '$sync_pool'"
    wait_for "${dispatcher_pid[0]}" 120 bulk_has_told $((subscriptions / 2)) || true
    say "  kill -9 at $(bulk_told) of $subscriptions told by the bulk publish"
    kill_dispatcher 0
    start_dispatcher 0 "$(apns_origin sync)"
    wait_for "${dispatcher_pid[0]}" 300 bulk_is_over || true
    promise "a bulk publish of $subscriptions subscriptions succeeds, though it was killed" "$(sql "SELECT
        count(*) FROM sync_bulk WHERE status = 'SUCCEEDED' AND told = $subscriptions + $count")"
    promise "each of them is one push that is delivered" "$(sql "SELECT
        (count(*) = $subscriptions AND bool_and(delivered = 1))::int FROM all_pushes
        WHERE event_id LIKE '%/bulk%'")"
}

bulk_told() { sql 'SELECT coalesce(sum(told), 0) FROM sync_bulk'; }
bulk_has_told() { (($(bulk_told) >= $1)); }
bulk_is_over() {
    sleep 0.5
    [[ "$(sql "SELECT (SELECT count(*) FROM sync_bulk WHERE status = 'IN_PROGRESS')
        + (SELECT count(*) FROM outbox) + (SELECT count(*) FROM all_pushes WHERE finished_at IS NULL)
        + abs(100000 - (SELECT count(*) FROM all_pushes WHERE event_id LIKE '%/bulk%'))")" == 0 ]]
}

# sync_setup APP: makes a pool that pushes, unsigned calls, and an identity for each installation.
sync_setup() {
    carillon app link "$1" --cognito-identity-pool "$sync_pool" >/dev/null
    carillon app set "$1" sync-unsigned=on >/dev/null
    sql "UPDATE sync_pools SET is_pushing = true,
            push_sync = '{\"ApplicationArns\": [\"arn:aws:sns:us-east-1:1:app/APNS/x\"]}'
        WHERE name = '$sync_pool'"
    sql "UPDATE installations SET identity = 'us-east-1:' || object_id WHERE app = '$1'"
}

# start_sync_registration: starts it on `port`, as process `pid`, and waits until it is ready.
start_sync_registration() {
    local log="$run_folder/registration.log"
    start registration "$log" env HTTP_HOST=127.0.0.1 HTTP_PORT="$port" LOG_FORMAT=json \
        HTTP_ACCESS_LOG=false "$bin/carillon-registration"
    pid=$started
    wait_for "$started" 60 curl -sf -o "$stack/readyz" "http://127.0.0.1:$port/readyz" ||
        fail "the registration is not ready: $(tail -n 5 "$log")"
}

synced() { sql 'SELECT coalesce(sum(sync_count), 0) FROM sync_datasets'; }
are_synced() { (($(synced) >= $1)); }

sync_is_notified() {
    [[ "$(sql "SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM sync_windows)
        + (SELECT count(*) FROM sync_subscriptions s JOIN sync_datasets d ON d.id = s.dataset
            WHERE s.told <> d.sync_count)
        + (SELECT count(*) FROM sync_datasets d WHERE NOT EXISTS (SELECT FROM all_pushes u
            WHERE u.event_id = '$sync_pool/' || d.identity || '/' || d.name || '/' || d.sync_count
                AND u.pending = 0 AND u.targeted > 0))")" == 0 ]]
}

# sync_at_provider: prints 1 if each push has the id of at least one line, and each device's pushes
# are different.
sync_at_provider() {
    local sent pushes
    sent="$(LC_ALL=C sort -u "$paths" | wc -l)"
    pushes="$(sql "SELECT count(*) FROM all_pushes WHERE delivered = 1")"
    say "  $pushes pushes, $sent different requests, $(($(wc -l <"$paths") - sent)) repeats" >&2
    echo $((sent == pushes))
}
