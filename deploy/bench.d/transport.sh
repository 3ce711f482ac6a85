# The HTTP/2 transport against h2load, and h2load itself. Sourced by deploy/bench.
# shellcheck shell=bash

# Each server is started only for its own rounds.
bench_transport() {
    ensure_packages nghttp2-client nghttp2-server nginx libnginx-mod-http-echo openssl
    local folder="$run_folder/transport" connections streams requests port
    mkdir -p "$folder/files/3/device"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
        -subj /CN=localhost -addext subjectAltName=DNS:localhost \
        -keyout "$folder/key.pem" -out "$folder/certificate.pem" 2>/dev/null
    head -c 400 /dev/zero | tr '\0' x >"$folder/body"
    # nghttpd caches few open files: the paths use all of them in turn, or it would look faster than
    # it is.
    seq 1 4096 | while read -r number; do printf '/3/device/%064x\n' "$number"; done \
        >"$folder/paths"
    (cd "$folder/files" && sed 's|^/||' "$folder/paths" | xargs touch)

    port="$(free_port)"
    start nghttpd "$folder/nghttpd.log" nghttpd -a 127.0.0.1 -d "$folder/files" "$port" \
        "$folder/key.pem" "$folder/certificate.pem"
    against nghttpd "$port" 0.8 1 100 200000
    against nghttpd "$port" 0.8 4 500 200000
    port="$(free_port)"
    write_nginx_configuration "$port" ''
    start nginx "$folder/nginx.log" nginx -p "$folder" -c nginx.conf
    against nginx "$port" 0 1 100 200000
    against nginx "$port" 0 4 500 200000
    port="$(free_port)"
    # shellcheck disable=SC2016
    write_nginx_configuration "$port" 'echo_sleep $late; echo_status 200; echo -n "";'
    start nginx-late "$folder/nginx-late.log" nginx -p "$folder" -c nginx.conf
    against late "$port" 0 4 500 100000
}

# against SERVER PORT LEAST-RATE CONNECTIONS STREAMS REQUESTS: makes two rows, or one without a
# promised rate. A server that answers late sets the rate itself.
against() {
    local server="$1" name="transport-$1-$4x$5"
    port="$2" connections="$4" streams="$5" requests="$6"
    sed "s|^|https://localhost:$port|" "$folder/paths" >"$folder/uris"
    wait_for "${pids[-1]}" 20 curl -sk -o /dev/null --http2 "https://localhost:$port/"
    take_turns "$name" -- our_requests -- h2load_requests
    compare "$name" cpu "$server $4x$5, CPU" h2load ns most 1
    if [[ "$3" != 0 ]]; then compare "$name" per_second "$server $4x$5" h2load /s least "$3"; fi
}

# with_cpu COMMAND…: writes its output to the file out; prints user and system time in ns a request.
with_cpu() {
    local TIMEFORMAT='%3U %3S' times
    times="$( { time "$@" >"$folder/out" 2>"$folder/err"; } 2>&1)" || fail "$(cat "$folder/err")"
    jq -n --arg times "$times" --argjson requests "$requests" \
        '$times | split(" ") | map(tonumber) | add * 1e9 / $requests'
}

our_requests() {
    local cpu
    cpu="$(with_cpu "$bench" transport "https://localhost:$port" "$folder/certificate.pem" \
        "$connections" "$streams" "$requests" "$folder/paths" "$folder/body")"
    jq --argjson cpu "$cpu" '. + {cpu: $cpu}' "$folder/out"
}

# h2load_requests [OPTION…]: sends the `requests` of `folder` over `connections` and `streams`.
h2load_requests() {
    local cpu token
    token="$(printf 'x%.0s' {1..200})"
    cpu="$(with_cpu h2load -n "$requests" -c "$connections" -m "$streams" -t 1 \
        -i "$folder/uris" -d "$folder/body" -H "authorization: bearer $token" \
        -H 'apns-topic: com.example.shop' -H 'apns-push-type: alert' -H 'apns-priority: 10' \
        -H 'content-type: application/json' -H 'apns-id: 9e3779b9-7f4a-4000-8000-00007f4a7c15' "$@")"
    grep -q "status codes: $requests 2xx" "$folder/out" || fail "h2load: $(cat "$folder/out")"
    sed -n 's|^finished in .*, \([0-9.]*\) req/s.*|\1|p' "$folder/out" |
        jq --argjson cpu "$cpu" '{per_second: ., cpu: $cpu}'
}

# write_nginx_configuration PORT ANSWER: writes one with one worker, and without a GOAWAY after each
# 1,000 requests, which h2load does not survive.
write_nginx_configuration() {
    local answer="${2:-return 200;}"
    cat >"$folder/nginx.conf" <<NGINX
load_module /usr/lib/nginx/modules/ngx_http_echo_module.so;
daemon off;
worker_processes 1;
pid $folder/nginx-$1.pid;
error_log $folder/nginx-error.log;
events { worker_connections 1024; }
http {
    access_log off;
    keepalive_requests 100000000;
    http2_max_concurrent_streams 1000;
    client_body_temp_path $folder/nginx-body;
    proxy_temp_path $folder/nginx-proxy;
    fastcgi_temp_path $folder/nginx-fastcgi;
    uwsgi_temp_path $folder/nginx-uwsgi;
    scgi_temp_path $folder/nginx-scgi;
    split_clients \$request_uri \$late { 25% 0.02; 25% 0.04; 25% 0.06; * 0.08; }
    server {
        listen 127.0.0.1:$1 ssl http2;
        ssl_certificate $folder/certificate.pem;
        ssl_certificate_key $folder/key.pem;
        add_header apns-id 9e3779b9-7f4a-4000-8000-00007f4a7c15;
        location / { $answer }
    }
}
NGINX
}
