# Events for single devices: how many a second, and how soon each is at its provider. Sourced by
# deploy/bench.
# shellcheck shell=bash

bench_events() {
    local size app rate runs=0 broadcasts=0 count=100000 rounds=$rounds
    ensure_packages nghttp2-client
    use_stack
    start_apns constant
    size="$(printf '%s\n' "${sizes[@]}" | sort -n | tail -n 1)"
    app="all-$(size_name "$size")"
    create_app "$app" "$size"
    create_app hanging 10000

    start_dispatcher events "$(apns_origin constant)"
    take_turns events -- our_events -- h2load_alone
    stop_dispatcher events
    compare events per_second "events, each for one device" h2load /s least 0.12
    compare events dispatcher_cpu "events, dispatcher's CPU" h2load ns most 5
    figure events postgres_cpu "events, Postgres' CPU" ns most 40000
    # Half of what a push, a delivery and a key of their own took.
    figure events wal "events, write-ahead log each" B most 1550
    figure events bytes "events, kept each" B most 850
    figure events broker_cpu "events, broker's CPU" ns - 0
    rate="$(jq -s 'map(.per_second) | sort | .[length / 2 | floor] / 2 | floor' \
        "$run_folder/events.ours")"

    start_sink com.example.hanging
    clear_books
    start_dispatcher events "https://localhost:$sink_port"
    events_at 500 1 >/dev/null
    take_turns latency -- events_at "$rate" 10 -- true
    latency_rows latency "at $rate events/s" 15 50
    stages latency "at $rate events/s"
    take_turns steady -- events_at 2000 10 -- true
    latency_rows steady "at 2000 events/s" 8 -
    rounds=3
    take_turns beside-broadcast -- events_beside_broadcast -- true
    latency_rows beside-broadcast "beside a broadcast" 40 -
    stop_dispatcher events
    measure_beside_hanging
    stop_service "$sink_pid"
}

# latency_rows NAME TITLE P99 P999: event to provider, with the bounds of both; `-`: none.
latency_rows() {
    figure "$1" p50 "p50 $2" ms - 0
    figure "$1" p99 "p99 $2" ms most "$3"
    if [[ "$4" == - ]]; then
        figure "$1" p999 "p99.9 $2" ms - 0
    else
        figure "$1" p999 "p99.9 $2" ms most "$4"
    fi
}

# stages NAME TITLE: where the time went since this dispatcher started, from the buckets of its
# histogram: the upper end of the one that the 99th of a hundred is in.
stages() {
    local stage
    curl -sf "http://127.0.0.1:${dispatcher_port[events]}/metrics" |
        grep '^push_event_stage_seconds_bucket' >"$stack/stages"
    for stage in fetched looked_up rendered handed_over on_the_wire answered acknowledged written; do
        awk -v stage="stage=\"$stage\"" 'index($0, stage) {
                match($0, /le="[^"]*"/)
                bound[++count] = substr($0, RSTART + 4, RLENGTH - 5)
                below[count] = $NF
            }
            END {
                if (!count) exit
                for (i = 1; below[i] < 0.99 * below[count]; i++) {}
                printf "{\"%s\": %s}\n", "p99", bound[i] == "+Inf" ? 60000 : bound[i] * 1000
            }' "$stack/stages" >"$run_folder/stage-$stage.ours"
        if [[ -s "$run_folder/stage-$stage.ours" ]]; then
            figure "stage-$stage" p99 "p99 of the stage $stage, at most, $2" ms - 0
        fi
    done
}

# our_events: one round of `count` events, written as fast as Kafka takes them. From the first to the
# last outcome recorded.
our_events() {
    local before cpu written wal empty
    when_closed clear_books
    wal="$(wal_now)"
    empty="$(books_bytes)"
    before="$(settled_deliveries)"
    cpu="$(cpu_now constant)"
    written="$("$bench" events "$app" "$requests_topic" "round-$((++runs))" "$size" "$count" 0)"
    wait_until_settled $((before + count))
    cpu="$(cpu_since "$cpu" constant "$count")"
    jq -n --argjson count "$count" --argjson cpu "$cpu" \
        --argjson books "$(books_since "$wal" "$empty" "$count")" --argjson written "$written" \
        --argjson to "$(sql "SELECT extract(epoch FROM max(finished_at)) * 1e6 FROM all_pushes")" \
        --argjson delivered "$(sql 'SELECT count(*) FROM all_deliveries WHERE state = 1')" '
        if $delivered != $count then error("\($delivered) of \($count) events were delivered")
        else {per_second: ($count * 1e6 / ($to - $written.first))} + $cpu + $books end'
}

