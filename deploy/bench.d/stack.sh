# A complete Carillon with an app in it, for deploy/bench's end-to-end sections and deploy/chaos:
# Postgres with fsync on, Kafka, and nginx instead of APNs. Sourced by both.
# shellcheck shell=bash

stack=
declare -A nginx_port=() nginx_pid=() nginx_status=()
declare -A dispatcher_pid=() dispatcher_port=()

# use_stack: starts it on first use, and points `carillon` at it.
use_stack() {
    if [[ -z "$stack" ]]; then start_stack; fi
    export DATABASE_URL="$stack_database"
}

start_stack() {
    local product
    for product in carillon carillon-dispatcher carillon-bench; do
        "${build_command[@]}" --product "$product"
    done
    bin="$("${build_command[@]}" --show-bin-path)"
    bench="$bin/carillon-bench"
    stack="$run_folder/stack"
    mkdir -p "$stack"
    ensure_packages "${server_packages[@]}" openssl libmimalloc2.0
    # The settings are those of production, but smaller.
    start_postgres "$run_folder/stack-postgres" fsync=on full_page_writes=on shared_buffers=1GB \
        max_wal_size=8GB
    postgres_pid=$started
    stack_database="$DATABASE_URL"
    if [[ -z "${KAFKA_BOOTSTRAP_SERVERS:-}" ]]; then
        ensure_packages "${kafka_packages[@]}"
        start_kafka "$run_folder/kafka"
    fi
    broker_pid="$(pid_of kafka)"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
        -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
        -keyout "$stack/key.pem" -out "$stack/certificate.pem" 2>/dev/null
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$stack/key.p8" 2>/dev/null
    export CARILLON_MASTER_KEYS KAFKA_TOPIC_PREFIX KAFKA_GROUP_ID PROVIDER_CA_FILE
    CARILLON_MASTER_KEYS="bench:$(head -c 32 /dev/urandom | base64 -w 0)"
    # An existing broker outlives this run.
    KAFKA_TOPIC_PREFIX="bench-$$-$RANDOM-"
    KAFKA_GROUP_ID="${KAFKA_TOPIC_PREFIX}dispatcher"
    PROVIDER_CA_FILE="$stack/certificate.pem"
    requests_topic="${KAFKA_TOPIC_PREFIX}push.requests"
    carillon migrate >"$run_folder/migrate.log"
}

# pid_of NAME: prints the process last started by that name, if it is one of ours.
pid_of() {
    local index found=
    for index in "${!pids[@]}"; do
        if [[ "${pid_names[index]}" == "$1" ]]; then found="${pids[index]}"; fi
    done
    echo "$found"
}

carillon() { "$bin/carillon" "$@"; }

sql() {
    "$(postgres_bin)/psql" -X -q -A -t -v ON_ERROR_STOP=1 -c "$1" "$stack_database"
}

# ── Apps, and their installations ───────────────────────────────────────────────────────────────

# create_app APP [COUNT]: makes an app with a key for APNs, and this many installations on iOS. The
# object ids are 1 to COUNT in hexadecimal; every second is on the channel `half`, three make an
# identity.
create_app() {
    local app="$1" count="${2:-0}"
    if [[ "$(sql "SELECT count(*) FROM apps WHERE id = '$app'")" == 1 ]]; then return; fi
    carillon app create "$app" --json >"$stack/$app.json"
    carillon credentials set apns "$app" --topic "com.example.$app" --key-file "$stack/key.p8" \
        --key-id BENCH12345 --team-id TEAM123456 >/dev/null
    note "registering $count installations of $app"
    sql "INSERT INTO installations (app, object_id, device_type, provider, token, token_hash,
            environment, identity, channels, locale, fields, token_updated_at)
        SELECT '$app', lpad(to_hex(i), 24, '0'), 'ios', 'apns', token,
            sha256(convert_to(token, 'UTF8')), 'production', 'user-' || (i - 1) / 3,
            CASE WHEN i % 2 = 0 THEN '{news,half}'::text[] ELSE '{news}' END,
            (ARRAY['de_CH', 'en_US', 'fr_FR', 'ja_JP'])[i % 4 + 1],
            jsonb_build_object('deviceToken', token, 'apnsEnvironment', 'production',
                'identity', 'user-' || (i - 1) / 3, 'plan', i % 100), now()
        FROM generate_series(1, $count) AS i,
            LATERAL (SELECT encode(sha256(convert_to('$app ' || i, 'UTF8')), 'hex')) AS t (token)"
    sql 'VACUUM (ANALYZE) installations'
    sql CHECKPOINT
}

