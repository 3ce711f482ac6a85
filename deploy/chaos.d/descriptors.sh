# More connections than a service has descriptors for. Sourced by deploy/chaos.
# shellcheck shell=bash

scenario_descriptors() {
    local service
    for service in registration config-watcher secure-payload ingest connection dispatcher simulator; do
        descriptors_of "$service"
    done
}

# descriptors_of SERVICE: opens 3,000 connections to a service with 1,024 descriptors, beside a
# client and the operators.
descriptors_of() {
    local service="$1" log="$run_folder/descriptors-$1.log" pid port operations verdict status=0
    local own=()
    if [[ "$service" == simulator ]]; then
        own=(HTTP_TLS_PORT=0 SIMULATOR_SANDBOX_PORT=0 SIMULATOR_KAFKA=false
            "SIMULATOR_CREDENTIALS_DIR=$stack/descriptors")
    fi
    start "descriptors-$service" "$log" prlimit --nofile=1024:1024 env HTTP_HOST=127.0.0.1 HTTP_PORT=0 \
        OPERATIONS_PORT=0 LOG_FORMAT=json HTTP_ACCESS_LOG=false ${own[@]+"${own[@]}"} \
        "$bin/carillon-$service"
    pid=$started
    wait_for "$pid" 30 descriptors_listens operations ||
        fail "$service did not start: $(tail -n 5 "$log")"
    operations="$(descriptors_port operations)"
    # A dispatcher listens only for its operators.
    port="$operations"
    if [[ "$service" != dispatcher ]]; then
        wait_for "$pid" 30 descriptors_listens null || fail "$service does not listen"
        port="$(descriptors_port null)"
    fi
    verdict="$(python3 "$root/deploy/chaos.d/descriptors_clients.py" "$port" "$operations" "$pid" 3000)"
    say "  $service: $verdict"
    kill -TERM "$pid"
    timeout 30 tail --pid="$pid" -f /dev/null || kill -KILL "$pid"
    wait "$pid" || status=$?
    forget "$pid"
    promise "$service: the client was answered each time, within 100 ms 99 of 100" "$(jq '
        if .missed == 0 and .p99During < 100 and .p99After < 100 then 1 else 0 end' <<<"$verdict")"
    if [[ "$service" != dispatcher ]]; then
        promise "$service: the operators were answered beside the attack" "$(jq 'if .operatorsAsked > 5
            and .operatorsAnswered == .operatorsAsked then 1 else 0 end' <<<"$verdict")"
    fi
    promise "$service: it is idle after the attack" "$(jq 'if .cpuAfter < 0.2 then 1 else 0 end' <<<"$verdict")"
    promise "$service: SIGTERM ended it with 0 ($status)" $((status == 0))
}

# descriptors_port SURFACE: prints that of the first plain listener with it.
descriptors_port() {
    jq -nrR --arg surface "$1" 'first(inputs | fromjson? | select(.message == "listening"
        and .scheme == "http" and (.surface // "null") == $surface)).port' "$log"
}

descriptors_listens() { [[ -n "$(descriptors_port "$1")" ]]; }
