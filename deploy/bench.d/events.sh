# Events for single devices: their rate, and the latency to the provider. Sourced by deploy/bench.
# shellcheck shell=bash

# A week of a service with 300,000 such events a day.
history_days=7
history_rows=300000

bench_events() {
    local size app rate runs=0 broadcasts=0 count=100000 rounds=$rounds
    ensure_packages nghttp2-client
    use_stack
    start_apns constant
    size="$(printf '%s\n' "${sizes[@]}" | sort -n | tail -n 1)"
    app="all-$(size_name "$size")"
    create_app "$app" "$size"
    create_app hanging 10000

    clear_books
    start_dispatcher events "$(apns_origin constant)"
    take_turns events -- our_events clear_books -- h2load_alone
    stop_dispatcher events
    event_rows events "events on empty tables" -
    fill_history
    start_dispatcher events "$(apns_origin constant)"
    take_turns events-week -- our_events clear_rows -- h2load_alone
    stop_dispatcher events
    event_rows events-week "events after a week" bound
    rate="$(jq -s 'map(.per_second) | sort | .[length / 2 | floor] / 2 | floor' \
        "$run_folder/events-week.ours")"

    start_sink com.example.hanging
    clear_rows
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

# event_rows NAME TITLE -|bound: makes rows of an event's cost in each process. The bounds hold
# after a week.
event_rows() {
    local name="$1" title="$2" least=- most=-
    if [[ "$3" == bound ]]; then
        least=least
        most=most
    fi
    compare "$name" per_second "$title" h2load /s $least 0.14
    figure "$name" dispatcher_cpu "$title, dispatcher's CPU" ns $most 35000
    figure "$name" postgres_cpu "$title, Postgres' CPU" ns $most 36000
    figure "$name" broker_cpu "$title, broker's CPU" ns $most 15000
    figure "$name" wal "$title, write-ahead log each" B $most 1550
    figure "$name" bytes "$title, kept each" B $most 800
    figure "$name" outcomes "$title, outcomes a produce request" "" - 0
    figure "$name" looked_up "$title, a look-up" "" - 0
    figure "$name" written "$title, a write" "" - 0
}

# fill_history: makes a week of earlier events, in the stored form of those of the last round.
fill_history() {
    note "filling $history_days days of $history_rows events each"
    "$bench" history "$history_days" >/dev/null
    sql "CREATE TEMPORARY TABLE one AS SELECT * FROM event_pushes WHERE app = '$app' LIMIT 1;
        TRUNCATE event_pushes;
        INSERT INTO event_pushes (id, day, app, event_source, event_id, request, notes, is_sandbox,
                delivered, failed, expired, suppressed, in_doubt, invalid_tokens, deliveries, failures,
                expires_at, created_at, finished_at)
            SELECT md5(p.event_id)::uuid, (p.at AT TIME ZONE 'UTC')::date, app, event_source, p.event_id,
                replace(request::text, o.event_id, p.event_id)::json, notes, is_sandbox, delivered,
                failed, expired, suppressed, in_doubt, invalid_tokens, deliveries, failures, expires_at,
                p.at, p.at
            FROM one o, generate_series(1, $history_days) AS age,
                generate_series(0, $history_rows - 1) AS number,
                LATERAL (SELECT 'past-' || age || '-' || number, date_trunc('day', now(), 'UTC')
                        + make_interval(days => -age, secs => 86400.0 * number / $history_rows))
                    AS p (event_id, at)" >"$run_folder/history.log"
    sql 'VACUUM (ANALYZE) event_pushes'
    sql CHECKPOINT
}

# latency_rows NAME TITLE P99 P999: makes rows of event to provider, with the bounds of both; `-`
# for none.
latency_rows() {
    figure "$1" p50 "p50 $2" ms - 0
    figure "$1" p99 "p99 $2" ms most "$3"
    if [[ "$4" == - ]]; then
        figure "$1" p999 "p99.9 $2" ms - 0
    else
        figure "$1" p999 "p99.9 $2" ms most "$4"
    fi
}

# stages NAME TITLE: prints where the time went since this dispatcher started, from the buckets of
# its histogram: the upper end of the 99th percentile's bucket.
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

# our_events CLEAR: runs one round of `count` events, written as fast as Kafka accepts them, and
# measures from the first to the last recorded outcome. CLEAR empties the tables before.
our_events() {
    local before cpu written wal empty batches run="round-$((++runs))"
    when_closed "$1"
    wal="$(wal_now)"
    empty="$(books_bytes)"
    before="$(settled_deliveries)"
    batches="$(event_batches)"
    cpu="$(cpu_now constant)"
    written="$("$bench" events "$app" "$requests_topic" "$run" "$size" "$count" 0)"
    wait_until_settled $((before + count))
    cpu="$(cpu_since "$cpu" constant "$count")"
    # librdkafka reports once a second what it sent.
    sleep 2
    jq -n --argjson count "$count" --argjson cpu "$cpu" \
        --argjson books "$(books_since "$wal" "$empty" "$count")" --argjson written "$written" \
        --argjson batches "$(batches_since "$batches")" \
        --argjson round "$(sql "SELECT json_build_object('delivered', sum(delivered),
                'to', extract(epoch FROM max(finished_at)) * 1e6)
            FROM all_pushes WHERE event_id LIKE '$run-%'")" '
        if $round.delivered != $count then error("\($round.delivered) of \($count) events were delivered")
        else {per_second: ($count * 1e6 / ($round.to - $written.first))} + $cpu + $books + $batches end'
}

# event_batches: prints how much the dispatcher has produced, looked up and written so far, and in
# how many batches.
event_batches() {
    curl -sf "http://127.0.0.1:${dispatcher_port[events]}/metrics" |
        awk -v outcomes="{topic=\"${KAFKA_TOPIC_PREFIX}push.outcomes\"}" '
            BEGIN {
                names["kafka_produced_batches_total" outcomes] = "outcomes_batches"
                names["kafka_batched_records_total" outcomes] = "outcomes_items"
                names["push_event_batches_total{step=\"looked_up\"}"] = "looked_up_batches"
                names["push_batched_events_total{step=\"looked_up\"}"] = "looked_up_items"
                names["push_event_batches_total{step=\"written\"}"] = "written_batches"
                names["push_batched_events_total{step=\"written\"}"] = "written_items"
            }
            $1 in names { print names[$1], $2 }' |
        jq -ncR '[inputs / " " | {(.[0]): (.[1] | tonumber)}] | add // {}'
}

# batches_since BEFORE: prints the mean size of a batch since then, of each kind; null without
# batches.
batches_since() {
    jq -nc --argjson before "$1" --argjson after "$(event_batches)" '
        def since($name): ($after[$name] // 0) - ($before[$name] // 0);
        ["outcomes", "looked_up", "written"] | map({(.): (since(. + "_batches") as $batches
            | if $batches > 0 then since(. + "_items") / $batches else null end)}) | add'
}

# Prints how much the dispatcher has settled since it started, with any outcome.
settled_deliveries() {
    curl -sf "http://127.0.0.1:${dispatcher_port[events]}/metrics" |
        awk '/^push_deliveries_total/ { sum += $NF } END { printf "%.0f\n", sum }'
}

# wait_until_settled COUNT: fails if there is no progress for 30 seconds.
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

# start_sink TOPIC [PROJECT]: starts a server that replaces APNs and FCM and records when each event
# came; TOPIC gets no answer, nor does FCM's PROJECT.
start_sink() {
    local log="$run_folder/sink.log"
    start sink "$log" "$bench" sink "$stack/certificate.pem" "$stack/key.pem" "$@"
    sink_pid=$started
    wait_for "$started" 10 grep -q . "$log" || fail "carillon-bench sink did not start"
    sink_port="$(jq -r .https "$log")"
    sink_control="http://127.0.0.1:$(jq -r .http "$log")"
}

# events_at RATE SECONDS: sends this many events a second, each for one device; prints the sink's
# figures.
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

# Prints the arrivals since the last call.
arrivals() { curl -sf "$sink_control/arrivals"; }

# has_arrived COUNT SECONDS
has_arrived() {
    local deadline=$((SECONDS + $2))
    until (($(curl -sf "$sink_control/count") >= $1)); do
        ((SECONDS < deadline)) || return 1
        sleep 0.1
    done
}

# events_beside_broadcast: runs one round of 500 events a second, for the duration of a broadcast of
# a million; as many broadcasts as make a million, or ten, if the app has fewer installations.
events_beside_broadcast() {
    local id last=$((broadcasts + (1000000 / size < 10 ? 1000000 / size : 10))) figures writer
    when_closed clear_rows
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

# measure_beside_hanging: lets another app's provider accept its notifications, 200 a second, and
# answer none of them.
measure_beside_hanging() {
    local writer rounds=5
    when_closed clear_rows
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

# when_closed COMMAND…: runs it once no push is open. An event in one row does not count.
when_closed() {
    local deadline=$((SECONDS + 60))
    until [[ "$(sql 'SELECT count(*) FROM pushes WHERE finished_at IS NULL')" == 0 ]]; do
        ((SECONDS < deadline)) || fail "pushes are still open"
        sleep 0.2
    done
    "$@"
}
