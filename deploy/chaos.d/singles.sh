# Events for single devices while a dispatcher is stopped, or Postgres moves to another machine.
# Sourced by deploy/chaos.
# shellcheck shell=bash

# ── All that may be killed ──────────────────────────────────────────────────────────────────────

scenario_singles() {
    local app=singles kills=3 kill name start=$SECONDS
    local -x DISPATCH_IN_FLIGHT=512
    begin_singles "$app"
    write_events "$app" singles 1500
    for ((kill = 0; kill < kills; kill++)); do
        name=$((kill % 2))
        wait_for_singles $((events * (3 * kill + 1) / 11))
        say "  kill -9 of dispatcher $name, at $(settled_singles) settled"
        kill_dispatcher "$name"
        start_dispatcher "$name" "$(apns_origin "$app")"
        wait_for_singles $((events * (3 * kill + 2) / 11))
        say "  kill -9 of Postgres, at $(settled_singles) settled"
        kill_postgres
        wait_for_singles $((events * (3 * kill + 3) / 11))
        say "  kill -9 of the broker, at $(settled_singles) settled"
        kill_broker
    done
    wait_for_singles $((events * 10 / 11))
    say "  dispatcher 0 is stopped for 20 s, at $(settled_singles) settled"
    kill -STOP "${dispatcher_pid[0]}"
    sleep 20
    kill -CONT "${dispatcher_pid[0]}"
    # A kill of Postgres or of the broker may repeat the deliveries in flight of both dispatchers.
    finish_singles "$app" $((DISPATCH_IN_FLIGHT * (kills + 2 * kills + 2 * kills + 1)))
    say "  done after $((SECONDS - start)) s"
    end_singles
}

# again PID NAME LOG [COMMAND…]: ends a process by kill -9 and starts it again as it was, behind
# COMMAND.
again() {
    local pid="$1" name="$2" log="$3"
    shift 3
    mapfile -d '' -t again_command <"/proc/$pid/cmdline"
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null || true
    forget "$pid"
    start "$name" "$log" "$@" "${again_command[@]}"
}

# Its other processes end by themselves, and until then it does not start.
kill_postgres() {
    local try as=()
    if ((EUID == 0)); then as=(setpriv --reuid postgres --regid postgres --init-groups --); fi
    again "$postgres_pid" postgres "$run_folder/postgres-again.log" ${as[@]+"${as[@]}"}
    for ((try = 0; try < 60; try++)); do
        postgres_pid=$started
        if wait_for "$started" 60 answers_sql; then return; fi
        forget "$started"
        sleep 0.5
        start postgres "$run_folder/postgres-again.log" ${as[@]+"${as[@]}"} "${again_command[@]}"
    done
    fail "Postgres did not start again: $(tail -n 5 "$run_folder/postgres-again.log")"
}

answers_sql() { sql 'SELECT 1' >"$stack/answer" 2>&1; }

kill_broker() {
    [[ -n "$broker_pid" ]] || return 0
    again "$broker_pid" kafka "$run_folder/kafka-again.log"
    broker_pid=$started
    wait_for "$started" 60 kafka_answers "$KAFKA_BOOTSTRAP_SERVERS" || fail "the broker did not start again"
}

# ── A dispatcher that is stopped ────────────────────────────────────────────────────────────────

scenario_stall() {
    local app=stall session rate=$((events / (pause + 20) + 1)) start=$SECONDS
    begin_singles "$app"
    session="$(session_of 1)"
    write_events "$app" stall "$rate"
    wait_for_singles $((events / 20))
    if stop_in_settling 0; then
        say "  dispatcher 0 is stopped between the settling statement and COMMIT"
    else
        say "  dispatcher 0 is stopped, but in no settling transaction"
    fi
    sleep 6
    promise "what it held is free again after 6 s" "$(sql "SELECT (count(*) = 0)::int
        FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'
            AND xact_start < clock_timestamp() - interval '5.5 s'")"
    sleep $((pause - 6))
    say "  $(settled_singles) of $events are settled; it goes on after $pause s"
    kill -CONT "${dispatcher_pid[0]}"
    finish_singles "$app" $((in_flight))
    say "  done after $((SECONDS - start)) s"
    promise "the other kept its session ($session)" \
        "$([[ "$(session_of 1)" == "$session" ]] && echo 1 || echo 0)"
    promise "and never thought it lost" \
        "$(grep -c 'session lost' "$run_folder/dispatcher-1.log" | awk '{ print $1 == 0 }')"
    end_singles
}

