# Devices that hold a connection of their own, while all that serves them is killed. Sourced by
# deploy/chaos.
# shellcheck shell=bash

# shellcheck source=deploy/bench.d/devices.sh
. "$root/deploy/bench.d/devices.sh"

scenario_connections() {
    local app=connections kills=5 kill driver start=$SECONDS
    local status pushes=0 singles=0
    (($(ulimit -Hn) >= devices + 2000 || $(ulimit -Hn) >= 20000)) ||
        fail "needs $((devices + 2000)) open files (ulimit -Hn), or 20,000"
    ulimit -Sn "$(ulimit -Hn)"
    create_app "$app"
    create_devices "$app" "$devices"
    start_dispatcher 0 https://localhost:1
    for node in 0 1; do
        node_port[$node]="$(free_port)"
        start_node "$node"
    done
    start_devices "$app" "$devices" "${node_port[0]},${node_port[1]}"
    driver=${device_pids[0]}
    wait_for "$driver" 300 are_connected "$devices" || fail "not all devices are connected: $(counted)"
    say "  $devices devices are connected after $((SECONDS - start)) s"
    for ((kill = 1; kill <= kills; kill++)); do
        for victim in node dispatcher node postgres broker; do
            push_to_devices
            # A fifth of the messages of this push are stored: it is in the middle.
            wait_for "$driver" 120 is_on_its_way || fail "push $pushes was not begun"
            case "$victim" in
                node)
                    node=$(((node + 1) % 2))
                    kill -KILL "${node_pid[$node]}"
                    wait "${node_pid[$node]}" 2>/dev/null || true
                    forget "${node_pid[$node]}"
                    start_node "$node"
                    ;;
                dispatcher)
                    kill_dispatcher 0
                    start_dispatcher 0 https://localhost:1
                    ;;
                postgres) kill_postgres ;;
                broker) kill_broker ;;
            esac
        done
        wait_for "$driver" 300 is_quiet || fail "round $kill did not end: $(counted) $(balance)"
        say "  round $kill: both nodes, dispatcher, Postgres and broker; $(counted)"
    done
    for node in 0 1; do
        push_to_devices
        kill -STOP "${node_pid[$node]}"
        sleep 20
        kill -CONT "${node_pid[$node]}"
        say "  node $node was stopped for 20 s"
    done
    wait_for "$driver" 300 is_quiet || true
    wait_for "$driver" 120 are_connected "$devices" || true
    status="$(counted)"
    say "  done after $((SECONDS - start)) s: $status, $(balance)"

    promise "every device is connected in the end" \
        "$(counted | jq --argjson devices "$devices" 'if .open == $devices then 1 else 0 end')"
    promise "each device has each of the $pushes pushes, and each of the $singles for one device" \
        "$(counted | jq --argjson count $((pushes * devices + singles)) \
            'if .distinct == $count then 1 else 0 end')"
    promise "repeats have the first one's id" "$(counted | jq 'if .conflicts == 0 then 1 else 0 end')"
    promise "every message is acknowledged" "$(sql "SELECT (count(*) = 0)::int FROM connection_messages")"
    promise "kept = received + displaced + expired + waiting" "$(carillon connections "$app" --json |
        jq '.messages | if .kept == .received + .displaced + .expired + .waiting then 1 else 0 end')"
    promise "each push was delivered to all, and received by each" "$(sql "SELECT
        (count(*) = $((pushes + singles)) AND bool_and(targeted = delivered) AND
            sum(delivered) = $((pushes * devices + singles)) AND
            sum(delivered) = (SELECT count(*) FROM push_receipts WHERE kind = 2))::int FROM all_pushes")"
    stop_devices
    for node in 0 1; do stop_service "${node_pid[$node]}"; done
    stop_dispatcher 0
    clear_books
}

# push_to_devices: sends one push to all devices, and ten to single ones.
push_to_devices() {
    local number
    # The last one may have been killed.
    until broadcast "$app" "all-$pushes" 2>>"$run_folder/kcat.log"; do sleep 0.2; done
    pushes=$((pushes + 1))
    for ((number = 0; number < 10; number++)); do
        jq -nc --arg app "$app" --arg id "one-$singles" --arg device \
            "$(printf %024x $((singles % devices + 1)))" \
            '{$id, $app, installations: [$device], data: {alert: "one"}}'
        singles=$((singles + 1))
    done | kcat -P -b "$KAFKA_BOOTSTRAP_SERVERS" -t "$requests_topic" -X acks=all
    singles=$((pushes * 10))
}

balance() { carillon connections "$app" --json | jq -c .messages; }
is_on_its_way() {
    sleep 0.1
    (("$(counted | jq '.distinct // 0')" >= (pushes - 1) * devices + devices / 5))
}

# All messages were received and acknowledged.
is_quiet() {
    sleep 0.5
    (("$(counted | jq '.distinct // 0')" >= pushes * devices + singles)) &&
        [[ "$(sql 'SELECT count(*) FROM connection_messages')" == 0 ]]
}
