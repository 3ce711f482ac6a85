# Broadcasts, from one Kafka record to the last outcome recorded. Sourced by deploy/bench.
# shellcheck shell=bash

bench_broadcast() {
    local size name app broadcasts=0
    ensure_packages nghttp2-client
    use_stack
    start_apns constant
    start_apns goaway 1000
    for size in "${sizes[@]}"; do
        name="$(size_name "$size")"
        app="all-$name"
        create_app "$app" "$size"
        measure_broadcasts "$name" "$app" "$size"
    done
    compare_memory
    # Variants of the plain broadcast are measured at the size next to 100,000.
    size="$(printf '%s\n' "${sizes[@]}" | awk '$1 <= 100000' | tail -n 1)"
    size="${size:-${sizes[0]}}"
    name="$(size_name "$size")"
    app="all-$name"
    measure_goaways "$name" "$app" "$size"
    measure_badges "$name" "$app" "$size"
    measure_named "$name" "$app" "$size"
}

# measure_broadcasts NAME APP COUNT: alternates with h2load. The dispatcher is a separate one, so
# that its peak memory belongs to this size.
measure_broadcasts() {
    local title="broadcast $1" app="$2" size="$3" name="broadcast-$1" rounds=$rounds least=- most=-
    # The promise is for a million, of which a round takes long.
    if ((size >= 1000000)); then
        least=least
        most=most
        rounds=3
    fi
    start_dispatcher broadcast "$(apns_origin constant)"
    take_turns "$name" -- our_broadcast constant "$app" "$size" -- h2load_alone
    stop_dispatcher broadcast
    compare "$name" per_second "$title" h2load /s $least 0.45
    figure "$name" dispatcher_cpu "$title, dispatcher's CPU" ns $most 11000
    compare "$name" nginx_cpu "$title, nginx' CPU" h2load ns - 0
    figure "$name" postgres_cpu "$title, Postgres' CPU" ns $most 4000
    figure "$name" wal "$title, write-ahead log each" B - 0
    figure "$name" bytes "$title, kept each" B $most 20
    figure "$name" broker_cpu "$title, broker's CPU" ns - 0
    figure "$name" memory "$title, dispatcher's memory" MB $most 200 max
    figure "$name" repeats "$title, sent twice" "" most 0 max
}

# our_broadcast APNS APP COUNT [DATA]: runs one round. Ends the run if the ledger does not have each
# as delivered.
our_broadcast() {
    local apns="$1" app="$2" count="$3" id="broadcast-$((++broadcasts))" since cpu requests push wal empty
    clear_books
    wal="$(wal_now)"
    empty="$(books_bytes)"
    requests="$(apns_requests "$apns")"
    cpu="$(cpu_now "$apns")"
    since="$(milliseconds_now)"
    broadcast "$app" "$id" "${4:-}"
    push="$(finished_push "$app" "$id")"
    cpu="$(cpu_since "$cpu" "$apns" "$count")"
    # The second count is a request too.
    requests=$(($(apns_requests "$apns") - requests - 1))
    jq -e --argjson count "$count" '.delivered == $count and .targeted == $count' <<<"$push" \
        >/dev/null || fail "not every installation was delivered to: $push"
    jq -n --argjson count "$count" --argjson requests "$requests" --argjson cpu "$cpu" \
        --argjson books "$(books_since "$wal" "$empty" "$count")" \
        --argjson from "$(when_written "$since")" \
        --argjson to "$(sql "SELECT extract(epoch FROM finished_at) * 1000 FROM all_pushes
            WHERE event_id = '$id'")" \
        --argjson memory "$(peak_memory "${dispatcher_pid[broadcast]}")" '
        {per_second: ($count * 1000 / ($to - $from)), $memory, repeats: ($requests - $count)} + $cpu + $books'
}

# h2load_alone: measures h2load against the broadcasts' nginx, while everything else is idle.
h2load_alone() {
    local folder="$stack" connections=4 streams=500 requests=200000 before figures
    if [[ ! -e "$folder/body" ]]; then
        jq -jnc --arg alert "$alert" '{aps: {$alert}}' >"$folder/body"
        seq 1 4096 | while read -r number; do
            printf '%s/3/device/%064x\n' "$(apns_origin constant)" "$number"
        done >"$folder/uris"
    fi
    before="$(tree_cpu "${nginx_pid[constant]}")"
    figures="$(h2load_requests -H 'apns-collapse-id: 7f4a7c15-9e37-4000-8000-79b97f4a7c15')"
    jq --argjson requests "$requests" --argjson before "$before" \
        --argjson after "$(tree_cpu "${nginx_pid[constant]}")" \
        '. + {dispatcher_cpu: .cpu, nginx_cpu: (($after - $before) / $requests)}' <<<"$figures"
}

# Compares the memory of a million with that of 100,000.
compare_memory() {
    if [[ ! -e "$run_folder/broadcast-1M.ours" || ! -e "$run_folder/broadcast-100k.ours" ]]; then
        return
    fi
    jq -sc 'max_by(.memory)' "$run_folder/broadcast-1M.ours" >"$run_folder/memory.ours"
    jq -sc 'max_by(.memory)' "$run_folder/broadcast-100k.ours" >"$run_folder/memory.theirs"
    compare memory memory "memory, 1M beside 100k" "100k" MB most 1.2
}

