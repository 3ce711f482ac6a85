# Secure payloads stored by a service that is killed, and keys that are rotated during reads.
# Sourced by deploy/chaos.
# shellcheck shell=bash

scenario_secure() {
    local app=chaos-secure identity=user-0 posts=2000 kills=10 kill port pid driver verdict
    create_app "$app" 3
    start_apns plain
    start_dispatcher 0 "$(apns_origin plain)"
    port="$(free_port)"
    start_secure_payload
    python3 "$root/deploy/chaos.d/secure_clients.py" "$app" "$(jq -r .masterKey "$stack/$app.json")" \
        "$identity" "$posts" "$port" >"$stack/secure.json" 2>"$run_folder/secure-clients.log" &
    driver=$!
    for ((kill = 1; kill <= kills; kill++)); do
        wait_for "$driver" 60 are_kept $((posts * kill / (kills + 1))) || {
            say "  the posts were over before the kill number $kill"
            break
        }
        kill -KILL "$pid"
        wait "$pid" 2>/dev/null || true
        forget "$pid"
        start_secure_payload
    done
    say "  $((kill - 1)) times kill -9"
    wait "$driver" || fail "the clients did not end: $(tail -n 5 "$run_folder/secure-clients.log")"
    verdict="$(jq -c 'del(.ids)' "$stack/secure.json")"
    say "  $verdict"
    secure_known "$posts"

    promise "ten kills came in time" $((kill - 1 == kills))
    secure_promise "each of $posts posts was answered" ".answered == $posts"
    secure_promise "each that came again was answered as the first time" '.different == 0'
    secure_promise "its one reader reads each as it was posted" '.unreadable == 0'
    promise "each answered id has content, and one push" "$(sql "SELECT (count(*) = $posts)::int
        FROM answered a JOIN secure_payloads p ON p.id = a.id AND p.content IS NOT NULL
            AND p.push_id = a.push JOIN pushes u ON u.id = p.push_id
            AND u.event_id = 'secure/' || p.id")"
    promise "nothing else is kept, and no push is without content" "$(sql "SELECT
        ((SELECT count(*) FROM secure_payloads WHERE app = '$app') = $posts
            AND (SELECT count(*) FROM all_pushes WHERE app = '$app') = $posts)::int")"
    promise "push.requests has one event for each, repeats of a record apart" \
        "$(cmp -s "$stack/events" "$stack/expected" && echo 1 || echo 0)"
    promise "each is confirmed once" "$(sql "SELECT (count(*) FILTER (WHERE confirmed = 1)
        = $posts)::int FROM all_pushes WHERE app = '$app'")"
    wait_for "${dispatcher_pid[0]}" 60 secure_are_over || true
    promise "each rang the three devices" "$(sql "SELECT (sum(delivered) = 3 * $posts)::int
        FROM all_pushes WHERE app = '$app'")"
    promise "the books of all pushes balance" "$(sql "SELECT (count(*) = 0)::int FROM all_pushes
        WHERE targeted <> delivered + failed + expired + suppressed + in_doubt + pending")"
    stop_service "$pid"
    stop_dispatcher 0
    clear_books
}

# secure_promise TEXT CONDITION: checks the clients' result.
secure_promise() { promise "$1" "$(jq "if $2 then 1 else 0 end" <<<"$verdict")"; }

are_kept() {
    (($(sql "SELECT count(*) FROM secure_payloads WHERE app = '$app'") >= $1))
}

secure_are_over() {
    [[ "$(sql "SELECT count(*) FROM all_pushes WHERE app = '$app' AND (pending > 0 OR targeted = 0)")" \
        == 0 ]]
}

# secure_known COUNT: makes a table of the responses, and of the records on Kafka once all have
# come.
secure_known() {
    sql 'DROP TABLE IF EXISTS answered; CREATE TABLE answered (id text, push uuid)' 2>/dev/null
    jq -r '.ids[] | @tsv' "$stack/secure.json" | "$(postgres_bin)/psql" -X -q \
        -v ON_ERROR_STOP=1 -c '\copy answered FROM STDIN' "$stack_database"
    wait_for "$pid" 60 outbox_is_empty || true
    kcat -C -q -b "$KAFKA_BOOTSTRAP_SERVERS" -t "$requests_topic" -o beginning -e |
        jq -r --arg app "$app" 'select(.app == $app) | .id' | LC_ALL=C sort -u >"$stack/events"
    jq -r '.ids[] | "secure/\(.[0])"' "$stack/secure.json" | LC_ALL=C sort >"$stack/expected"
}

outbox_is_empty() { [[ "$(sql 'SELECT count(*) FROM outbox')" == 0 ]]; }

