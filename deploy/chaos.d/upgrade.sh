# A Carillon that is upgraded from one version to the next while it works. Sourced by deploy/chaos.
# shellcheck shell=bash

# Events and broadcasts of two sizes, first with the version before alone; then while the new one
# migrates beside saves and badges, works beside it, and continues alone after a kill.
scenario_upgrade() {
    local app=upgrade start=$SECONDS old new="$bin"
    local stack_database="${stack_database%/*}/upgrade"
    local -x DATABASE_URL="$stack_database" KAFKA_TOPIC_PREFIX="${KAFKA_TOPIC_PREFIX}upgrade-"
    local -x KAFKA_GROUP_ID="${KAFKA_TOPIC_PREFIX}dispatcher"
    local registration_pid registration_port
    local requests_topic="${KAFKA_TOPIC_PREFIX}push.requests" bin size=$events books="all_pushes WHERE app = 'upgrade'"
    if [[ -z "$before" ]]; then
        say "  SKIPPED: --before names no version to come from"
        return
    fi
    old="$(cd "$before" && swift build -c release --show-bin-path)"
    [[ -x "$old/carillon" && -x "$old/carillon-dispatcher" && -x "$old/carillon-registration" ]] ||
        fail "$before has no carillon, carillon-dispatcher and carillon-registration in $old: build them first"
    "$(postgres_bin)/psql" -X -q -c 'CREATE DATABASE upgrade' "${stack_database%/*}/postgres"
    # A statement that waits this long for a lock is in Postgres' log.
    sql "ALTER DATABASE upgrade SET log_lock_waits = on"
    sql "ALTER DATABASE upgrade SET deadlock_timeout = '100ms'"
    bin="$old"
    carillon migrate >"$run_folder/migrate-before.log"
    begin_upgrade "$app"

    start_dispatcher 0 "$(apns_origin "$app")"
    broadcast "$app" before
    write_events "$app" before 1500
    finished_push "$app" before >"$stack/push"
    upgrade_events_end "$events"
    say "  $(schema_version) is the schema of the version before; it has sent $events events and a broadcast"

    write_events "$app" across 1000
    broadcast "$app" across
    wait_for_singles $((events * 2 + events / 3))
    migrate_beside "$new"
    bin="$new"
    start_dispatcher 1 "$(apns_origin "$app")"
    say "  migrated to $(schema_version), and one of the new version beside it, after $((SECONDS - start)) s"
    wait_for_singles $((events * 2 + events))
    kill_dispatcher 0
    unset "dispatcher_pid[0]" "dispatcher_port[0]"
    say "  kill -9 of the version before, at $(settled_singles) settled"
    finished_push "$app" across >"$stack/push"
    upgrade_events_end $((4 * events))
    broadcast "$app" after
    finished_push "$app" after >"$stack/push"
    write_events "$app" after 1500
    upgrade_events_end $((6 * events))

    promise_upgrade "$app"
    promise_erased "$app"
    promise_dropped
    stop_dispatcher 1
    say "  done after $((SECONDS - start)) s"
}

# migrate_beside BIN: migrates by the new version, while the one before writes single pushes,
# increments badges and saves installations.
migrate_beside() {
    local saves log="$run_folder/postgres.log" lines status=0
    create_app badges 20000
    start_registration
    start saves "$run_folder/saves.json" python3 "$root/deploy/chaos.d/saves.py" badges \
        "$(jq -r .appKey "$stack/badges.json")" "$registration_port" 5000
    saves=$started
    sleep 3
    stop_pid "$saves" TERM 30
    forget "$saves"
    say "  saves before, in ms: $(cat "$run_folder/saves.json")"
    broadcast badges raised-before '{"badge": "Increment"}'
    start saves "$run_folder/saves.json" python3 "$root/deploy/chaos.d/saves.py" badges \
        "$(jq -r .appKey "$stack/badges.json")" "$registration_port" 5000
    saves=$started
    sleep 1
    lines="$(wc -l <"$log")"
    broadcast badges raised '{"badge": "Increment"}'
    "$1/carillon" migrate >"$run_folder/migrate-after.log" 2>&1 || status=$?
    sleep 1
    stop_pid "$saves" TERM 30
    forget "$saves"
    say "  saves meanwhile, in ms: $(cat "$run_folder/saves.json"); $(head -n 1 "$run_folder/migrate-after.log")"
    tail -n +$((lines + 1)) "$log" >"$stack/migrate-locks"
    promise "migrating succeeds" $((status == 0))
    promise "nothing deadlocks" "$(sql "SELECT (deadlocks = 0)::int FROM pg_stat_database
        WHERE datname = 'upgrade'")"
    promise "no statement waits for a table for 100 ms ($(lock_waits))" \
        "$([[ "$(lock_waits)" == 0 ]] && echo 1 || echo 0)"
    promise "every save is answered" "$(jq 'if .failures == 0 then 1 else 0 end' "$run_folder/saves.json")"
    stop_service "$registration_pid"
    finished_push badges raised >"$stack/push"
}

# Prints how many waits for tables were logged during the migration; those for rows have other
# causes.
lock_waits() { grep -c 'still waiting for .* on relation' "$stack/migrate-locks" || true; }