# measure_goaways NAME APP COUNT: lets the server end each connection after 1,000 requests, which is
# nginx' default. Every installation must still get one request.
measure_goaways() {
    local rounds=3 name="goaway-$1"
    start_dispatcher broadcast "$(apns_origin goaway)"
    take_turns "$name" -- our_broadcast goaway "$2" "$3" -- true
    stop_dispatcher broadcast
    cp "$run_folder/broadcast-$1.ours" "$run_folder/$name.theirs"
    compare "$name" per_second "$1, GOAWAY each 1,000" without /s - 0
    figure "$name" repeats "$1, GOAWAY, sent twice" "" most 0 max
}

# measure_badges NAME APP COUNT: measures a broadcast that increments each installation's badge by
# one.
measure_badges() {
    local rounds=3 name="badges-$1" before probe="$stack/badges.json"
    jq -n '{data: {alert: "x", badge: "Increment"}, installations: ["000000000000000000000001"]}' \
        >"$probe"
    start_dispatcher broadcast "$(apns_origin constant)"
    if ! carillon push send "$2" --file "$probe" --id badges --wait >"$stack/badges" 2>&1; then
        stop_dispatcher broadcast
        skipped "$1, badges raised" "$(tail -n 1 "$stack/badges")"
        return
    fi
    before="$(sql "SELECT sum(badge) FROM installations WHERE app = '$2'")"
    take_turns "$name" -- our_broadcast constant "$2" "$3" '{"badge": "Increment"}' -- true
    stop_dispatcher broadcast
    cp "$run_folder/broadcast-$1.ours" "$run_folder/$name.theirs"
    compare "$name" per_second "$1, badges raised" without /s - 0
    jq -nc --argjson raised "$(sql "SELECT sum(badge) - $before FROM installations WHERE app = '$2'")" \
        --argjson due "$((rounds * $3))" '{off: ($raised - $due | fabs)}' >"$run_folder/badges.ours"
    figure badges off "$1, badges off by" "" most 0
}

# measure_named NAME APP COUNT: compares pushes that name 5,000 devices each with the plain
# broadcast; per device, the sum for the dispatcher, Postgres and the broker.
measure_named() {
    local rounds=3 name="named-$1" named=5000
    if (($3 < named)); then named=$3; fi
    start_dispatcher broadcast "$(apns_origin constant)"
    take_turns "$name" -- our_named "$2" "$3" "$named" -- true
    stop_dispatcher broadcast
    jq -c '{cost: (.dispatcher_cpu + .postgres_cpu + (.broker_cpu // 0))}' \
        "$run_folder/broadcast-$1.ours" >"$run_folder/$name.theirs"
    compare "$name" cost "$named named devices, CPU each" broadcast ns most 1.3
    figure "$name" dispatcher_cpu "$named named devices, dispatcher's CPU" ns - 0
    figure "$name" postgres_cpu "$named named devices, Postgres' CPU" ns - 0
    figure "$name" bytes "$named named devices, kept each" B - 0
}

# our_named APP COUNT NAMED: sends twenty pushes at once, with the app's devices in order.
our_named() {
    local app="$1" count="$2" named="$3" pushes=20 id="named-$((++broadcasts))" cpu wal empty
    clear_books
    wal="$(wal_now)"
    empty="$(books_bytes)"
    jq -nrc --arg app "$app" --arg id "$id" --arg alert "$alert" --argjson count "$count" \
        --argjson named "$named" --argjson pushes "$pushes" '
        def hex: if . < 16 then "0123456789abcdef"[.:. + 1]
            else (. / 16 | floor | hex) + (. % 16 | hex) end;
        range($pushes) as $push | {id: "\($id)-\($push)", $app, data: {$alert}, installations: [
            range($named) | ($push * $named + .) % $count + 1 | hex | "0" * (24 - length) + .]}
        ' >"$stack/named"
    cpu="$(cpu_now constant)"
    kcat -P -b "$KAFKA_BOOTSTRAP_SERVERS" -t "$requests_topic" -X acks=all -l "$stack/named"
    # In one session: a new one for each look costs Postgres as much as a hundred devices.
    sql "DO 'BEGIN
        FOR look IN 1..6000 LOOP
            EXIT WHEN (SELECT count(*) FROM pushes WHERE finished_at IS NOT NULL) = $pushes;
            PERFORM pg_sleep(0.1);
        END LOOP;
    END'"
    cpu="$(cpu_since "$cpu" constant $((pushes * named)))"
    [[ "$(sql 'SELECT sum(delivered) FROM all_pushes')" == $((pushes * named)) ]] ||
        fail "not every named device was delivered to"
    jq -n --argjson cpu "$cpu" --argjson books "$(books_since "$wal" "$empty" $((pushes * named)))" \
        '$cpu + $books + {cost: ($cpu | .dispatcher_cpu + .postgres_cpu + (.broker_cpu // 0))}'
}