# start_secure_payload [NAME=VALUE…]: starts it on `port`, as process `pid`, and waits until it is
# ready.
start_secure_payload() {
    local log="$run_folder/secure-payload.log"
    start secure-payload "$log" env HTTP_HOST=127.0.0.1 HTTP_PORT="$port" LOG_FORMAT=json \
        HTTP_ACCESS_LOG=false "$@" "$bin/carillon-secure-payload"
    pid=$started
    wait_for "$started" 60 curl -sf -o "$stack/readyz" "http://127.0.0.1:$port/readyz" ||
        fail "secure payloads are not ready: $(tail -n 5 "$log")"
}

# ── Keys that change ────────────────────────────────────────────────────────────────────────────

scenario_rotation() {
    local app=chaos-keys master port pid rotation load old new left=0 before="$CARILLON_MASTER_KEYS"
    old="${before%%:*}"
    create_app "$app" 3
    master="$(jq -r .masterKey "$stack/$app.json")"
    port="$(free_port)"
    start_secure_payload
    rotation_payloads
    stop_service "$pid"

    new="next:$(head -c 32 /dev/urandom | base64 -w 0)"
    export CARILLON_MASTER_KEYS="$new,$before"
    start_secure_payload
    say "  $(under_key "$old") payloads are under the old key"
    rm -f "$stack"/{rotated,reads,failures}
    rotation_reads &
    load=$!
    start_rotation first
    wait_for "$rotation" 600 has_begun || true
    stop_pid "$rotation" INT 30
    forget "$rotation"
    left="$(under_key "$old")"
    say "  Ctrl-C, at $left left"
    start_rotation again
    wait "$rotation" || fail "the keys were not rotated: $(tail -n 5 "$run_folder/rotate-again.log")"
    forget "$rotation"
    touch "$stack/rotated"
    wait "$load"
    carillon keys status | sed 's/^/  /'
    promise "it was ended in the middle by Ctrl-C, and went on" $((left > 0 && left < payloads))
    promise "keys status has nothing under the old key, and says that it may go" \
        "$(carillon keys status --json | jq --arg key "$old" \
            'if .keys[$key] == null and (.mayGo | index($key)) then 1 else 0 end')"
    stop_service "$pid"

    export CARILLON_MASTER_KEYS="$new"
    start_secure_payload
    rotation_load each 3600
    promise "none of $(jq -s 'map(.answers) | add' "$stack/reads") reads failed, all at last by the new key alone" \
        "$([[ -s "$stack/failures" ]] && echo 0 || echo 1)"
    stop_service "$pid"
    # By now the other scenarios' apps are under the new one.
    export CARILLON_MASTER_KEYS="$before,$new"
    sql "DELETE FROM secure_payloads WHERE app = '$app'"
    clear_books
}

# start_rotation NAME: starts it as process `rotation`, which Ctrl-C ends.
start_rotation() {
    start "rotate-$1" "$run_folder/rotate-$1.log" env --default-signal=INT "$bin/carillon" keys rotate
    rotation=$started
}

has_begun() { (($(under_key "$old") < payloads)); }

# rotation_payloads: makes as many as needed, and a file of reads of them.
rotation_payloads() {
    local proof secret
    proof="$(printf '%s:%s' "$app" "$master" | base64 -w 0)"
    secret="$(curl -sS --fail-with-body -X PUT "http://127.0.0.1:$port/v1/identities/user-0/secret" \
        -u "$app:$master" -H 'Content-Type: application/json' -d '{}' | jq -er .secret)"
    jq -nr --arg proof "$proof" --argjson count "$payloads" 'range($count) | ["write",
        "Basic \($proof)", "POST /api/notifications",
        ({identity: "user-0", payload: "secret number \(.)"} | tojson)] | @tsv' >"$stack/posts"
    "$bench" requests "$port" "$stack/posts" each 64 3600 >/dev/null
    proof="$(printf 'user-0:%s' "$secret" | base64 -w 0)"
    sql "COPY (SELECT 'read', 'Basic $proof', 'GET /$app/api/notifications/' || id
        FROM secure_payloads WHERE app = '$app') TO STDOUT" >"$stack/gets"
}

# rotation_reads: reads until all is rotated.
rotation_reads() {
    while [[ ! -e "$stack/rotated" ]]; do rotation_load any 1; done
}

# rotation_load any|each SECONDS: sends reads; a failed one ends the round.
rotation_load() {
    "$bench" requests "$port" "$stack/gets" "$1" 16 "$2" >>"$stack/reads" 2>>"$stack/failures" || true
}

# under_key KEY: prints how many payloads are sealed under it, as `carillon keys status` counts
# them.
under_key() { carillon keys status --json | jq --arg key "$1" '.securePayloads[$key] // 0'; }