schema_version() { sql 'SELECT max(version) FROM carillon_schema'; }

begin_upgrade() {
    in_flight="${DISPATCH_IN_FLIGHT:-4096}"
    singles_paths="$stack/paths-$1"
    start_apns "$1" 100000000 "$singles_paths"
    create_app "$1" "$events"
}

# upgrade_events_end SETTLED: waits until all events are written and this many deliveries settled.
upgrade_events_end() {
    wait "$events_pid" || fail "not all events were written: $(cat "$run_folder/events.log")"
    forget "$events_pid"
    wait_for_singles "$1"
}

# promise_upgrade APP: checks three events and three broadcasts for each installation.
promise_upgrade() {
    local event push
    # nginx buffers its log for a second.
    sleep 2
    say "  rows: $(sql "SELECT (SELECT count(*) FROM pushes) || ' pushes and ' || (SELECT count(*) FROM deliveries)
        || ' deliveries as before, ' || (SELECT count(*) FROM event_pushes) || ' events and '
        || (SELECT count(*) FROM delivery_chunks) || ' chunks'")"
    promise "every push is there once, and balances" "$(sql "SELECT (count(*) = 3 * $events + 3
        AND count(DISTINCT event_id) = count(*) AND bool_and(pending = 0 AND targeted = delivered))::int
        FROM all_pushes WHERE app = '$1'")"
    promise "every delivery is there once" "$(sql "SELECT (count(*) = 6 * $events
        AND count(DISTINCT (push_id, target)) = count(*) AND bool_and(state = 1))::int
        FROM all_deliveries WHERE app = '$1'")"
    for event in before across after; do
        push="$(recounted "$event")"
        promise "the broadcast '$event' agrees with what is counted of it" "$(jq --argjson count "$events" '
            if .recount.agrees and .delivered == $count then 1 else 0 end' <<<"$push")"
        push="$(carillon push show --app "$1" --event "$event-7" --json)"
        promise "the event '$event' is shown" "$(jq 'if .delivered == 1 and .status == "done" then 1
            else 0 end' <<<"$push")"
    done
    promise "every installation was sent to $(wc -l <"$singles_paths") times in all, 6 at least" \
        "$(sed 's|^/3/device/||; s| .*||' "$singles_paths" | LC_ALL=C sort | uniq -c |
            awk -v count="$events" '$1 >= 6 { good++ } END { print good == count }')"
}

# promise_erased APP: checks that an erased device is not in a dump of either version.
promise_erased() {
    local id token
    id="$(sql "SELECT object_id FROM installations WHERE app = '$1' ORDER BY 1 OFFSET 8 LIMIT 1")"
    token="$(sql "SELECT token FROM installations WHERE app = '$1' AND object_id = '$id'")"
    carillon erase "$1" --installation "$id" --json >"$stack/receipt"
    say "  erased: $(jq -c .erased "$stack/receipt")"
    promise "six deliveries of a device are erased, of both kinds" \
        "$(jq 'if .erased.deliveries == 6 then 1 else 0 end' "$stack/receipt")"
    promise "and a dump of the database knows neither its id nor its token" "$(
        "$(postgres_bin)/pg_dump" "$stack_database" |
            awk -v id="$id" -v token="$token" '
                # The installations of the other app have the same tokens.
                !/(^|\t)badges\t/ && (index($0, id) || index($0, token)) { found++ }
                END { print !found }'
    )"
    promise "the books agree still" "$(recounted before | jq 'if .recount.agrees then 1 else 0 end')"
}

# Moves all days back, and runs the dispatcher's maintenance: ended pushes are dropped with their
# day.
promise_dropped() {
    local table
    stop_dispatcher 1
    for table in deliveries delivery_chunks event_pushes; do
        sql "DO \$\$ BEGIN EXECUTE format('CREATE TABLE ${table}_%s PARTITION OF $table
            FOR VALUES FROM (%L) TO (%L)', to_char(now() AT TIME ZONE 'UTC' - interval '10 days', 'YYYYMMDD'),
            (now() AT TIME ZONE 'UTC' - interval '10 days')::date,
            (now() AT TIME ZONE 'UTC' - interval '9 days')::date); END \$\$"
        sql "UPDATE $table SET day = day - 10, created_at = created_at - interval '10 days'"
    done
    sql "UPDATE shards SET day = day - 10"
    sql "UPDATE pushes SET created_at = created_at - interval '10 days',
        updated_at = updated_at - interval '10 days', finished_at = finished_at - interval '10 days'"
    sql "UPDATE event_keys SET created_at = created_at - interval '10 days'"
    start_dispatcher 1 "$(apns_origin upgrade)" DELIVERY_RETENTION=2d IDEMPOTENCY_RETENTION=1d PUSH_RETENTION=2d
    promise "what is over is dropped with its day, of both kinds" "$(
        wait_for "${dispatcher_pid[1]}" 120 nothing_is_left && echo 1 || echo 0
    )"
}

nothing_is_left() {
    [[ "$(sql "SELECT (SELECT count(*) FROM all_pushes) + (SELECT count(*) FROM deliveries)
        + (SELECT count(*) FROM delivery_chunks) + (SELECT count(*) FROM event_pushes)
        + (SELECT count(*) FROM event_keys)")" == 0 ]]
}
