# One app that sends ingest expensive objects, and another app's device beside it. Sourced by
# deploy/chaos.
# shellcheck shell=bash

scenario_ingest-hostile() {
    local app type=WeatherSensor seconds="${CARILLON_HOSTILE_SECONDS:-10}" log="$run_folder/hostile.log"
    local report kind port ingest seen base=$((128 << 20))
    "${build_command[@]}" --product carillon-ingest
    ingest_schema >"$stack/sensor.json"
    for app in hostile honest; do
        create_app "$app" 0
        carillon ingest type put "$app" "$type" --schema "$stack/sensor.json" >"$run_folder/type.log"
    done
    port="$(free_port)"
    start hostile "$log" env HTTP_HOST=127.0.0.1 "HTTP_PORT=$port" LOG_FORMAT=json HTTP_ACCESS_LOG=false \
        KAFKA_GROUP_ID="${KAFKA_TOPIC_PREFIX}ingest-hostile" "$bin/carillon-ingest"
    ingest=$started
    wait_for "$ingest" 60 curl -sf -o "$stack/readyz" "http://127.0.0.1:$port/readyz" ||
        fail "ingest is not ready: $(tail -n 5 "$log")"
    python3 "$root/Tests/EndToEndTests/ingest_hostile.py" "$port" "$ingest" \
        "$(jq -r .appKey "$stack/hostile.json")" "$(jq -r .appKey "$stack/honest.json")" \
        "$type" "$seconds" refused nested >"$stack/hostile.report"
    report="$(<"$stack/hostile.report")"
    for kind in refused nested; do
        seen="$(jq -c ".$kind" <<<"$report")"
        say "  $kind: $seen"
        promise "$kind: 99 of 100 of the other app's objects were answered within 250 ms" \
            "$(jq 'if .during.p99 < 250 then 1 else 0 end' <<<"$seen")"
        promise "$kind: memory stays within 128 MiB and twice what is reported as held" \
            "$(jq --argjson base "$base" 'if .memory <= $base + 2 * .held then 1 else 0 end' <<<"$seen")"
    done
    promise "none of the other app's objects was refused" \
        "$(jq 'if .failed == 0 then 1 else 0 end' <<<"$report")"
    stop_service "$ingest"
}
