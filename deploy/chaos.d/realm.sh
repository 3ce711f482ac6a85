# Realm's own client, while the services that it uploads to, the broker and the clients themselves are
# killed. Sourced by deploy/chaos.
# shellcheck shell=bash

scenario_realm() {
    local app=chaos-realm type=WeatherSensor clients=20 kills=20 client_kills=40 folder="$stack/realm"
    local kill driver verdict outcome view before victim name start=$SECONDS realm_address
    local -A realm_port=() realm_pid=()
    if [[ -z "${REALM_CLIENT:-}" ]]; then
        say "  SKIPPED: REALM_CLIENT names no folder with Realm's client"
        return
    fi
    compile_realm_client
    "${build_command[@]}" --product carillon-ingest
    create_app "$app" 0
    ingest_schema >"$stack/sensor.json"
    carillon ingest type put "$app" "$type" --schema "$stack/sensor.json" >"$run_folder/type.log"
    carillon app set "$app" realm-sync=on >"$run_folder/app-set.log"
    view="$(carillon ingest type show "$app" "$type" --json | jq -er .view)"
    for kill in 0 1; do
        realm_port[$kill]="$(free_port)"
        start_realm_replica $kill
    done
    start_realm_address
    start_realm_clients
    for ((kill = 1; kill <= kills; kill++)); do
        # Writes continue until the next kill, so that each kill comes among them. It also comes only once
        # objects are stored again after the kill before.
        echo $((uploads * (kill + 1) / (kills + 1))) >"$folder/allowed.new"
        mv "$folder/allowed.new" "$folder/allowed"
        before="$(ingest_stored)"
        wait_for "$driver" 300 realm_reaches $((uploads * kill / (kills + 1))) "$before" || break
        victim=$((kill % 3))
        name="replica $victim"
        if ((victim == 2)); then name="the broker"; fi
        say "  kill -9 of $name, at $(cat "$folder/written") written, $(ingest_stored) stored"
        if ((victim < 2)); then
            kill -KILL "${realm_pid[$victim]}"
            wait "${realm_pid[$victim]}" 2>/dev/null || true
            forget "${realm_pid[$victim]}"
            start_realm_replica $victim
        else
            kill_broker
        fi
    done
    echo "$uploads" >"$folder/allowed"
    wait "$driver" || fail "the clients did not end: $(tail -n 5 "$run_folder/realm-clients.log")"
    forget "$driver"
    verdict="$(tail -n 1 "$run_folder/realm-clients.log" | jq -c .)"
    say "  the clients: $verdict"
    wait_for "${realm_pid[0]}" 120 realm_is_stored || true
    # An object that comes twice would come now.
    sleep 5
    realm_is_stored || true
    outcome="$(cat "$stack/realm-outcome.json")"
    say "  what is stored: $outcome"
    say "  records on Kafka: $(kcat -C -q -b "$KAFKA_BOOTSTRAP_SERVERS" -t "${KAFKA_TOPIC_PREFIX}ingest.$type" \
        -o beginning -e -f '%k\n' | grep -c '^7265616c'); done after $((SECONDS - start)) s"

    promise "twenty kills of the two replicas and of the broker came in time" $((kill - 1 == kills))
    promise "each client was killed, $client_kills times in all" "$(jq --argjson kills "$client_kills" \
        'if .kills == $kills and .killedEach > 0 then 1 else 0 end' <<<"$verdict")"
    promise "$uploads objects were written" "$(jq --argjson uploads "$uploads" \
        'if .written == $uploads then 1 else 0 end' <<<"$verdict")"
    promise "every accepted object is in Postgres ($(jq .lost <<<"$outcome") lost)" "$(is_none lost)"
    promise "each of them once ($(jq .twice <<<"$outcome") twice)" "$(is_none twice)"
    promise "none is there that no client wrote" "$(is_none strange)"
    promise "each is as it was written" "$(sql "SELECT (count(*) = 0)::int FROM $view
        WHERE \"deviceId\" <> 'WX' || ('x' || substr(_id, 9, 8))::bit(32)::int
            OR \"windSpeedInMph\" <> ('x' || right(_id, 8))::bit(32)::int
            OR \"temperatureInFahrenheit\" <> 66.7 OR _id <> _object->>'_id'")"
    promise "every refused object is a dead letter ($(jq .refused <<<"$verdict")), and none is stored" \
        $(($(is_none refusedLost) && $(is_none refusedStored) && $(is_none lettersStrange)))
    promise "of each interrupted write the committed transactions are there" "$(is_none torn)"
    promise "no client was logged out or reset, and none had a fatal error or crashed" \
        "$(jq 'if .harm == 0 and .crashes == 0 then 1 else 0 end' <<<"$verdict")"
    promise "no file was set aside" "$(find "$folder" -path '*recovered-realms/*' | awk 'END { print NR == 0 }')"
    promise "no client reported an error of the service" "$(carillon ingest realm status "$app" --json |
        jq 'if .complaints == 0 then 1 else 0 end')"
    for kill in 0 1; do stop_service "${realm_pid[$kill]}"; done
    stop_service "$realm_address"
}

