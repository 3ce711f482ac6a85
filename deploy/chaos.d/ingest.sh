# Objects of devices, while ingest, sink and broker are killed and Postgres is stopped. Sourced by
# deploy/chaos.
# shellcheck shell=bash

scenario_ingest() {
    local app=chaos-ingest type=WeatherSensor kills=5 kill port sink_port driver verdict view rate stored
    local start=$SECONDS before during from
    local -A ingest_pid=()
    "${build_command[@]}" --product carillon-ingest
    create_app "$app" 0
    ingest_schema >"$stack/sensor.json"
    carillon ingest type put "$app" "$type" --schema "$stack/sensor.json" >"$run_folder/type.log"
    view="$(carillon ingest type show "$app" "$type" --json | jq -er .view)"
    port="$(free_port)"
    sink_port="$(free_port)"
    start_ingest intake
    start_ingest sink
    # It is slow enough that each kill comes in the middle.
    rate=$((objects / 200 + 100))
    echo 0 >"$stack/progress"
    python3 "$root/deploy/chaos.d/ingest_clients.py" "$(jq -r .appKey "$stack/$app.json")" "$type" \
        "$objects" "$rate" "$port" "$stack/progress" "$stack/acknowledged" \
        >"$stack/ingest.json" 2>"$run_folder/ingest-clients.log" &
    driver=$!
    for ((kill = 1; kill <= kills; kill++)); do
        ingest_reaches $((3 * kill - 2)) || break
        say "  kill -9 of intake, at $(acknowledged) acknowledged"
        kill_ingest intake
        start_ingest intake
        ingest_reaches $((3 * kill - 1)) || break
        say "  kill -9 of the sink, at $(ingest_stored) stored"
        kill_ingest sink
        start_ingest sink
        ingest_reaches $((3 * kill)) || break
        say "  kill -9 of the broker, at $(acknowledged) acknowledged"
        kill_broker
    done
    running "$driver" || say "  the clients are done already; more --objects give time"
    # The broker is back, and accepts the waiting objects.
    from="$(acknowledged)"
    wait_for "$driver" 60 are_acknowledged $((from + 1)) || true
    say "  Postgres is stopped for 30 s, at $(acknowledged) acknowledged"
    mapfile -d '' -t again_command <"/proc/$postgres_pid/cmdline"
    before="$(acknowledged)"
    stop_pid "$postgres_pid" QUIT 10
    forget "$postgres_pid"
    sleep 30
    during=$(($(acknowledged) - before))
    start_postgres_again
    say "  $during were acknowledged meanwhile"
    wait "$driver" || fail "the clients did not end: $(tail -n 5 "$run_folder/ingest-clients.log")"
    verdict="$(jq -c . "$stack/ingest.json")"
    say "  $verdict"
    stored=$SECONDS
    wait_for_stored
    say "  all is stored $((SECONDS - stored)) s later, after $((SECONDS - start)) s in all"

    LC_ALL=C sort "$stack/acknowledged" >"$stack/expected"
    sql "COPY (SELECT _id FROM $view) TO STDOUT" | LC_ALL=C sort >"$stack/stored"
    promise "five kills each of intake, sink and broker came in time" $((kill - 1 == kills))
    promise "each of $objects objects was acknowledged" \
        "$(jq --argjson objects "$objects" 'if .acknowledged == $objects and .refused == 0 then 1 else 0 end' \
            <<<"$verdict")"
    promise "intake went on while Postgres was away ($during)" $((during > 0))
    promise "every acknowledged object is in Postgres ($(LC_ALL=C comm -23 "$stack/expected" \
        <(uniq "$stack/stored") | wc -l) missing)" \
        $(($(LC_ALL=C comm -23 "$stack/expected" <(uniq "$stack/stored") | wc -l) == 0))
    promise "each of them once ($(uniq -d "$stack/stored" | wc -l) more often)" \
        $(($(uniq -d "$stack/stored" | wc -l) == 0))
    promise "none is there that was not sent ($(LC_ALL=C comm -13 "$stack/expected" "$stack/stored" | wc -l))" \
        $(($(LC_ALL=C comm -13 "$stack/expected" "$stack/stored" | wc -l) == 0))
    promise "each is as it was sent" "$(sql "SELECT (count(*) = 0)::int FROM (SELECT *,
            ('x' || right(_id, 8))::bit(32)::int AS n FROM $view) AS o
        WHERE \"deviceId\" <> 'WX' || n % 1000 OR \"windSpeedInMph\" <> n % 100
            OR \"temperatureInFahrenheit\" <> (n % 1000) / 8.0 OR _id <> _object->>'_id'")"
    promise "none is a dead letter" "$(($(dead_letters_of "$app" | wc -l) == 0))"
    say "  records on Kafka: $(kcat -C -q -b "$KAFKA_BOOTSTRAP_SERVERS" -t "${KAFKA_TOPIC_PREFIX}ingest.$type" \
        -o beginning -e -f '%k\n' | wc -l)"
    stop_service "${ingest_pid[intake]}"
    stop_service "${ingest_pid[sink]}"
}