# size_name COUNT: prints 1M, 100k.
size_name() {
    if (($1 % 1000000 == 0)); then
        echo "$(($1 / 1000000))M"
    elif (($1 % 1000 == 0)); then
        echo "$(($1 / 1000))k"
    else
        echo "$1"
    fi
}

# clear_books: empties the tables of pushes and deliveries for a round.
clear_books() { truncate_tables pushes, deliveries, event_keys, event_pushes, delivery_chunks; }

# clear_rows: does the same except for events in one row each, including the week before.
clear_rows() { truncate_tables pushes, deliveries, event_keys, delivery_chunks; }

truncate_tables() { sql "SET client_min_messages = warning; TRUNCATE $* CASCADE"; }

# books_bytes: prints the size of pushes, deliveries and the keys of events, with their indexes.
books_bytes() {
    sql "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE c.relkind = 'r'
        AND c.relname ~ '^(pushes|event_keys|event_pushes|deliveries|delivery_chunks)(_default|_[0-9]{8})?\$'"
}

# wal_now: prints the bytes of write-ahead log so far.
wal_now() { sql "SELECT pg_current_wal_insert_lsn() - '0/0'"; }

# books_since WAL BYTES COUNT: prints the cost of a push or delivery in both, in the form of
# cpu_since.
books_since() {
    jq -nc --argjson wal "$(wal_now)" --argjson before "$1" --argjson bytes "$(books_bytes)" \
        --argjson empty "$2" --argjson count "$3" \
        '{wal: (($wal - $before) / $count), bytes: (($bytes - $empty) / $count)}'
}

# ── Processes ───────────────────────────────────────────────────────────────────────────────────

# start_apns NAME [KEEPALIVE [LOG]]: starts nginx on `nginx_port[NAME]`, with one worker, which
# answers every notification alike, 1,000 at a time on a connection; with GOAWAY after KEEPALIVE
# requests. LOG gets the path of each, with its apns-id and its collapse id.
start_apns() {
    local name="$1" keepalive="${2:-100000000}" log="off" folder="$stack/nginx-$1"
    if [[ -n "${nginx_pid[$name]:-}" ]]; then return; fi
    ensure_packages nginx
    nginx_port[$name]="$(free_port)"
    nginx_status[$name]="$(free_port)"
    if [[ -n "${3:-}" ]]; then log="$3 path buffer=64k flush=1s"; fi
    mkdir -p "$folder"
    cat >"$folder/nginx.conf" <<NGINX
daemon off;
worker_processes 1;
pid $folder/nginx.pid;
error_log $folder/error.log;
events { worker_connections 4096; }
http {
    log_format path '\$uri \$http_apns_id \$http_apns_collapse_id';
    access_log $log;
    keepalive_requests $keepalive;
    http2_max_concurrent_streams 1000;
    client_body_temp_path $folder/body;
    proxy_temp_path $folder/proxy;
    fastcgi_temp_path $folder/fastcgi;
    uwsgi_temp_path $folder/uwsgi;
    scgi_temp_path $folder/scgi;
    server {
        listen 127.0.0.1:${nginx_port[$name]} ssl http2;
        ssl_certificate $stack/certificate.pem;
        ssl_certificate_key $stack/key.pem;
        add_header apns-id 9e3779b9-7f4a-4000-8000-00007f4a7c15;
        location /3/device/ { return 200; }
        location / { return 404; }
    }
    server {
        listen 127.0.0.1:${nginx_status[$name]};
        access_log off;
        location / { stub_status; }
    }
}
NGINX
    start "nginx-$name" "$folder/nginx.log" /usr/sbin/nginx -p "$folder" -c nginx.conf
    nginx_pid[$name]=$started
    wait_for "$started" 10 curl -sf -o "$folder/status" "http://127.0.0.1:${nginx_status[$name]}/" ||
        fail "nginx did not start: $(cat "$folder/nginx.log" "$folder/error.log")"
}

apns_origin() { echo "https://localhost:${nginx_port[$1]}"; }

# apns_requests NAME: prints how many requests that nginx has received from others.
apns_requests() {
    curl -sf "http://127.0.0.1:${nginx_status[$1]}/" >"$stack/status"
    awk 'NR == 3 { print $3 }' "$stack/status"
}

