# Remote config: fetches, and the stream. Sourced by deploy/bench.
# shellcheck shell=bash

# The service and the constant have one processor, and the clients the other.
bench_config() {
    local app=config key etag body=$run_folder/fetch.json port pid constant_port constant_pid bytes
    local pin=() on_first=() rate
    ensure_packages nghttp2-client
    use_stack
    "${build_command[@]}" --product carillon-config-watcher
    (($(ulimit -Hn) >= 12000)) || fail "needs 12,000 open files (ulimit -Hn), for 10,000 streams"
    ulimit -Sn "$(ulimit -Hn)"
    create_app "$app" 0
    carillon app set "$app" config-fetches-per-hour=0 >/dev/null
    key="$(jq -r .appKey "$stack/$app.json")"
    config_template 0 >"$run_folder/template.json"
    carillon config put "$app" "$run_folder/template.json" --force >/dev/null
    if (($(nproc) > 1)); then
        pin=(taskset -c 1)
        on_first=(taskset -c 0)
    fi
    start_config_watcher
    jq -nc --arg app "1:1234567890:android:0a1b2c3d4e5f" '{appInstanceId: "one", appId: $app,
        countryCode: "CH", languageCode: "de-CH", platformVersion: "34", timeZone: "Europe/Zurich",
        appVersion: "3.2.0", packageName: "com.example.shop", sdkVersion: "22.0.0",
        analyticsUserProperties: {tier: "gold"}, customSignals: {visits: 12}}' >"$body"
    fetch_once >"$run_folder/fetched.json" || fail "no fetch: $(cat "$run_folder/fetched.json")"
    bytes="$(wc -c <"$run_folder/fetched.json")"
    etag="$(sed -n 's/^etag: *\([^\r]*\).*/\1/Ip' "$run_folder/fetched.headers")"
    start bench "$run_folder/constant.log" ${on_first[@]+"${on_first[@]}"} "$bench" http "$bytes"
    constant_pid=$started
    wait_for "$started" 10 grep -q . "$run_folder/constant.log" ||
        fail "carillon-bench http did not start"
    constant_port="$(head -n 1 "$run_folder/constant.log")"
    fetch_load "$port" "$(fetch_path)" >/dev/null
    fetch_load "$constant_port" / >/dev/null
    take_turns config-fetch -- fetch_load "$port" "$(fetch_path)" -- fetch_load "$constant_port" /
    compare config-fetch rate "fetches, $bytes bytes" constant "/s" least 0.5
    take_turns config-same -- fetch_load "$port" "$(fetch_path)" -H "if-none-match: $etag" \
        -- fetch_load "$constant_port" /
    compare config-same rate "fetches, NO_CHANGE" constant "/s" least 0.6
    rate="$(jq -s 'map(.rate) | sort | .[length / 2 | floor] / 2 | floor' \
        "$run_folder/config-fetch.ours")"
    take_turns config-p99 -- fetch_latency "$rate" "$port" "$(fetch_path)" \
        -- fetch_latency "$rate" "$constant_port" /
    figure config-p99 p99 "p99 at $rate fetches/s" ms most 5
    # This measures the client itself at that rate, with responses that cost nothing.
    compare config-p99 p99 "the same, beside the constant" constant ms - 0
    rounds=1 take_turns config-streams -- config_clients -- true
    figure config-streams kilobytes "memory of each of 10,000 streams" KB most 64
    figure config-streams heard "until the last of them heard" s most 2
    figure config-streams refused "10,000 fetches at once, not 200" "" most 0
    figure config-streams fetched "10,000 fetches at once, in all" s - 0
    stop_service "$pid"
    stop_service "$constant_pid"
}

fetch_path() { echo "/v1/projects/$app/namespaces/firebase:fetch?key=$key"; }