# session_of NAME: prints the id of its session.
session_of() {
    sql "SELECT coalesce(max(id), 0) FROM dispatchers WHERE name LIKE '%:${dispatcher_pid[$1]}'"
}

# stop_in_settling NAME: stops it between its settling statement and COMMIT, or, after many tries,
# anywhere.
stop_in_settling() {
    local pid="${dispatcher_pid[$1]}" tries
    for ((tries = 0; tries < 300; tries++)); do
        kill -STOP "$pid"
        # By then the server has done its part.
        sleep 0.05
        if [[ "$(sql "SELECT count(*) > 0 FROM pg_stat_activity a
                JOIN dispatchers d ON d.connections = a.application_name
                WHERE d.name LIKE '%:$pid' AND a.state = 'idle in transaction'
                    AND (a.query LIKE '%settled AS (%' OR a.query LIKE '%INTO event_pushes%')")" == t ]]; then
            return 0
        fi
        kill -CONT "$pid"
        sleep 0.0$((RANDOM % 90 + 10))
    done
    kill -STOP "$pid"
    return 1
}

# ── A failover ──────────────────────────────────────────────────────────────────────────────────

scenario_failover() {
    local app=failover rate=$((events / 60 + 1)) start=$SECONDS begun
    start_standby
    begin_singles "$app"
    write_events "$app" failover "$rate"
    wait_for_singles $((events * 2 / 5))
    say "  kill -9 of the primary, at $(settled_singles) settled"
    kill -KILL "$postgres_pid"
    wait "$postgres_pid" 2>/dev/null || true
    forget "$postgres_pid"
    begun="$(milliseconds_now)"
    "$(postgres_bin)/psql" -X -q -A -t -c 'SELECT pg_promote(true, 60)' "$standby_url" \
        >"$stack/promote" || fail "the standby was not promoted"
    postgres_pid=$standby_pid
    promise "all services are ready again by themselves" "$(
        wait_for "${dispatcher_pid[0]}" 60 is_ready 0 && wait_for "${dispatcher_pid[1]}" 60 is_ready 1 &&
            echo 1 || echo 0
    )"
    say "  promoted, and they are ready after $(($(milliseconds_now) - begun)) ms"
    finish_singles "$app" $((2 * in_flight))
    say "  done after $((SECONDS - start)) s"
    end_singles
}

is_ready() {
    curl -sf -o "$stack/readyz" "http://127.0.0.1:${dispatcher_port[$1]}/readyz"
}

# start_standby: starts a synchronous standby of the stack's Postgres, and sets DATABASE_URL to
# both.
start_standby() {
    local folder="${postgres_data%/*}/standby" port bin command log="$run_folder/standby.log"
    bin="$(postgres_bin)"
    port="$(free_port)"
    (cd / && as_postgres "$bin/pg_basebackup" --pgdata="$folder" --write-recovery-conf \
        --wal-method=stream --checkpoint=fast \
        --dbname="$stack_database?application_name=standby") || fail "no base backup was made"
    command=("$bin/postgres" -D "$folder" -p "$port" -c listen_addresses=127.0.0.1
        -c unix_socket_directories= -c max_connections=300 -c shared_buffers=256MB)
    if ((EUID == 0)); then
        command=(setpriv --reuid postgres --regid postgres --init-groups -- "${command[@]}")
    fi
    start standby "$log" "${command[@]}"
    standby_pid=$started
    wait_for "$started" 30 grep -q 'accept read-only connections' "$log" ||
        fail "the standby did not start: $(tail -n 5 "$log")"
    sql "ALTER SYSTEM SET synchronous_standby_names = 'standby'"
    sql 'SELECT pg_reload_conf()' >"$stack/reload"
    wait_for "$started" 30 is_synchronous || fail "the standby is not synchronous"
    standby_url="${stack_database%@*}@127.0.0.1:$port/postgres"
    stack_database="${stack_database%/postgres},127.0.0.1:$port/postgres?target_session_attrs=read-write"
    export DATABASE_URL="$stack_database"
}