# start_dispatcher NAME ORIGIN [VARIABLE=VALUE…]: starts it with the image's allocator, and waits
# until it is ready.
start_dispatcher() {
    local name="$1" origin="$2" log="$run_folder/dispatcher-$1.log"
    shift 2
    start "dispatcher-$name" "$log" env HTTP_HOST=127.0.0.1 HTTP_PORT=0 LOG_FORMAT=json \
        LD_PRELOAD=libmimalloc.so.2 SHUTDOWN_GRACE=10s APNS_PRODUCTION_URL="$origin" "$@" \
        "$bin/carillon-dispatcher"
    dispatcher_pid[$name]=$started
    wait_for "$started" 30 grep -qs '"message":"listening"' "$log" ||
        fail "the dispatcher did not start: $(tail -n 5 "$log")"
    dispatcher_port[$name]="$(jq -nrR 'first(inputs | fromjson?
        | select(.message == "listening" and .scheme == "http")).port' "$log")"
    wait_for "$started" 60 curl -sf -o "$stack/readyz" \
        "http://127.0.0.1:${dispatcher_port[$name]}/readyz" ||
        fail "the dispatcher is not ready: $(cat "$stack/readyz")"
}

stop_dispatcher() {
    stop_service "${dispatcher_pid[$1]}"
    unset "dispatcher_pid[$1]" "dispatcher_port[$1]"
}

# tree_cpu PID: prints the CPU time in ns of a process and its descendants, including ended ones.
tree_cpu() {
    if [[ -z "$1" ]]; then
        echo null
        return
    fi
    cat /proc/[0-9]*/stat 2>/dev/null | awk -v top="$1" -v tick="$(getconf CLK_TCK)" '
        {
            pid = $1
            sub(/^.*\) /, "")
            parent[pid] = $2
            spent[pid] = $12 + $13 + $14 + $15
        }
        END {
            for (pid in parent) {
                for (above = pid; above != top && above in parent; above = parent[above]) {}
                if (above == top) sum += spent[pid]
            }
            printf "%.0f\n", sum * 1e9 / tick
        }' || true
}

# cpu_now APNS: prints that of the dispatchers and of each other process, for cpu_since.
cpu_now() {
    local pid dispatchers=()
    for pid in "${dispatcher_pid[@]}"; do dispatchers+=("$(tree_cpu "$pid")"); done
    jq -nc --argjson postgres "$(tree_cpu "$postgres_pid")" \
        --argjson broker "$(tree_cpu "$broker_pid")" \
        --argjson nginx "$(tree_cpu "${nginx_pid[$1]}")" \
        '{dispatcher: ($ARGS.positional | add), $postgres, $broker, $nginx}' \
        --jsonargs ${dispatchers[@]+"${dispatchers[@]}"}
}

# cpu_since BEFORE APNS COUNT: prints the difference in ns for each of COUNT; null without a
# process.
cpu_since() {
    jq -nc --argjson before "$1" --argjson after "$(cpu_now "$2")" --argjson count "$3" '
        $after | with_entries(.key += "_cpu" | .value = (.key[:-4] as $key
            | if .value and $before[$key] then (.value - $before[$key]) / $count else null end))'
}

# peak_memory PID: prints the maximum resident memory in MB.
peak_memory() { awk '/^VmHWM/ { print $2 * 1024 / 1e6 }' "/proc/$1/status"; }

# ── Pushes ──────────────────────────────────────────────────────────────────────────────────────

# 400 bytes of payload, as h2load sends.
alert="$(printf 'x%.0s' {1..380})"

milliseconds_now() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }

# broadcast APP EVENT [DATA [FIELDS]]: writes one record for all of the app's installations.
broadcast() {
    local data="${3:-{\}}" fields="${4:-{\}}"
    jq -nc --arg app "$1" --arg id "$2" --arg alert "$alert" --argjson data "$data" \
        --argjson fields "$fields" '{$id, $app, data: ({$alert} + $data)} + $fields' |
        kcat -P -b "$KAFKA_BOOTSTRAP_SERVERS" -t "$requests_topic" -X acks=all
}

# when_written SINCE: prints the time in milliseconds in the first record after SINCE.
when_written() {
    kcat -C -q -b "$KAFKA_BOOTSTRAP_SERVERS" -t "$requests_topic" -o "s@$1" -e -f '%T\n' | sort -n |
        head -n 1
}

# finished_push APP EVENT: waits for its end, and prints the output of `carillon push show`.
finished_push() {
    local id tries=0
    until carillon push show --app "$1" --event "$2" --json >"$stack/push" 2>"$stack/push.log"; do
        sleep 0.2
        if ((++tries > 300)); then fail "no push came of the record: $(cat "$stack/push.log")"; fi
    done
    id="$(jq -r .pushId "$stack/push")"
    # The lines before the last show the progress.
    timeout 3600 "$bin/carillon" push show "$id" --watch --json | tail -n 1 ||
        fail "the push did not end"
}
