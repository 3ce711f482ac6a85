# Devices that hold a connection of their own. Sourced by deploy/bench.
# shellcheck shell=bash

# shellcheck source=deploy/bench.d/devices.sh
. "$root/deploy/bench.d/devices.sh"

bench_connection() {
    local app=sockets count=50000 most rounds=3 pushes=0 broadcasts=0 idle resident cpu
    ulimit -Sn "$(ulimit -Hn)"
    most=$(($(ulimit -Hn) - 5000))
    # The node keeps some for itself.
    if ((most < count)); then
        note "the limit of open files (ulimit -Hn) allows $most sockets instead of $count"
        count=$most
    fi
    ensure_packages nghttp2-client
    use_stack
    start_apns constant
    create_app "$app"
    create_devices "$app" "$count"
    create_app "all-sockets" "$count"
    start_dispatcher broadcast "$(apns_origin constant)"
    node_port[0]="$(free_port)"
    start_node 0
    resident="$(resident_bytes "${node_pid[0]}")"
    start_devices "$app" "$count" "${node_port[0]}"
    wait_for "${node_pid[0]}" 300 are_connected "$count" || fail "not all are connected: $(counted)"
    resident=$((($(resident_bytes "${node_pid[0]}") - resident) / count))
    sleep 5
    cpu="$(tree_cpu "${node_pid[0]}")"
    sleep 20
    idle="$(jq -n "($(tree_cpu "${node_pid[0]}") - $cpu) / 20e7")"
    jq -n --argjson resident "$resident" --argjson idle "$idle" '{$resident, $idle}' \
        >"$run_folder/connection.ours"
    figure connection resident "$(size_name "$count") open sockets, memory each" B most 8192
    figure connection idle "open sockets, idle CPU" % most 2
    take_turns connection-push -- our_push_to_sockets -- our_broadcast constant all-sockets "$count"
    compare connection-push per_second "push to all sockets" "to APNs" /s - 0
    figure connection-push node_cpu "push to all sockets, node's CPU" ns - 0
    measure_single_sockets
    stop_devices
    measure_logins
    stop_service "${node_pid[0]}"
    stop_dispatcher broadcast
}

resident_bytes() { awk -v page="$(getconf PAGESIZE)" '{ print $2 * page }' "/proc/$1/statm"; }

# our_push_to_sockets: pushes to all open sockets, until the last device has it.
our_push_to_sockets() {
    local since cpu
    clear_books
    since="$(milliseconds_now)"
    cpu="$(tree_cpu "${node_pid[0]}")"
    pushes=$((pushes + 1))
    broadcast "$app" "sockets-$pushes"
    wait_for "${node_pid[0]}" 300 have_received $((pushes * count)) || fail "not all have it: $(counted)"
    jq -sc --argjson count "$count" --argjson from "$(when_written "$since")" \
        --argjson cpu $(($(tree_cpu "${node_pid[0]}") - cpu)) \
        '{per_second: ($count * 1000 / ((map(.last) | max) - $from)), node_cpu: ($cpu / $count)}' \
        "$stack"/devices-*.json
}

# measure_single_sockets: 1,000 pushes a second to single devices, from the writing of the record to the
# arrival at the device. The first are not measured: a broker that has just started compiles its code.
measure_single_sockets() {
    local warm=60 seconds=20
    single_pushes warm "$warm" '{}'
    wait_for "${node_pid[0]}" 60 have_received $((pushes * count + 1000 * warm)) ||
        fail "not all have it: $(counted)"
    single_pushes single "$seconds" '{"at": time.time() * 1000}'
    wait_for "${node_pid[0]}" 60 have_received $((pushes * count + 1000 * (warm + seconds))) ||
        fail "not all have it: $(counted)"
    jq -sc 'map(.lags | to_entries[] | {lag: (.key | tonumber), count: .value}) | sort_by(.lag)
        | (map(.count) | add) as $all
        | [foreach .[] as $entry (0; . + $entry.count; {lag: $entry.lag, sum: .})]
        | def quantile($part): first(.[] | select(.sum >= $part * $all)).lag;
        {p50: quantile(0.5), p99: quantile(0.99)}' \
        "$stack"/devices-*.json >"$run_folder/connection-single.ours"
    figure connection-single p50 "event to socket at 1,000/s, p50" ms - 0
    figure connection-single p99 "event to socket at 1,000/s, p99" ms most 25
}

# single_pushes NAME SECONDS DATA: writes 1,000 records a second, each for one device at random.
single_pushes() {
    python3 -c "
import json, random, sys, time
begun = time.time()
for number in range(1000 * $2):
    time.sleep(max(0, begun + number / 1000 - time.time()))
    sys.stdout.write(json.dumps({
        'id': '$1-%d' % number, 'app': '$app', 'data': {'alert': 'a', **$3},
        'installations': ['%024x' % random.randint(1, $count)]}) + '\n')
    sys.stdout.flush()
" | kcat -P -b "$KAFKA_BOOTSTRAP_SERVERS" -t "$requests_topic" -X acks=all -X linger.ms=1
}

# measure_logins: devices that come back at once, with ten waiting messages each.
measure_logins() {
    local app=logins count=$((count < 10000 ? count : 10000)) number begun
    create_app "$app"
    create_devices "$app" "$count"
    for ((number = 0; number < 10; number++)); do
        broadcast "$app" "waiting-$number"
        finished_push "$app" "waiting-$number" >/dev/null
    done
    begun="$(milliseconds_now)"
    start_devices "$app" "$count" "${node_port[0]}"
    wait_for "${node_pid[0]}" 300 nothing_waits || fail "not all is acknowledged: $(counted)"
    jq -n --argjson seconds "$(jq -n "($(milliseconds_now) - $begun) / 1000")" '{$seconds}' \
        >"$run_folder/connection-logins.ours"
    figure connection-logins seconds "$(size_name "$count") logins, ten messages each" s - 0
    stop_devices
}

have_received() {
    sleep 0.05
    (("$(counted | jq '.distinct // 0')" >= $1))
}

nothing_waits() {
    sleep 0.2
    (("$(counted | jq '.distinct // 0')" >= 10 * count)) &&
        [[ "$(sql "SELECT count(*) FROM connection_messages WHERE app = '$app'")" == 0 ]]
}
