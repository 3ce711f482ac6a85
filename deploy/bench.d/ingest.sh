# Ingest: objects accepted over HTTP, compared with librdkafka's own producer; rows that the sink
# stores, compared with psql's COPY. Sourced by deploy/bench.
# shellcheck shell=bash

# Ingest and librdkafka's producer have one processor each, shared only with the broker; the clients
# have the other.
bench_ingest() {
    local app=ingest type=WeatherSensor port pid key rows=300000 count=1000000 pin=() on_first=()
    use_stack
    "${build_command[@]}" --product carillon-ingest
    ensure_packages gcc libc6-dev
    cc -O2 -o "$stack/kafka_producer" "$root/Tests/Benchmarks/kafka_producer.c" -lrdkafka
    if (($(nproc) > 1)); then
        pin=(taskset -c 1)
        on_first=(taskset -c 0)
    fi
    create_app "$app" 0
    key="$(jq -r .appKey "$stack/$app.json")"
    jq -n '{type: "object", properties: {_id: {type: "string"}, deviceId: {type: "string"},
        temperatureInFahrenheit: {type: "number"}, barometricPressureInHg: {type: "number"},
        windSpeedInMph: {type: "integer"}}, required: ["_id", "deviceId"],
        additionalProperties: false}' >"$stack/sensor.json"
    carillon ingest type put "$app" "$type" --schema "$stack/sensor.json" >"$run_folder/type.log"
    carillon app set "$app" realm-sync=on >"$run_folder/app-set.log"
    ingest_objects
    ingest_reference

    # This comes first, as the sink reads everything on the topic.
    take_turns ingest-sink -- ingest_sunk -- ingest_copied
    compare ingest-sink per_second "rows stored by the sink" "psql COPY" rows/s least 0.3
    figure ingest-sink sink_cpu "the sink's CPU for a row" ns - 0
    figure ingest-sink postgres_cpu "Postgres' CPU for a row" ns - 0

    start_ingest_service off "${on_first[@]}"
    take_turns ingest-accepted -- ingest_accepted 5 -- ingest_produced
    compare ingest-accepted per_second "objects accepted, batches of 100" librdkafka /s least 0.3
    figure ingest-accepted p99 "the same, p99 of a batch" ms - 0
    take_turns ingest-segment -- ingest_load segment 5 -- true
    figure ingest-segment per_second "Segment batches of 100 items" /s - 0
    ingest_realm
    stop_service "$pid"
    realm_sockets
}

# ingest_objects: makes `rows` objects as lines, and as requests: natively, 100 in each of 200
# bodies, and as Segment's batches.
ingest_objects() {
    local proof
    proof="$(printf '%s:' "$key" | base64 -w 0)"
    awk -v rows="$rows" 'BEGIN { for (i = 0; i < rows; i++) printf "{\"_id\":\"%024x\",\"deviceId\":\"WX%04dUIT\",\"temperatureInFahrenheit\":%.1f,\"barometricPressureInHg\":%.2f,\"windSpeedInMph\":%d}\n",
        i, i % 10000, 40 + i % 600 / 10, 28 + i % 300 / 100, i % 60 }' >"$stack/objects"
    head -n 20000 "$stack/objects" | awk -v proof="$proof" '
        { body = body (NR % 100 == 1 ? "[" : ",") $0 }
        NR % 100 == 0 { print "batch\tBasic " proof "\tPOST /v1/ingest/WeatherSensor\t" body "]"; body = "" }' \
        >"$stack/native"
    awk -v proof="$proof" 'BEGIN { for (batch = 0; batch < 100; batch++) {
        printf "batch\tBasic %s\tPOST /v1/batch\t{\"batch\":[", proof
        for (i = 0; i < 100; i++) printf "%s{\"type\":\"track\",\"event\":\"Reading\",\"userId\":\"user-%d\",\"anonymousId\":null,\"properties\":{\"temperature\":%.1f,\"place\":\"Oslo\"},\"context\":{\"library\":{\"name\":\"analytics-node\",\"version\":\"3.1.0\"}},\"timestamp\":\"2026-11-25T08:00:00.000Z\",\"messageId\":\"00000000-0000-4000-8000-%012x\"}",
            i ? "," : "", batch * 100 + i, i / 10, batch * 100 + i
        print "],\"sentAt\":\"2026-11-25T08:00:00.000Z\"}" } }' >"$stack/segment"
}

