# Realm's clients: objects accepted from them, compared with the native route; open sockets. Sourced by
# deploy/bench.
# shellcheck shell=bash

# ingest_realm: measures uploads in turns with native batches of the same objects, to the service that is
# `pid` on `port`.
ingest_realm() {
    take_turns ingest-realm -- realm_uploaded 1 -- native_posted
    compare ingest-realm per_second "Realm, an object a transaction" native /s - 0
    compare ingest-realm cpu "the same, CPU of an object" native ns - 0
    take_turns ingest-realm-100 -- realm_uploaded 100 -- native_posted
    compare ingest-realm-100 per_second "Realm, 100 objects a transaction" native /s - 0
    compare ingest-realm-100 cpu "the same, CPU of an object" native ns - 0
}

# accepted_since COUNT CPU: reads `objects` and `per_second` of a load, and prints per_second and the service's
# CPU time for each object that it accepted since.
accepted_since() {
    jq -c --argjson count $(($(ingest_metric ingest_objects_accepted_total) - $1)) \
        --argjson cpu $(($(tree_cpu "$pid") - $2)) 'if $count < .objects then error("not all was accepted")
        else {per_second, cpu: ($cpu / $count)} end'
}

# realm_uploaded PER_TRANSACTION
realm_uploaded() {
    local before cpu
    before="$(ingest_metric ingest_objects_accepted_total)"
    cpu="$(tree_cpu "$pid")"
    ${pin[@]+"${pin[@]}"} python3 "$root/Tests/Benchmarks/realm_clients.py" upload "$port" "$app" 6 32 "$1" \
        >"$stack/realm.json"
    accepted_since "$before" "$cpu" <"$stack/realm.json"
}

native_posted() {
    local before cpu
    before="$(ingest_metric ingest_objects_accepted_total)"
    cpu="$(tree_cpu "$pid")"
    ingest_load native 5 | jq '{objects: (.answers * 100), per_second: (.per_second * 100)}' >"$stack/native.json"
    accepted_since "$before" "$cpu" <"$stack/native.json"
}

# realm_sockets: measures a service of its own, with the image's allocator, while nothing but pings comes.
realm_sockets() {
    local count=10000 most clients resident cpu idle
    ulimit -Sn "$(ulimit -Hn)"
    # Clients and service have a descriptor for each; the service keeps some for itself.
    most=$(($(ulimit -Hn) - 5000))
    if ((most < count)); then
        note "the limit of open files (ulimit -Hn) allows $most sockets instead of $count"
        count=$most
    fi
    start_ingest_service off env INGEST_REALM_MAX_SOCKETS_PER_ADDRESS=0 LD_PRELOAD=libmimalloc.so.2
    resident="$(resident_bytes "$pid")"
    start realm-sockets "$run_folder/realm-sockets.log" python3 "$root/Tests/Benchmarks/realm_clients.py" idle \
        "$port" "$app" "$count"
    clients=$started
    wait_for "$clients" 300 grep -qs '^open$' "$run_folder/realm-sockets.log" ||
        fail "not all are connected: $(tail -n 5 "$run_folder/realm-sockets.log")"
    (($(ingest_metric ingest_realm_open_sockets) == count)) || fail "not all sockets are open"
    resident=$((($(resident_bytes "$pid") - resident) / count))
    sleep 5
    cpu="$(tree_cpu "$pid")"
    sleep 20
    idle="$(jq -n "($(tree_cpu "$pid") - $cpu) / 20e7")"
    jq -n --argjson resident "$resident" --argjson idle "$idle" '{$resident, $idle}' \
        >"$run_folder/ingest-realm-idle.ours"
    figure ingest-realm-idle resident "$(size_name "$count") Realm sockets, memory each" B - 0
    figure ingest-realm-idle idle "Realm sockets, idle CPU" % - 0
    stop_service "$clients"
    stop_service "$pid"
}
