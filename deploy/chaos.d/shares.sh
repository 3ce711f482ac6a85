# Replicas that start one after the other, leave and join: each gets its share of every topic.
# Sourced by deploy/chaos.
# shellcheck shell=bash

# Kafka's own tool prints the shares, so this needs KAFKA_HOME. Events for single devices are
# written all the time, 200 a second, and their latency is printed for each change.
scenario_shares() {
    local app=shares count name start=$SECONDS rate=200
    local -A sink_pid_of=()
    [[ -x "${KAFKA_HOME:-}/bin/kafka-consumer-groups.sh" ]] || {
        say "  SKIPPED: KAFKA_HOME names no unpacked Apache Kafka"
        return
    }
    "${build_command[@]}" --product carillon-ingest
    start_sink com.example.none
    create_app "$app" 1000
    start_replica 0
    # It writes until the end and is stopped then.
    start events "$run_folder/events.log" "$bench" events "$app" "$requests_topic" shares 1000 \
        $((rate * 600)) "$rate"
    events_pid=$started
    sleep 5
    curl -sf -X POST "$sink_control/reset"
    sleep 10
    say "  one replica: $(arrivals | jq -c '{p50, p99, p999}')"
    for count in 2 3 4; do
        start_replica $((count - 1))
        shares_hold "$count" "$count replicas, started one after the other"
    done
    stop_replica 1
    shares_hold 3 "one has left"
    start_replica 1
    shares_hold 4 "one has joined"
    stop_pid "$events_pid" TERM 10
    forget "$events_pid"
    for name in 0 1 2 3; do stop_replica "$name"; done
    stop_service "$sink_pid"
    say "  done after $((SECONDS - start)) s"
    clear_books
}

# start_replica NAME: starts a dispatcher and a sink.
start_replica() {
    local log="$run_folder/shares-ingest-$1.log" port
    port="$(free_port)"
    start_dispatcher "$1" "https://localhost:$sink_port"
    start "shares-ingest-$1" "$log" env HTTP_HOST=127.0.0.1 HTTP_PORT="$port" LOG_FORMAT=json \
        SHUTDOWN_GRACE=10s KAFKA_GROUP_ID="${KAFKA_TOPIC_PREFIX}ingest" "$bin/carillon-ingest"
    sink_pid_of[$1]=$started
    wait_for "$started" 60 curl -sf -o "$stack/readyz" "http://127.0.0.1:$port/readyz" ||
        fail "the sink is not ready: $(tail -n 5 "$log" "$stack/readyz")"
}

stop_replica() {
    stop_dispatcher "$1"
    stop_service "${sink_pid_of[$1]}"
}

# shares_hold COUNT TEXT
shares_hold() {
    local deadline=$((SECONDS + 45)) events_shares objects_shares
    while events_shares="$(shares "${KAFKA_GROUP_ID}" 'push\.requests' "$1")" &&
        objects_shares="$(shares "${KAFKA_TOPIC_PREFIX}ingest" 'ingest\..*' "$1")" &&
        [[ "$events_shares$objects_shares" == *uneven* ]] && ((SECONDS < deadline)); do
        sleep 1
    done
    promise "$2: shares of push.requests $events_shares" "$([[ "$events_shares" == *uneven* ]] && echo 0 || echo 1)"
    promise "$2: shares of every type $objects_shares" "$([[ "$objects_shares" == *uneven* ]] && echo 0 || echo 1)"
    say "  an event from Kafka to its provider meanwhile, in ms: $(arrivals | jq -c '{p50, p99, p999}')"
}

# shares GROUP PATTERN MEMBERS: prints each topic's shares, largest first; `uneven` has the uneven
# ones.
shares() {
    "$KAFKA_HOME/bin/kafka-consumer-groups.sh" --bootstrap-server "$KAFKA_BOOTSTRAP_SERVERS" --describe \
        --group "$1" 2>"$run_folder/groups.log" |
        awk -v members="$3" -v prefix="$KAFKA_TOPIC_PREFIX" -v pattern="^${KAFKA_TOPIC_PREFIX}$2\$" '
            $2 ~ pattern { topics[$2]; if ($7 != "-") held[$2, $7]++; else free++ }
            END {
                for (topic in topics) {
                    count = 0
                    most = 0
                    least = 1e9
                    text = ""
                    for (key in held) {
                        split(key, parts, SUBSEP)
                        if (parts[1] != topic) continue
                        count++
                        text = text " " held[key]
                        if (held[key] > most) most = held[key]
                        if (held[key] < least) least = held[key]
                    }
                    for (; count < members; count++) { text = text " 0"; least = 0 }
                    if (most - least > 1 || count > members) bad = bad " " substr(topic, length(prefix) + 1) text
                    all[text]
                    known++
                }
                if (!known || free) print "uneven: not all are held"
                else if (bad != "") print "uneven:" bad
                else for (text in all) printf "%s", text ";"
            }'
}