# start_ingest_service on|off [COMMAND…]: starts it with or without the sink, behind the command; on
# `port`, as process `pid`.
start_ingest_service() {
    local log="$run_folder/ingest.log" sink="$1"
    shift
    # With one processor it has one loop.
    start ingest "$log" "$@" env HTTP_HOST=127.0.0.1 HTTP_PORT=0 LOG_FORMAT=json HTTP_ACCESS_LOG=false \
        SHUTDOWN_GRACE=10s INGEST_SINK="$sink" KAFKA_GROUP_ID="${KAFKA_TOPIC_PREFIX}ingest" \
        "$bin/carillon-ingest"
    pid=$started
    wait_for "$started" 30 grep -qs '"message":"listening"' "$log" ||
        fail "ingest did not start: $(tail -n 5 "$log")"
    port="$(jq -nrR 'first(inputs | fromjson?
        | select(.message == "listening" and .scheme == "http")).port' "$log")"
    wait_for "$started" 60 curl -sf -o "$stack/readyz" "http://127.0.0.1:$port/readyz" ||
        fail "ingest is not ready: $(cat "$stack/readyz")"
}

# ── Intake ──────────────────────────────────────────────────────────────────────────────────────

# ingest_load FILE SECONDS: sends over 32 connections that stay open.
ingest_load() { ${pin[@]+"${pin[@]}"} "$bench" requests "$port" "$stack/$1" any 32 "$2"; }

ingest_accepted() {
    local before after
    before="$(ingest_metric ingest_objects_accepted_total)"
    ingest_load native "$1" >"$stack/accepted.json"
    after="$(ingest_metric ingest_objects_accepted_total)"
    # The first part of the load is a warm-up, which is not in its count of responses.
    jq --argjson counted $((after - before)) 'if $counted < .answers * 100 then error("not all was accepted")
        else {per_second: (.per_second * 100), p99} end' "$stack/accepted.json"
}

# ingest_metric NAME: prints the sum over its labels.
ingest_metric() {
    curl -sf "http://127.0.0.1:$port/metrics" | awk -v name="$1" '
        $1 == name || index($1, name "{") == 1 { sum += $2 } END { printf "%d\n", sum }'
}

ingest_produced() {
    ${on_first[@]+"${on_first[@]}"} "$stack/kafka_producer" "${KAFKA_TOPIC_PREFIX}ingest.$type" "$count" \
        "$stack/objects" "$app"
}

# ── The sink ────────────────────────────────────────────────────────────────────────────────────

# ingest_reference: makes a table with the columns of the sink's table, and with its keys.
ingest_reference() {
    ingest_table="$(sql "SELECT 'ingest_objects_' || number FROM ingest_types
        WHERE app = '$app' AND name = '$type'")"
    sql "CREATE TABLE bench_objects (LIKE $ingest_table INCLUDING ALL)"
    sql 'ALTER TABLE bench_objects ADD UNIQUE (app, id)'
}

# ingest_sunk: runs one round of `rows` new objects, which wait on Kafka, and measures from the
# first rows to the last.
ingest_sunk() {
    local from first cpu sink
    sql "TRUNCATE $ingest_table, ingest_keys"
    "$stack/kafka_producer" "${KAFKA_TOPIC_PREFIX}ingest.$type" "$rows" "$stack/objects" "$app" >/dev/null
    start_ingest_service on
    sink=$pid
    wait_for "$sink" 60 ingest_has 1 || fail "the sink stores nothing: $(tail -n 5 "$run_folder/ingest.log")"
    first="$(sql "SELECT count(*) FROM $ingest_table")"
    from="$EPOCHREALTIME"
    cpu="$(jq -n --argjson sink "$(tree_cpu "$sink")" --argjson postgres "$(tree_cpu "$postgres_pid")" \
        '{$sink, $postgres}')"
    wait_for "$sink" 300 ingest_has "$rows" || fail "not all is stored"
    jq -n --argjson count $((rows - first)) --arg from "$from" --arg to "$EPOCHREALTIME" \
        --argjson cpu "$cpu" --argjson sink "$(tree_cpu "$sink")" \
        --argjson postgres "$(tree_cpu "$postgres_pid")" '
        {per_second: ($count / (($to | tonumber) - ($from | tonumber))),
         sink_cpu: (($sink - $cpu.sink) / $count), postgres_cpu: (($postgres - $cpu.postgres) / $count)}'
    if [[ ! -s "$stack/rows" ]]; then
        sql "COPY (SELECT * FROM $ingest_table) TO STDOUT" >"$stack/rows"
    fi
    stop_service "$sink"
}

ingest_has() { (($(sql "SELECT count(*) FROM $ingest_table") >= $1)); }

ingest_copied() {
    sql 'TRUNCATE bench_objects'
    printf '%s\n' '\timing on' "\\copy bench_objects FROM '$stack/rows'" >"$stack/copy.sql"
    "$(postgres_bin)/psql" -X -q -v ON_ERROR_STOP=1 -f "$stack/copy.sql" "$stack_database" |
        jq -R --argjson rows "$rows" 'capture("^Time: (?<ms>[0-9.]+)").ms | tonumber
            | {per_second: ($rows * 1000 / .)}'
}