is_synchronous() {
    [[ "$(sql "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")" == 1 ]]
}

# ── What both need ──────────────────────────────────────────────────────────────────────────────

# begin_singles APP: starts two dispatchers, and makes an installation for each event.
begin_singles() {
    in_flight="${DISPATCH_IN_FLIGHT:-4096}"
    singles_paths="$stack/paths-$1"
    start_apns "$1" 100000000 "$singles_paths"
    create_app "$1" "$events"
    start_dispatcher 0 "$(apns_origin "$1")"
    start_dispatcher 1 "$(apns_origin "$1")"
}

# write_events APP RUN RATE: writes one for each installation, in the background.
write_events() {
    start events "$run_folder/events.log" "$bench" events "$1" "$requests_topic" "$2" "$events" \
        "$events" "$3"
    events_pid=$started
}

# The table with all of them is a different one before an upgrade.
settled_singles() { sql "SELECT coalesce(sum(targeted - pending), 0) FROM ${books:-all_pushes}"; }

# wait_for_singles COUNT: waits until this many are settled.
wait_for_singles() {
    local settled=0 last=-1 deadline=0
    while ((settled < $1)); do
        if ((settled > last)); then
            last=$settled
            deadline=$((SECONDS + 90))
        fi
        ((SECONDS < deadline)) || fail "nothing was settled for 90 s, at $settled of $1"
        sleep 0.2
        settled="$(settled_singles)"
    done
}

# finish_singles APP BOUND: waits for all of them, and compares the ledger with the provider's
# requests.
finish_singles() {
    local lines distinct named
    wait "$events_pid" || fail "not all events were written: $(cat "$run_folder/events.log")"
    forget "$events_pid"
    wait_for_singles "$events"
    # nginx buffers its log for a second; repeats are not in the ledger.
    sleep 3
    lines="$(wc -l <"$singles_paths")"
    sed 's|^/3/device/||; s| .*||' "$singles_paths" | LC_ALL=C sort -u >"$stack/sent"
    # The ids are included: a repeat with other ids would raise the count.
    named="$(LC_ALL=C sort -u "$singles_paths" | wc -l)"
    distinct="$(wc -l <"$stack/sent")"
    sql "COPY (SELECT token FROM installations WHERE app = '$1') TO STDOUT" |
        LC_ALL=C sort >"$stack/tokens"
    kcat -C -q -b "$KAFKA_BOOTSTRAP_SERVERS" -t "${KAFKA_TOPIC_PREFIX}push.outcomes" \
        -o beginning -e -f '%s\n' | jq -r --arg app "$1" 'select(.app == $app).installationId' |
        LC_ALL=C sort -u >"$stack/outcomes"
    say "  sent $lines times, $((lines - distinct)) of them repeats; at most $2 may be"
    promise "every installation was sent to ($(LC_ALL=C comm -13 "$stack/sent" "$stack/tokens" |
        wc -l) missed)" "$(cmp -s "$stack/sent" "$stack/tokens" && echo 1 || echo 0)"
    promise "every event has its push, and each is delivered" "$(sql "SELECT (count(*) = $events
        AND bool_and(status = 'done' AND targeted = 1 AND delivered = 1 AND pending = 0))::int
        FROM all_pushes WHERE app = '$1'")"
    promise "the ledger agrees with its rows" "$(sql "SELECT (count(*) = $events
        AND count(DISTINCT (push_id, target)) = $events AND bool_and(state = 1 AND owner IS NULL))::int
        FROM all_deliveries WHERE app = '$1'")"
    promise "every installation has an outcome on Kafka ($(wc -l <"$stack/outcomes"))" \
        $(($(wc -l <"$stack/outcomes") == events))
    promise "repeats are within the bound" $((lines - distinct <= $2))
    promise "each repeat has the apns-id and the collapse id of the first" $((named == distinct))
}

end_singles() {
    stop_dispatcher 0
    stop_dispatcher 1
    clear_books
}
