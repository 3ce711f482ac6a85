# Retries beside a provider that cannot be reached. Sourced by deploy/chaos.
# shellcheck shell=bash

scenario_retries() {
    local owed=$((size * 3 / 10)) rounds=4 period=30 rate=10 round late
    create_app well 2
    create_app sick 2
    start_sink none
    use_fcm sick
    # Nothing listens there.
    start_dispatcher 0 "https://localhost:$sink_port" FCM_URL="https://localhost:$(free_port)" \
        FCM_TOKEN_HOSTS="localhost:$sink_port"
    "$bench" events well "$requests_topic" well 1 1 0 >/dev/null
    # The second one is FCM's.
    "$bench" events sick "$requests_topic" sick 2 2 0 >/dev/null
    wait_for "${dispatcher_pid[0]}" 30 are_known 3 || fail "the events did not become pushes"
    say "  $owed deliveries of the sick one, due together $rounds times, $period s apart"
    owe sick fcm "''" "$owed" "now()"
    owe well apns "'production'" $((rounds * period * rate)) \
        "now() + n * interval '1 s' / $rate"
    for ((round = 1; round <= rounds; round++)); do
        sleep "$period"
        ((round == rounds)) || sql "UPDATE deliveries SET due_at = now()
            WHERE app = 'sick' AND state = 0 AND owner IS NULL"
    done
    wait_for "${dispatcher_pid[0]}" 30 is_nothing_pending well || true
    late="$(sql "SELECT round(percentile_disc(0.99) WITHIN GROUP (ORDER BY
            extract(epoch FROM updated_at - due_at)) * 1000)
        FROM deliveries WHERE app = 'well' AND target LIKE 'more-%' AND state = 1")"
    say "  late were the healthy one's retries, 99 of 100 of them, by at most ${late:-?} ms"
    promise "which is less than a second" $((${late:-1000} < 1000))
    promise "each of them was delivered" "$(sql "SELECT (count(*) = $((rounds * period * rate)))::int
        FROM deliveries WHERE app = 'well' AND target LIKE 'more-%' AND state = 1")"
    promise "the books of all pushes balance" "$(sql "SELECT (count(*) = 0)::int FROM all_pushes
        WHERE targeted <> delivered + failed + expired + suppressed + in_doubt + pending")"
    stop_dispatcher 0
    stop_service "$sink_pid"
    clear_books
}

are_known() { [[ "$(sql 'SELECT count(*) FROM all_pushes')" == "$1" ]]; }

is_nothing_pending() {
    [[ "$(sql "SELECT count(*) FROM deliveries WHERE app = '$1' AND state = 0")" == 0 ]]
}

# owe APP PROVIDER ENVIRONMENT COUNT DUE: writes this many more deliveries of an app's last push,
# number n due at DUE.
owe() {
    sql "WITH last AS (
            DELETE FROM event_pushes WHERE id = (SELECT id FROM event_pushes WHERE app = '$1'
                ORDER BY created_at DESC, id DESC LIMIT 1)
            RETURNING *),
        push AS (
            INSERT INTO pushes (id, app, event_source, event_id, request, status, targeted, pending,
                created_at)
            SELECT id, app, event_source, event_id, request, 'sending', $4, $4, created_at FROM last
            RETURNING id, app, created_at)
        INSERT INTO deliveries (day, push_id, target, app, provider, environment, token, lane,
            attempts, due_at)
        SELECT (created_at AT TIME ZONE 'UTC')::date, id, 'more-' || n, app, '$2', $3,
            encode(sha256(('$1' || n)::bytea), 'hex'), 0, 1, $5
        FROM push, generate_series(1, $4) n"
}
