# Publishes of remote config, through two replicas that are killed. Sourced by deploy/chaos.
# shellcheck shell=bash

declare -A watcher_pid=()

scenario_config() {
    local app=config publishes=500 kills=10 kill name key master driver ports=() verdict
    "${build_command[@]}" --product carillon-config-watcher
    create_app "$app" 3
    carillon app set "$app" config-fetches-per-hour=0 >/dev/null
    sql "UPDATE installations SET channels = '{PUSH_RC}' WHERE app = '$app'"
    key="$(jq -r .appKey "$stack/$app.json")"
    master="$(jq -r .masterKey "$stack/$app.json")"
    start_apns plain
    start_dispatcher 0 "$(apns_origin plain)"
    for name in 0 1; do
        ports[name]="$(free_port)"
        start_watcher "$name" "${ports[name]}"
    done
    python3 "$root/deploy/chaos.d/config_clients.py" "$app" "$key" "$master" "$publishes" \
        "$KAFKA_BOOTSTRAP_SERVERS" "${KAFKA_TOPIC_PREFIX}PUSH_RC" "${ports[@]}" \
        >"$stack/config.json" 2>"$run_folder/config-clients.log" &
    driver=$!
    for ((kill = 1; kill <= kills * 2; kill++)); do
        sleep 1.5
        kill -0 "$driver" 2>/dev/null || {
            say "  the publishes were over before the kill number $kill"
            break
        }
        name=$((kill % 2))
        kill -KILL "${watcher_pid[$name]}"
        wait "${watcher_pid[$name]}" 2>/dev/null || true
        forget "${watcher_pid[$name]}"
        start_watcher "$name" "${ports[name]}"
    done
    say "  $((kill - 1)) times kill -9"
    wait "$driver" || fail "the clients did not end: $(tail -n 5 "$run_folder/config-clients.log")"
    verdict="$(cat "$stack/config.json")"
    say "  $verdict"
    promise "twenty kills came in time" $((kill - 1 == kills * 2))
    config_promise "$verdict" "$publishes publishes were accepted" \
        ".accepted == $publishes"
    config_promise "$verdict" "PUSH_RC is in order, repeats apart" .inOrder
    config_promise "$verdict" "every version is announced, or a later one is" .lastAnnounced
    config_promise "$verdict" "no fetch ($(jq .fetches <<<"$verdict") of them) after an announcement was older" \
        '.older == 0'
    wait_for "${dispatcher_pid[0]}" 30 are_known "$(jq .announced <<<"$verdict")" || true
    promise "each announced version is one push" "$(sql "SELECT (count(*) = $(jq .announced \
        <<<"$verdict") AND count(DISTINCT event_id) = count(*))::int FROM all_pushes")"
    promise "the books of all pushes balance" "$(sql "SELECT (count(*) = 0)::int FROM all_pushes
        WHERE targeted <> delivered + failed + expired + suppressed + in_doubt + pending")"
    for name in 0 1; do stop_service "${watcher_pid[$name]}"; done
    stop_dispatcher 0
    clear_books
}

# config_promise VERDICT TEXT CONDITION
config_promise() { promise "$2" "$(jq "if $3 then 1 else 0 end" <<<"$1")"; }

# start_watcher NAME PORT
start_watcher() {
    local log="$run_folder/config-watcher-$1.log"
    start "config-watcher-$1" "$log" env HTTP_HOST=127.0.0.1 HTTP_PORT="$2" LOG_FORMAT=json \
        CONFIG_COALESCE=200ms KAFKA_GROUP_ID="${KAFKA_TOPIC_PREFIX}config-watcher" \
        "$bin/carillon-config-watcher"
    watcher_pid[$1]=$started
    wait_for "$started" 60 curl -sf -o "$stack/readyz" "http://127.0.0.1:$2/readyz" ||
        fail "the config watcher is not ready: $(tail -n 5 "$log")"
}
