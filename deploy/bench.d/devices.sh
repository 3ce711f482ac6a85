# Nodes of connections, and devices that hold one. Sourced by deploy/bench and deploy/chaos.
# shellcheck shell=bash

declare -A node_pid=() node_port=()
device_pids=()

# create_devices APP COUNT: stores the installations of `connection_clients.py`.
create_devices() {
    sql "INSERT INTO installations (app, object_id, installation_id, device_type, provider, token, token_hash,
            environment, channels, fields, token_updated_at)
        SELECT '$1', lpad(to_hex(i), 24, '0'), id, 'web', 'connection', id,
            sha256(convert_to(id, 'UTF8')), '', '{news}',
            jsonb_build_object('installationId', id, 'deviceType', 'web'), now()
        FROM generate_series(1, $2) AS i, LATERAL (SELECT 'device-' || lpad(i::text, 16, '0')) AS t (id)"
    sql 'VACUUM (ANALYZE) installations'
}

# start_node NAME [VARIABLE=VALUE…]: starts carillon-connection on its port, and waits until it is ready.
start_node() {
    local name="$1" log="$run_folder/node-$1.log"
    shift
    start "node-$name" "$log" env HTTP_HOST=127.0.0.1 HTTP_PORT="${node_port[$name]}" LOG_FORMAT=json \
        LD_PRELOAD=libmimalloc.so.2 HTTP_ACCESS_LOG=false CONNECTION_DRAIN=1s "$@" "$bin/carillon-connection"
    node_pid[$name]=$started
    wait_for "$started" 60 curl -sf -o "$stack/readyz" "http://127.0.0.1:${node_port[$name]}/readyz" ||
        fail "node $name is not ready: $(tail -n 5 "$log")"
}

# start_devices APP COUNT PORTS: starts clients for the devices, in processes of at most 8,000.
start_devices() {
    local first
    for ((first = 1; first <= $2; first += 8000)); do
        start "devices-$first" "$run_folder/devices-$first.log" python3 \
            "$root/Tests/Benchmarks/connection_clients.py" "$1" "$(jq -r .appKey "$stack/$1.json")" \
            $(($2 - first < 8000 ? $2 - first + 1 : 8000)) "$3" "$stack/devices-$first.json" "$first"
        device_pids+=("$started")
    done
}

stop_devices() {
    local pid
    for pid in "${device_pids[@]}"; do stop_service "$pid"; done
    device_pids=()
    rm -f "$stack"/devices-*.json
}

# counted: prints the sums of all clients' counts.
counted() {
    local files=("$stack"/devices-*.json)
    if [[ ! -e "${files[0]}" ]]; then
        echo '{}'
        return
    fi
    jq -sc 'map(del(.lags, .first, .last, .newest)) | map(to_entries[]) | group_by(.key)
        | map({key: .[0].key, value: (map(.value) | add)}) | from_entries' "${files[@]}"
}
are_connected() {
    sleep 0.2
    [[ "$(counted | jq .open)" == "$1" ]]
}