# is_none NAME: prints 1 if this number of the outcome is 0.
is_none() { jq --arg name "$1" 'if .[$name] == 0 then 1 else 0 end' <<<"$outcome"; }

# compile_realm_client: makes `realm_command` of the driver in REALM_CLIENT.
compile_realm_client() {
    local classes="$stack/realm-classes" home="$stack/realm-home"
    [[ -f "$REALM_CLIENT/RealmClient.java" ]] || fail "REALM_CLIENT: $REALM_CLIENT has no driver"
    ensure_packages "${java_packages[@]}"
    mkdir -p "$classes" "$home"
    javac -encoding UTF-8 -nowarn -d "$classes" -cp "$REALM_CLIENT/*" "$REALM_CLIENT/RealmClient.java" \
        "$REALM_CLIENT/Json.java"
    # It unpacks its native library into the home.
    realm_command=(env HOME="$home" java -Duser.home="$home" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx128m
        -cp "$REALM_CLIENT/*:$classes" RealmClient)
}

# start_realm_replica NAME: starts an intake with a sink, on its port.
start_realm_replica() {
    local log="$run_folder/realm-$1.log"
    start "realm-$1" "$log" env HTTP_HOST=127.0.0.1 HTTP_PORT="${realm_port[$1]}" LOG_FORMAT=json \
        HTTP_ACCESS_LOG=false HTTP_TRUSTED_PROXIES=127.0.0.1 KAFKA_GROUP_ID="${KAFKA_TOPIC_PREFIX}ingest" \
        "$bin/carillon-ingest"
    realm_pid[$1]=$started
    wait_for "$started" 60 curl -sf -o "$stack/readyz" "http://127.0.0.1:${realm_port[$1]}/readyz" ||
        fail "the replica $1 is not ready: $(tail -n 5 "$log" "$stack/readyz")"
}

# start_realm_address: starts nginx as the one address of both replicas, as `realm_address` on
# `realm_port[address]`.
start_realm_address() {
    local folder="$stack/nginx-realm"
    realm_port[address]="$(free_port)"
    mkdir -p "$folder"
    cat >"$folder/nginx.conf" <<NGINX
daemon off;
worker_processes 1;
pid $folder/nginx.pid;
error_log $folder/error.log;
events { worker_connections 4096; }
http {
    access_log off;
    client_body_temp_path $folder/body;
    proxy_temp_path $folder/proxy;
    fastcgi_temp_path $folder/fastcgi;
    uwsgi_temp_path $folder/uwsgi;
    scgi_temp_path $folder/scgi;
    upstream replicas {
        server 127.0.0.1:${realm_port[0]} max_fails=0;
        server 127.0.0.1:${realm_port[1]} max_fails=0;
    }
    server {
        listen 127.0.0.1:${realm_port[address]};
        location / {
            proxy_pass http://replicas;
            proxy_http_version 1.1;
            proxy_set_header Host \$http_host;
            proxy_set_header Upgrade \$http_upgrade;
            proxy_set_header Connection \$http_connection;
            proxy_set_header X-Forwarded-For \$remote_addr;
            proxy_read_timeout 300s;
            proxy_send_timeout 300s;
        }
    }
}
NGINX
    start nginx-realm "$folder/nginx.log" /usr/sbin/nginx -p "$folder" -c nginx.conf
    realm_address=$started
    wait_for "$started" 10 curl -sf -o "$stack/readyz" "http://127.0.0.1:${realm_port[address]}/readyz" ||
        fail "nginx did not start: $(cat "$folder/nginx.log" "$folder/error.log")"
}

# start_realm_clients: starts them as the process `driver`, and waits for their first objects.
start_realm_clients() {
    mkdir -p "$folder"
    echo 0 >"$folder/written"
    echo $((uploads / (kills + 1))) >"$folder/allowed"
    start realm-clients "$run_folder/realm-clients.log" python3 "$root/deploy/chaos.d/realm_clients.py" \
        "$clients" "$uploads" "$client_kills" "${realm_port[address]}" "$app" "$folder" -- "${realm_command[@]}"
    driver=$started
    wait_for "$driver" 300 realm_reaches 1 0 ||
        fail "the clients write nothing: $(tail -n 5 "$run_folder/realm-clients.log")"
}

# realm_reaches COUNT STORED: is true if so many objects are written, and more than STORED are stored.
realm_reaches() {
    sleep 0.2
    (($(cat "$folder/written") >= $1)) && (($(ingest_stored) > $2))
}

# realm_is_stored: writes the outcome, and is true if nothing is missing.
realm_is_stored() {
    sql "COPY (SELECT _id FROM $view) TO STDOUT" >"$stack/realm-stored"
    dead_letters_of "$app" | jq -r ._id >"$stack/realm-letters"
    python3 "$root/deploy/chaos.d/realm_verdict.py" "$folder/record" "$stack/realm-stored" "$stack/realm-letters" \
        >"$stack/realm-outcome.json"
    jq -e '.lost == 0 and .refusedLost == 0 and .torn == 0' "$stack/realm-outcome.json" >"$stack/answer"
}
