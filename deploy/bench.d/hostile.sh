# Effect of hostile peers on an honest client of the registration service. Sourced by deploy/bench.
# shellcheck shell=bash

# A part of the section peers: 20 peers from other addresses send expensive requests, or leave their
# responses unread, each at the rate in Tests/Benchmarks/hostile.py.
bench_hostile() {
    local app=hostile kind title pin=() key registration_port registration_pid
    use_stack
    "${build_command[@]}" --product carillon-registration
    create_app "$app" 0
    carillon app set "$app" client-find=on >/dev/null
    key="$(jq -r .appKey "$stack/$app.json")"
    start_registration
    if (($(nproc) > 1)); then
        pin=(taskset -c 1)
        taskset -a -c -p 0 "$registration_pid" >/dev/null
    fi
    take_turns hostile -- ${pin[@]+"${pin[@]}"} python3 "$root/Tests/Benchmarks/hostile.py" \
        "$registration_port" "$registration_pid" "$app" "$key" -- true
    stop_service "$registration_pid"
    hostile_row alone p99 "p99 of a save alone" ms 1 -
    for kind in keys brackets proved unread; do
        case $kind in
            keys) title="20 that flood keys" ;;
            brackets) title="20 that send gzip of brackets" ;;
            proved) title="20 that do so with the app's key" ;;
            unread) title="20 that read no answer" ;;
        esac
        hostile_row "$kind" p99 "p99 beside $title" "ms more" 1 10
        hostile_row "$kind" memory "memory beside $title" MB 0.000001 300
    done
}

# hostile_row KIND KEY TITLE UNIT FACTOR BOUND|-: makes a row; p99 is the excess over the client
# alone, the median of the rounds; memory is the maximum of all rounds.
hostile_row() {
    jq -n --arg kind "$1" --arg key "$2" --arg measured "$3" --arg unit "$4" --argjson factor "$5" \
        --arg bound "$6" --argjson rounds "$rounds" --slurpfile ours "$run_folder/hostile.ours" '
        (if $key == "memory" then $ours | map(.[$kind][$key] * $factor) | max
         elif $kind == "alone" then $ours | map(.alone[$key]) | sort | .[length / 2 | floor]
         else $ours | map(.[$kind][$key] - .alone[$key]) | sort | .[length / 2 | floor] end) as $our
        | {section: "peers", measured: $measured, rounds: $rounds, unit: $unit, ours: $our,
           them: null, theirs: null, ratio: null}
            + if $bound == "-" then {bound: "-", holds: true}
              else {bound: "at most \($bound) \($unit)", holds: ($our <= ($bound | tonumber))} end' \
        >>"$run_folder/rows"
}