# dead_letters_of APP: prints the content of each dead letter of an app.
dead_letters_of() {
    kcat -C -q -J -b "$KAFKA_BOOTSTRAP_SERVERS" -t "${KAFKA_TOPIC_PREFIX}push.dead-letters" -o beginning -e |
        jq -r --arg app "$1" 'select(.headers as $all | any(range(0; $all | length; 2);
            $all[.] == "app" and $all[. + 1] == $app)) | .payload'
}

ingest_schema() {
    jq -n '{type: "object", properties: {_id: {type: "string"}, deviceId: {type: "string"},
        temperatureInFahrenheit: {type: "number"}, windSpeedInMph: {type: "integer"}},
        required: ["_id", "deviceId"], additionalProperties: false}'
}

# start_ingest intake|sink: starts each as a process of its own.
start_ingest() {
    local name="$1" log="$run_folder/ingest-$1.log" at="$port" sink=off
    if [[ "$name" == sink ]]; then
        at="$sink_port"
        sink=on
    fi
    start "ingest-$name" "$log" env HTTP_HOST=127.0.0.1 HTTP_PORT="$at" LOG_FORMAT=json \
        HTTP_ACCESS_LOG=false INGEST_SINK="$sink" KAFKA_GROUP_ID="${KAFKA_TOPIC_PREFIX}ingest" \
        "$bin/carillon-ingest"
    ingest_pid[$name]=$started
    wait_for "$started" 60 curl -sf -o "$stack/readyz" "http://127.0.0.1:$at/readyz" ||
        fail "the $name is not ready: $(tail -n 5 "$log" "$stack/readyz")"
}

kill_ingest() {
    kill -KILL "${ingest_pid[$1]}"
    wait "${ingest_pid[$1]}" 2>/dev/null || true
    forget "${ingest_pid[$1]}"
}

# start_postgres_again: starts it by `again_command`, after its last process has ended.
start_postgres_again() {
    local as=()
    if ((EUID == 0)); then as=(setpriv --reuid postgres --regid postgres --init-groups --); fi
    start postgres "$run_folder/postgres-again.log" ${as[@]+"${as[@]}"} "${again_command[@]}"
    postgres_pid=$started
    wait_for "$started" 60 answers_sql || fail "Postgres did not start again"
}

# ingest_reaches STEP: waits until this many eighteenths are acknowledged, and the clients are not
# done.
ingest_reaches() {
    wait_for "$driver" 300 are_acknowledged $((objects * $1 / 18)) && running "$driver"
}

acknowledged() { cat "$stack/progress"; }
are_acknowledged() {
    sleep 0.05
    (($(acknowledged) >= $1))
}

ingest_stored() { sql "SELECT count(*) FROM $view"; }

# wait_for_stored: waits until all are stored, or none was for a minute.
wait_for_stored() {
    local count=0 last=-1 deadline=0
    while ((count < objects)); do
        if ((count > last)); then
            last=$count
            deadline=$((SECONDS + 60))
        fi
        ((SECONDS < deadline)) || break
        sleep 0.5
        count="$(ingest_stored)"
    done
}
