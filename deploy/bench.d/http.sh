# The HTTP server: the cost of a response, and its behaviour with bad peers. Sourced by
# deploy/bench.
# shellcheck shell=bash

bench_http() {
    ensure_packages nginx nghttp2-client
    head -c 400 /dev/zero | tr '\0' x >"$run_folder/400-bytes"
    ulimit -Sn "$(ulimit -Hn)"
    start_http_servers
    # The first request of each kind initialises what is made on first use.
    http_load ours get / >/dev/null
    http_load nginx get / >/dev/null
    take_turns http-get -- http_load ours get / -- http_load nginx get /
    compare http-get cpu_ns "GET, constant answer" nginx "CPU ns" most 1.5
    take_turns http-post -- http_load ours post / -- http_load nginx post /
    compare http-post cpu_ns "POST of 400 bytes" nginx "CPU ns" most 1.5
    take_turns http-suspends -- http_load ours get /suspends -- http_load ours get /
    compare http-suspends cpu_ns "GET, suspends once" GET "CPU ns" most 1.15
}

bench_peers() {
    ensure_packages nginx nghttp2-client
    local kind title pin=() rounds=3 processors
    # Clients that fill a processor must not look like a slow server.
    if (($(nproc) > 1)); then pin=(taskset -c 1); fi
    (($(ulimit -Hn) >= 12000)) || fail "needs 12,000 open files (ulimit -Hn), to have 5,000 idle peers"
    ulimit -Sn "$(ulimit -Hn)"
    start_http_servers
    processors="$(taskset -c -p $$ | sed 's/.*: //')"
    if (($(nproc) > 1)); then run_servers_on 0; fi
    take_turns peers -- bad_peers ours -- bad_peers nginx
    # Another section may use these servers next.
    run_servers_on "$processors"
    for kind in request_line headers body idle devour hammer; do
        case $kind in
            request_line) title="1,000 slow request lines" ;;
            headers) title="1,000 slow headers" ;;
            body) title="1,000 slow bodies" ;;
            idle) title="5,000 idle" ;;
            devour) title="1,000 that never read" ;;
            hammer) title="1,000 that pipeline by 20" ;;
        esac
        peers_row "$kind" p99 "p99 beside $title" "µs more" 1000 10000
    done
    peers_row idle memory "memory of 5,000 idle" "KiB more" 0.0009765625 65536
    peers_row devour memory "memory, 1,000 never read" "KiB more" 0.0009765625 409600
    peers_row hammer memory "memory, 1,000 pipelining" "KiB more" 0.0009765625 409600
    if [[ -n "${KAFKA_BOOTSTRAP_SERVERS:-}${KAFKA_HOME:-}" ]]; then
        bench_hostile
    else
        skipped "20 hostile peers" "no Kafka"
    fi
}

run_servers_on() {
    taskset -a -c -p "$1" "${server_pid[ours]}" >/dev/null
    taskset -a -c -p "$1" "${server_pid[nginx]}" >/dev/null
}

bad_peers() {
    ${pin[@]+"${pin[@]}"} python3 "$root/Tests/Benchmarks/peers.py" "${server_port[$1]}" "${server_pid[$1]}"
}

# peers_row KIND KEY TITLE UNIT FACTOR BOUND: makes a row of the excess over the client alone.
# Memory is the maximum of any round above the server's first, as it may keep what it allocated.
peers_row() {
    jq -n --arg kind "$1" --arg key "$2" --arg measured "$3" --arg unit "$4" --argjson factor "$5" \
        --argjson bound "$6" --argjson rounds "$rounds" \
        --slurpfile ours "$run_folder/peers.ours" --slurpfile theirs "$run_folder/peers.theirs" '
        def more: .[0].alone[$key] as $first | if $key == "memory"
            then map((.[$kind][$key] - $first) * $factor) | max
            else map((.[$kind][$key] - .alone[$key]) * $factor) | sort | .[length / 2 | floor] end;
        ($ours | more) as $our
        | {section: "peers", measured: $measured, rounds: $rounds, unit: $unit, ours: $our, them: "nginx",
           theirs: ($theirs | more), ratio: null, bound: "at most \($bound) \($unit)",
           holds: ($our <= $bound)}' >>"$run_folder/rows"
}

# Our server uses one loop, nginx one process: `server_pid` and `server_port` have one of each.
start_http_servers() {
    local folder="$run_folder/nginx"
    if [[ -n "${server_pid[ours]:-}" ]]; then return; fi
    start bench "$run_folder/http.log" "$bench" http
    server_pid[ours]=$started
    wait_for "$started" 10 grep -q . "$run_folder/http.log" || fail "carillon-bench http did not start"
    server_port[ours]="$(head -n 1 "$run_folder/http.log")"
    server_port[nginx]="$(free_port)"
    mkdir -p "$folder"
    # It reads the bytes of a body without using them. Files that it would write go to its folder.
    cat >"$folder/nginx.conf" <<CONF
daemon off;
master_process off;
worker_processes 1;
pid $folder/nginx.pid;
error_log $folder/error.log;
events { worker_connections 16384; }
http {
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 600;
    client_body_temp_path $folder/body;
    proxy_temp_path $folder/proxy;
    fastcgi_temp_path $folder/fastcgi;
    uwsgi_temp_path $folder/uwsgi;
    scgi_temp_path $folder/scgi;
    server {
        listen 127.0.0.1:${server_port[nginx]} backlog=4096;
        default_type application/json;
        location / { return 200 '{"status":"ok"}'; }
    }
}
CONF
    start nginx "$run_folder/nginx.log" /usr/sbin/nginx -c "$folder/nginx.conf" -p "$folder"
    server_pid[nginx]=$started
    wait_for "$started" 10 http_answers "${server_port[nginx]}" || fail "nginx did not start"
}

declare -A server_pid=() server_port=()

http_answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# http_load SERVER get|post PATH: sends 100,000 requests over 64 connections, each answered 200, and
# prints the server's CPU time for each, the kernel's part included.
http_load() {
    local count=100000 before after body=()
    if [[ "$2" == post ]]; then body=(-d "$run_folder/400-bytes"); fi
    before="$(cpu_time "${server_pid[$1]}")"
    h2load --h1 -t 1 -c 64 -n "$count" ${body[@]+"${body[@]}"} \
        "http://127.0.0.1:${server_port[$1]}$3" >"$run_folder/h2load.log"
    after="$(cpu_time "${server_pid[$1]}")"
    grep -q "^status codes: $count 2xx" "$run_folder/h2load.log" ||
        fail "$1 did not answer 200 each time: $run_folder/h2load.log"
    jq -n --argjson spent $((after - before)) --argjson count "$count" '{cpu_ns: ($spent / $count)}'
}

# The unit is nanoseconds, over all threads of a process.
cpu_time() { awk '{ sum += $1 } END { printf "%.0f\n", sum }' /proc/"$1"/task/*/schedstat; }
