# The pages of the console: how long each takes with many installations and 10,000 pushes. Sourced by
# deploy/bench.
# shellcheck shell=bash

bench_console() {
    local size name app registration_port registration_pid
    use_stack
    "${build_command[@]}" --product carillon-registration
    size="$(printf '%s\n' "${sizes[@]}" | sort -n | tail -n 1)"
    name="$(size_name "$size")"
    app="all-$name"
    create_app "$app" "$size"
    console_pushes
    start_registration
    take_turns console -- one_console -- true
    stop_service "$registration_pid"
    note "the slowest pages, p95 and most in ms, bytes: $(head -n 5 "$run_folder/console-pages")"
    figure console pages "pages of the console" "" - 0
    figure console p50 "a page, $name devices, p50" ms - 0
    figure console p95 "the slowest page's p95" ms most 200
    figure console counted "devices counted on request, p95" ms most 5000
    figure console bytes "the largest page, gzip" KB most 40
    figure console memory "the service's memory" MB most 200 max
}

one_console() {
    python3 "$root/Tests/Benchmarks/console_pages.py" "$registration_port" "$registration_pid" "$app" \
        "$(jq -r .masterKey "$stack/$app.json")" "$run_folder/console-pages"
}

# console_pushes: makes 10,000 pushes of the last seven days with 50 deliveries each, every tenth of
# which failed, and one to all devices, from the dispatcher itself.
console_pushes() {
    note "making 10,000 pushes with 500,000 deliveries"
    sql "INSERT INTO pushes (id, app, event_source, event_id, request, status, lane, targeted, delivered,
            failed, created_at, updated_at, finished_at, accepted_at, failures)
        SELECT md5('push ' || i)::uuid, '$app', 'bench', 'push-' || i,
            jsonb_build_object('id', 'push-' || i, 'app', '$app', 'channels', jsonb_build_array('half'),
                'data', jsonb_build_object('alert', 'News number ' || i)),
            'done', 0, 50, 45, 5, t, t, t, t,
            '[{\"provider\": \"apns\", \"reason\": \"Unregistered\", \"count\": 5}]'
        FROM generate_series(1, 10000) AS i,
            LATERAL (SELECT now() - i * interval '1 minute') AS times (t)"
    sql "INSERT INTO deliveries (day, push_id, target, app, installation_id, provider, environment, token,
            lane, state, attempts, last_status, last_reason, created_at, updated_at)
        SELECT t::date, p.id, d.object_id, '$app', d.object_id, 'apns', 'production', d.token, 0,
            CASE WHEN n % 10 = 0 THEN 2 ELSE 1 END, 1,
            CASE WHEN n % 10 = 0 THEN 410 ELSE 200 END, CASE WHEN n % 10 = 0 THEN 'Unregistered' END, t, t
        FROM generate_series(1, 10000) AS i, generate_series(1, 50) AS n,
            LATERAL (SELECT md5('push ' || i)::uuid AS id, now() - i * interval '1 minute' AS t) AS p,
            LATERAL (SELECT object_id, token FROM installations WHERE app = '$app'
                AND object_id = lpad(to_hex((i::bigint * 50 + n) % $size + 1), 24, '0')) AS d"
    sql 'VACUUM (ANALYZE)'
    start_apns constant
    start_dispatcher console "$(apns_origin constant)"
    broadcast "$app" console-everyone
    finished_push "$app" console-everyone | jq -e '.status == "done"' >/dev/null ||
        fail "the push to everyone failed"
    stop_dispatcher console
    sql CHECKPOINT
}