# config_template NUMBER: makes 20 parameters and five conditions, two of which are true for the
# client.
config_template() {
    jq -nc --arg number "$1" '
        def value: {value: .};
        {conditions: [
            {name: "android", expression: "device.os == '\''android'\''"},
            {name: "swiss", expression: "device.country in ['\''CH'\'', '\''LI'\''] && app.version.>=(['\''3.0'\''])"},
            {name: "tenth", expression: "percent('\''seed'\'') <= 10"},
            {name: "gold", expression: "app.userProperty['\''tier'\''].exactlyMatches(['\''gold'\''])"},
            {name: "often", expression: "app.customSignal['\''visits'\''] > 100"}],
         parameters: ([range(20)] | map({key: "parameter_\(.)", value: {
            defaultValue: ("default \(.) of version \($number)" | value),
            conditionalValues: ({} + (if . % 4 == 0 then {android: ("bot" | value)} else {} end)
                + (if . % 4 == 1 then {swiss: ("grüezi" | value), gold: ("gold" | value)} else {} end)
                + (if . % 4 == 2 then {tenth: ("new" | value)} else {} end)
                + (if . % 4 == 3 then {often: ("again" | value)} else {} end))}}) | from_entries)}'
}

# start_config_watcher: starts it on `port`, as process `pid`, and waits until it is ready.
start_config_watcher() {
    local log="$run_folder/config-watcher.log"
    # With one processor it has one loop, like the constant's server, which writes no log either.
    start config-watcher "$log" ${on_first[@]+"${on_first[@]}"} env HTTP_HOST=127.0.0.1 HTTP_PORT=0 LOG_FORMAT=json \
        HTTP_ACCESS_LOG=false KAFKA_GROUP_ID="${KAFKA_TOPIC_PREFIX}config-watcher" "$bin/carillon-config-watcher"
    pid=$started
    wait_for "$started" 30 grep -qs '"message":"listening"' "$log" ||
        fail "the config watcher did not start: $(tail -n 5 "$log")"
    port="$(jq -nrR 'first(inputs | fromjson?
        | select(.message == "listening" and .scheme == "http")).port' "$log")"
    wait_for "$started" 60 curl -sf -o "$stack/readyz" "http://127.0.0.1:$port/readyz" ||
        fail "the config watcher is not ready: $(cat "$stack/readyz")"
}

fetch_once() {
    curl -sS --fail-with-body -D "$run_folder/fetched.headers" --data-binary "@$body" \
        -H 'content-type: application/json' "http://127.0.0.1:$port$(fetch_path)"
}

# fetch_load PORT PATH [OPTION…]: sends 60,000 over 64 connections, each answered 200.
fetch_load() {
    local count=60000 address="http://127.0.0.1:$1$2"
    shift 2
    ${pin[@]+"${pin[@]}"} h2load --h1 -t 1 -c 64 -n "$count" -d "$body" \
        -H 'content-type: application/json' "$@" "$address" >"$run_folder/h2load.log"
    grep -q "^status codes: $count 2xx" "$run_folder/h2load.log" ||
        fail "not answered 200 each time: $run_folder/h2load.log"
    jq -n --argjson rate "$(sed -n 's/^finished in [^,]*, \([0-9.]*\) req\/s.*/\1/p' \
        "$run_folder/h2load.log")" '{$rate}'
}

# fetch_latency RATE PORT PATH: prints the 99th percentile over ten seconds. The connections begin
# one after the other, at even intervals.
fetch_latency() {
    local count=$(($1 * 10)) log="$run_folder/latencies"
    rm -f "$log"
    ${pin[@]+"${pin[@]}"} h2load --h1 -t 1 -c 64 -r 6 --rate-period=1ms -n "$count" \
        --rps="$((($1 + 63) / 64))" -d "$body" -H 'content-type: application/json' \
        --log-file="$log" "http://127.0.0.1:$2$3" >"$run_folder/h2load.log"
    sort -n -k 3 "$log" | awk '{ took[NR] = $3 }
        END { printf "{\"p99\": %.3f}\n", took[int(NR * 0.99)] / 1000 }'
}

# Opens the streams, publishes, and has all of them fetch at once.
config_clients() {
    config_template 1 >"$run_folder/template.json"
    ${pin[@]+"${pin[@]}"} python3 "$root/Tests/Benchmarks/config_clients.py" "$port" "$pid" "$app" \
        "$key" 10000 -- "$bin/carillon" config put "$app" "$run_folder/template.json" --force
}
