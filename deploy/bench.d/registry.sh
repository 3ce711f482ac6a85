# The registry of installations: saves over HTTP, compared with the same rows written by SQL.
# Sourced by deploy/bench.
# shellcheck shell=bash

bench_registry() {
    local app=registry key size name fresh=1000000000 registration_port registration_pid
    use_stack
    "${build_command[@]}" --product carillon-registration
    size="$(printf '%s\n' "${sizes[@]}" | sort -n | tail -n 1)"
    name="$(size_name "$size")"
    create_app "$app" 0
    key="$(jq -r .appKey "$stack/$app.json")"
    registry_rows "$size"
    start_registration
    registry_scripts

    take_turns known -- registry_load known 1 "$size" 64 5 -- registry_pgbench known 5
    compare known per_second "saves of known devices of $name, 64 clients" pgbench /s least 1
    take_turns fresh -- registry_new 64 5 -- registry_pgbench fresh 5
    compare fresh per_second "saves of new devices, 64 clients" pgbench /s least 1

    take_turns known-1 -- registry_load known 1 "$size" 1 3 -- true
    registry_latency known-1 "a save among $name"
    take_turns known-8 -- registry_load known 1 "$size" 8 3 -- true
    registry_latency known-8 "a save among $name, 8 clients"
    take_turns subscribe-1 -- registry_load subscribe 1 "$size" 1 3 -- true
    registry_latency subscribe-1 "a subscription among $name"
    take_turns subscribe-8 -- registry_load subscribe 1 "$size" 8 3 -- true
    registry_latency subscribe-8 "a subscription, $name, 8 clients"
    stop_service "$registration_pid"
}

# registry_latency NAME TITLE
registry_latency() {
    figure "$1" per_second "$2" /s - 0
    figure "$1" p50 "$2, p50" ms - 0
    figure "$1" p99 "$2, p99" ms most 10
}

# registry_rows COUNT: makes devices 1 to COUNT, as the load saves them.
registry_rows() {
    if [[ "$(sql "SELECT count(*) FROM installations WHERE app = '$app'")" != 0 ]]; then return; fi
    note "registering $1 installations of $app"
    sql "$(registry_insert "SELECT generate_series(1, $1)")"
    sql 'VACUUM (ANALYZE) installations'
    sql CHECKPOINT
}

# registry_insert NUMBERS: prints the statement that saves the devices of these, which are rows of
# i.
registry_insert() {
    cat <<SQL
INSERT INTO installations (app, object_id, device_type, provider, token, token_hash, environment,
    identity, channels, installation_id, time_zone, locale, fields, token_updated_at)
SELECT '$app', lpad(to_hex(i), 24, '0'), 'ios', 'apns', lpad(to_hex(i), 64, '0'),
    sha256(convert_to(lpad(to_hex(i), 64, '0'), 'UTF8')), 'production', 'user-' || i / 3,
    '{news,half}', 'phone-' || i, 'Europe/Berlin', 'de_CH',
    jsonb_build_object('deviceToken', lpad(to_hex(i), 64, '0'), 'apnsEnvironment', 'production',
        'localeIdentifier', 'de_CH', 'identity', 'user-' || i / 3, 'plan', i % 100,
        'appVersion', '4.2.1'), now()
FROM ($1) AS n(i)
SQL
}

# registry_scripts: makes pgbench's scripts: the same row by one statement.
registry_scripts() {
    local kind
    for kind in known fresh; do
        {
            case $kind in
                known) echo "\\set i random(1, $size)" ;;
                fresh) echo '\set i random(1, 1000000000)' ;;
            esac
            registry_insert "SELECT :i::bigint"
            cat <<'SQL'
ON CONFLICT (app, provider, token_hash, environment) WHERE token_hash IS NOT NULL
DO UPDATE SET device_type = EXCLUDED.device_type, identity = EXCLUDED.identity,
    channels = EXCLUDED.channels, installation_id = EXCLUDED.installation_id,
    time_zone = EXCLUDED.time_zone, locale = EXCLUDED.locale, fields = EXCLUDED.fields,
    token_updated_at = EXCLUDED.token_updated_at, valid = true, updated_at = now();
SQL
        } >"$stack/registry-$kind.sql"
    done
}

# registry_pgbench KIND SECONDS
registry_pgbench() {
    "$(postgres_bin)/pgbench" -n -M prepared -c 4 -j 2 -T "$2" -f "$stack/registry-$1.sql" \
        "$stack_database" 2>"$stack/pgbench.log" |
        awk '/^tps/ { printf "{\"per_second\": %s}\n", $3 }'
}

# registry_load KIND FROM TO CONNECTIONS SECONDS
registry_load() { "$bench" registry "$registration_port" "$app" "$key" "$@"; }

# registry_new CONNECTIONS SECONDS: saves new devices.
registry_new() {
    fresh=$((fresh + 10000000))
    registry_load new "$fresh" $((fresh + 9999999)) "$@"
}

start_registration() {
    local log="$run_folder/registration.log"
    start registration "$log" env HTTP_HOST=127.0.0.1 HTTP_PORT=0 LOG_FORMAT=json \
        SHUTDOWN_GRACE=10s "$bin/carillon-registration"
    registration_pid=$started
    wait_for "$started" 30 grep -qs '"message":"listening"' "$log" ||
        fail "the registration did not start: $(tail -n 5 "$log")"
    registration_port="$(jq -nrR 'first(inputs | fromjson?
        | select(.message == "listening" and .scheme == "http")).port' "$log")"
    wait_for "$started" 60 curl -sf -o "$stack/readyz" \
        "http://127.0.0.1:$registration_port/readyz" ||
        fail "the registration is not ready: $(cat "$stack/readyz")"
}