# What the dispatcher has settled since it started, whatever the outcome.
settled_deliveries() {
    curl -sf "http://127.0.0.1:${dispatcher_port[events]}/metrics" |
        awk '/^push_deliveries_total/ { sum += $NF } END { printf "%.0f\n", sum }'
}

# wait_until_settled COUNT: gives up where nothing moves for 30 seconds.
wait_until_settled() {
    local last=-1 now deadline=0
    while now="$(settled_deliveries)" && ((now < $1)); do
        if ((now > last)); then
            last=$now
            deadline=$((SECONDS + 30))
        fi
        ((SECONDS < deadline)) || fail "nothing moves at $now of $1 deliveries"
        sleep 0.2
    done
}

# ── Latency ─────────────────────────────────────────────────────────────────────────────────────

# start_sink TOPIC [PROJECT]: what stands for APNs and FCM and knows when each event came; TOPIC gets no
# answer, nor does FCM's PROJECT.
start_sink() {
    local log="$run_folder/sink.log"
    start sink "$log" "$bench" sink "$stack/certificate.pem" "$stack/key.pem" "$@"
    sink_pid=$started
    wait_for "$started" 10 grep -q . "$log" || fail "carillon-bench sink did not start"
    sink_port="$(jq -r .https "$log")"
    sink_control="http://127.0.0.1:$(jq -r .http "$log")"
}

# events_at RATE SECONDS: that many events a second, each for one device; prints the sink's figures.
events_at() {
    local late=60
    curl -sf -X POST "$sink_control/reset"
    "$bench" events "$app" "$requests_topic" "paced-$((++runs))" "$size" $(($1 * $2)) "$1" >/dev/null
    if has_arrived $(($1 * $2)) $late; then
        arrivals
    else
        say "$(curl -sf "$sink_control/count") of $(($1 * $2)) events came within $late s" >&2
        arrivals | jq --argjson late "$late" '{p50, p99: ($late * 1000), p999: ($late * 1000)}'
    fi
}

# What arrived since the last look.
arrivals() { curl -sf "$sink_control/arrivals"; }

# has_arrived COUNT SECONDS
has_arrived() {
    local deadline=$((SECONDS + $2))
    until (($(curl -sf "$sink_control/count") >= $1)); do
        ((SECONDS < deadline)) || return 1
        sleep 0.1
    done
}

# events_beside_broadcast: one round of 500 events a second, as long as a broadcast of a million
# runs; as many broadcasts as make a million, or ten, where the app has fewer installations.
events_beside_broadcast() {
    local id last=$((broadcasts + (1000000 / size < 10 ? 1000000 / size : 10))) figures writer
    when_closed clear_books
    curl -sf -X POST "$sink_control/reset"
    start events "$run_folder/events.log" "$bench" events "$app" "$requests_topic" \
        "beside-$((++runs))" "$size" 1000000 500
    writer=$started
    sleep 1
    arrivals >/dev/null
    for ((id = broadcasts + 1; id <= last; id++)); do broadcast "$app" "beside-$id"; done
    for ((id = broadcasts + 1; id <= last; id++)); do
        finished_push "$app" "beside-$id" >"$stack/beside"
    done
    broadcasts=$last
    figures="$(arrivals)"
    stop_service "$writer"
    has_arrived "$(jq .written "$run_folder/events.log")" 60 || fail "events are missing"
    echo "$figures"
}

# measure_beside_hanging: another app's provider takes its notifications, 200 a second, and answers
# none of them.
measure_beside_hanging() {
    local writer rounds=5
    when_closed clear_books
    start_dispatcher events "https://localhost:$sink_port"
    start events "$run_folder/hanging.log" "$bench" events hanging "$requests_topic" \
        hanging 10000 1000000 200
    writer=$started
    sleep 15
    take_turns beside-hanging -- events_at 500 5 -- true
    stop_service "$writer"
    stop_dispatcher events
    clear_books
    latency_rows beside-hanging "beside a hanging app" 20 -
}

# when_closed COMMAND…: runs it once no push is open.
when_closed() {
    local deadline=$((SECONDS + 60))
    until [[ "$(sql 'SELECT count(*) FROM all_pushes WHERE finished_at IS NULL')" == 0 ]]; do
        ((SECONDS < deadline)) || fail "pushes are still open"
        sleep 0.2
    done
    "$@"
}
