# The modules JSON, Postgres and Kafka. Sourced by deploy/bench.
# shellcheck shell=bash

bench_json() {
    local record="$root/Tests/Benchmarks/record.json"
    take_turns json -- "$bench" json "$record" \
        -- "$python/bin/python" "$root/Tests/Benchmarks/orjson_figures.py" "$record"
    compare json read_ns "JSON record to value tree" orjson ns most 2
    compare json write_ns "value tree to JSON record" orjson ns most 5
    # Reading in place must be faster than the tree, or it is not worth its code.
    in_place fields "5 fields of the record, in place" 0.5
    in_place offsets "100 numbers of 80 KB, in place" 0.35
}

# in_place KEY TITLE BOUND: compares the reader's time with our tree.
in_place() {
    jq ".$1 | {ns: .in_place_ns}" "$run_folder/json.ours" >"$run_folder/json-$1.ours"
    jq ".$1 | {ns: .tree_ns}" "$run_folder/json.ours" >"$run_folder/json-$1.theirs"
    compare "json-$1" ns "$2" "our tree" ns most "$3"
}

bench_postgres() {
    ensure_packages "${server_packages[@]}"
    start_postgres "$run_folder/postgres" fsync=on full_page_writes=on
    local server="$DATABASE_URL" programs
    programs="$(postgres_bin)"
    cat >"$run_folder/upsert.sql" <<'SQL'
\set id random(1, 10000)
INSERT INTO bench_upsert VALUES (:id, :body) ON CONFLICT (id) DO UPDATE SET body = excluded.body;
SQL
    cat >"$run_folder/copy.sql" <<'SQL'
\timing on
\copy (SELECT id, token, valid, updated_at FROM bench_copy) TO /dev/null WITH (FORMAT binary)
SQL
    "$programs/psql" -X -q -v body="$("$bench" postgres body)" \
        -f "$root/Tests/Benchmarks/postgres.sql" "$server"

    # The time of a disk flush changes by the second: short rounds, and more of them.
    local rounds=$((rounds * 3))
    upsert_count=500
    take_turns upsert -- our_upserts -- pgbench_upserts
    compare upsert one "upsert, 1 caller" pgbench /s least 0.9
    compare upsert many "upsert, 64 callers" pgbench /s least 6
    # Commits cost nothing here. The rest of the time is the server's own work, about 11 µs a row;
    # the bounds only detect a fault.
    export DATABASE_URL="$server?options=-csynchronous_commit%3Doff"
    upsert_count=4000
    take_turns upsert-nowait -- our_upserts -- pgbench_upserts
    compare upsert-nowait one "the same, no wait, 1" pgbench /s least 0.6
    compare upsert-nowait many "the same, no wait, 64" pgbench /s least 2.5
    export DATABASE_URL="$server"
    take_turns copy -- "$bench" postgres copy -- psql_copy
    compare copy per_second "COPY out to values" psql rows/s least 0.6
}

our_upserts() {
    jq -n --argjson one "$("$bench" postgres upsert 1 "$upsert_count")" \
        --argjson many "$("$bench" postgres upsert 64 $((upsert_count * 12)))" \
        '{one: $one.per_second, many: $many.per_second}'
}

# pgbench and psql report the time without connecting; ours does the same.
pgbench_upserts() {
    "$(postgres_bin)/pgbench" -n -c 1 -M prepared -t "$upsert_count" \
        -D body="$("$bench" postgres body)" -f "$run_folder/upsert.sql" "$DATABASE_URL" \
        2>"$run_folder/pgbench.log" | jq -R 'capture("^tps = (?<tps>[0-9.]+)").tps | tonumber
            | {one: ., many: .}'
}

psql_copy() {
    "$(postgres_bin)/psql" -X -q -f "$run_folder/copy.sql" "$DATABASE_URL" | jq -R '
        capture("^Time: (?<ms>[0-9.]+)").ms | tonumber | {per_second: (500000000 / .)}'
}

bench_kafka() {
    ensure_packages "${server_packages[@]}"
    if [[ -z "${KAFKA_BOOTSTRAP_SERVERS:-}" ]]; then
        ensure_packages "${kafka_packages[@]}"
        start_kafka "$run_folder/kafka"
    fi
    kafka_count=500000
    kafka_round=0
    kafka_prefix="bench-$$-$RANDOM"
    "$bench" kafka lines "$kafka_count" >"$run_folder/lines"
    take_turns produce -- our_records_written -- kcat_records_written
    compare produce per_second "produce, idempotent" kcat /s least 0.7
    kafka_count=3000000
    kafka_topic="$kafka_prefix-read"
    "$bench" kafka topic "$kafka_topic" 12 >/dev/null
    "$bench" kafka produce "$kafka_topic" "$kafka_count" >/dev/null
    take_turns consume -- our_records_read -- kcat_records_read
    compare consume member "consume, in a group" "kcat -G" /s least 0.7
    compare consume alone "the same, against no group" "kcat -C" /s least 0.5
}

# per_second COUNT COMMAND…: runs it, and prints the rate.
per_second() {
    local count="$1" start="$EPOCHREALTIME"
    shift
    "$@" >/dev/null
    jq -n --argjson count "$count" --arg from "$start" --arg to "$EPOCHREALTIME" \
        '{per_second: ($count / (($to | tonumber) - ($from | tonumber)))}'
}

# Each round writes to a topic of its own, so that both sides find an empty one.
our_records_written() {
    local topic="$kafka_prefix-ours-$((++kafka_round))"
    "$bench" kafka topic "$topic" 12 >/dev/null
    per_second "$kafka_count" "$bench" kafka produce "$topic" "$kafka_count"
}

kcat_records_written() {
    local topic="$kafka_prefix-theirs-$kafka_round"
    "$bench" kafka topic "$topic" 12 >/dev/null
    per_second "$kafka_count" kcat -P -q -b "$KAFKA_BOOTSTRAP_SERVERS" -t "$topic" -X acks=all \
        -X enable.idempotence=true -X linger.ms=5 -X compression.codec=none -l "$run_folder/lines"
}

our_records_read() {
    per_second "$kafka_count" "$bench" kafka consume "$kafka_topic" "$kafka_count" |
        jq '{member: .per_second, alone: .per_second}'
}

kcat_records_read() {
    local settings=() setting
    for setting in auto.offset.reset=earliest partition.assignment.strategy=cooperative-sticky \
        heartbeat.interval.ms=500 session.timeout.ms=6000 fetch.max.bytes=8388608; do
        settings+=(-X "$setting")
    done
    jq -n --argjson member "$(per_second "$kafka_count" kcat -q -b "$KAFKA_BOOTSTRAP_SERVERS" \
        "${settings[@]}" -c "$kafka_count" -G "$kafka_prefix-$RANDOM$RANDOM" "$kafka_topic")" \
        --argjson alone "$(per_second "$kafka_count" kcat -C -q -b "$KAFKA_BOOTSTRAP_SERVERS" \
            -t "$kafka_topic" -o beginning -c "$kafka_count")" \
        '{member: $member.per_second, alone: $alone.per_second}'
}
