# Secure payloads: stored and read over HTTP, compared with the same statements by SQL; read while
# secrets are guessed; and the timing of refusals. Sourced by deploy/bench.
# shellcheck shell=bash

bench_secure() {
    local app=secure other=secure-other rows=secure-rows master port pid readers=1000 kept=20000
    local title kind
    use_stack
    "${build_command[@]}" --product carillon-secure-payload
    create_app "$app" "$readers"
    create_app "$other" 0
    create_app "$rows" "$readers"
    master="$(jq -r .masterKey "$stack/$app.json")"
    secure_login
    secure_rows
    start_secure_payload
    note "making $readers readers"
    python3 "$root/Tests/Benchmarks/secure_readers.py" "$port" "$app" "$master" "$readers" \
        >"$stack/readers"
    secure_requests
    secure_scripts
    # A run with few and short rounds would have too few of these.
    secure_load writes any 10 >/dev/null

    take_turns secure-kept -- secure_load writes any 5 -- secure_pgbench kept 5
    compare secure-kept per_second "secure payloads kept" pgbench /s least 0.5
    secure_reads
    take_turns secure-first -- secure_first_reads 3 -- secure_pgbench first 3
    compare secure-first per_second "read first, by device secret" pgbench /s - 0
    take_turns secure-read -- secure_load reads any 5 -- secure_pgbench read 5
    compare secure-read per_second "read again, by device secret" pgbench /s least 0.5
    take_turns secure-token -- secure_load token-reads any 5 -- secure_load reads any 5
    compare secure-token per_second "read by ES256 token" "secret" /s least 0.7
    take_turns secure-new-token -- secure_new_tokens 3 -- secure_load reads any 3
    compare secure-new-token per_second "read by a token never seen" "secret" /s - 0

    secure_guesses
    for kind in kept read token; do
        case $kind in
            kept) title="kept while others guess" ;;
            read) title="by secret while others guess" ;;
            token) title="by token while others guess" ;;
        esac
        secure_latency "$kind" "$title"
    done
    secure_guesses_end
    stop_service "$pid"
    secure_turns
    stop_service "$pid"
}

# start_secure_payload [NAME=VALUE…]: starts it on `port`, as process `pid`, and waits until it is
# ready.
start_secure_payload() {
    local log="$run_folder/secure-payload.log"
    start secure-payload "$log" env HTTP_HOST=127.0.0.1 HTTP_PORT=0 LOG_FORMAT=json \
        HTTP_ACCESS_LOG=false SHUTDOWN_GRACE=10s "$@" "$bin/carillon-secure-payload"
    pid=$started
    wait_for "$started" 30 grep -qs '"message":"listening"' "$log" ||
        fail "secure payloads did not start: $(tail -n 5 "$log")"
    port="$(jq -nrR 'first(inputs | fromjson?
        | select(.message == "listening" and .scheme == "http")).port' "$log")"
    wait_for "$started" 60 curl -sf -o "$stack/readyz" "http://127.0.0.1:$port/readyz" ||
        fail "secure payloads are not ready: $(cat "$stack/readyz")"
}

# ── What is asked ───────────────────────────────────────────────────────────────────────────────

# secure_login: makes an issuer whose only key is ours.
secure_login() {
    local key="$stack/login.pem" point
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$key" 2>/dev/null
    # The point is the end of the encoded key: 32 bytes of x, 32 of y.
    point="$(openssl pkey -in "$key" -pubout -outform DER | tail -c 64 | od -An -v -tx1 |
        tr -d ' \n')"
    jq -n --arg x "$(base64url "${point:0:64}")" --arg y "$(base64url "${point:64}")" \
        '{keys: [{kty: "EC", crv: "P-256", use: "sig", alg: "ES256", kid: "bench", $x, $y}]}' \
        >"$stack/jwks.json"
    carillon login set "$app" --issuer https://login.example --audience bench \
        --jwks-file "$stack/jwks.json" >"$run_folder/login.log"
}

# base64url HEX
base64url() {
    printf '%b' "$(sed 's/../\\x&/g' <<<"$1")" | base64 -w 0 | tr '+/' '-_' | tr -d '='
}

# secure_requests: makes requests with 400 bytes for each identity.
secure_requests() {
    local proof
    proof="$(printf '%s:%s' "$app" "$master" | base64 -w 0)"
    jq -nr --arg proof "$proof" --argjson count "$((readers / 3))" '
        range($count) | ["write", "Basic \($proof)", "POST /api/notifications",
            ({identity: "user-\(.)", payload: ("x" * 400)} | tojson)] | @tsv' >"$stack/writes"
}

# secure_reads: makes files of reads of the first payloads, by a device's secret and by a token of
# its identity. Each is read once by both, so that no later read is a first one.
secure_reads() {
    sql "COPY (SELECT identity, id FROM secure_payloads WHERE app = '$app'
        ORDER BY created_at, id LIMIT $kept) TO STDOUT" >"$stack/kept"
    secure_by_secret "$stack/kept" >"$stack/reads"
    secure_by_tokens "$((readers / 3))" >"$stack/token-reads"
    secure_load reads each 600 >/dev/null
    secure_load token-reads each 600 >/dev/null
}

# secure_by_secret KEPT: makes reads of these, which are lines of an identity and an id.
secure_by_secret() {
    awk -F '\t' 'NR == FNR { proof[$1] = $3; next }
        { print "read\t" proof[$1] "\tGET /api/notifications/" $2 }' "$stack/readers" "$1"
}

# secure_by_tokens COUNT: makes reads of the payloads of `secure_reads`, by this many tokens.
secure_by_tokens() {
    "$bench" tokens "$stack/login.pem" https://login.example bench user- "$((readers / 3))" "$1" \
        >"$stack/tokens"
    # There is one for each read, if there are enough.
    awk -F '\t' 'NR == FNR { token[$1, count[$1]++] = $2; next }
        { print "read\tBearer " token[$1, used[$1]++ % count[$1]] "\tGET /api/notifications/" $2 }' \
        "$stack/tokens" "$stack/kept"
}

# secure_load FILE any|each SECONDS [RATE]
secure_load() {
    "$bench" requests "$port" "$stack/$1" "$2" 64 "${@:3}"
}

# secure_first_reads SECONDS: reads payloads for the first time.
secure_first_reads() {
    secure_load writes any "$1" >/dev/null
    sql "COPY (SELECT identity, id FROM secure_payloads WHERE app = '$app' AND read_at IS NULL
        ORDER BY random()) TO STDOUT" >"$stack/unread"
    secure_by_secret "$stack/unread" >"$stack/first-reads"
    secure_load first-reads each "$1"
}

# secure_new_tokens SECONDS: uses each token once, so that none is cached.
secure_new_tokens() {
    secure_by_tokens "$kept" >"$stack/new-token-reads"
    secure_load new-token-reads each "$1"
}

# ── The same by SQL ─────────────────────────────────────────────────────────────────────────────

# secure_rows: makes readers and payloads for pgbench, in an app of their own.
secure_rows() {
    note "writing $kept payloads and the readers for pgbench"
    sql "INSERT INTO secure_readers (app, installation, identity, digest)
        SELECT '$rows', lpad(to_hex(i), 24, '0'), 'user-' || (i - 1) / 3,
            sha256(convert_to('reader-' || i, 'UTF8'))
        FROM generate_series(1, $readers) AS i"
    sql "INSERT INTO pushes (id, app, event_source, event_id, request, status, notes, lane)
        SELECT md5('push-' || i)::uuid, '$rows', 'carillon/secure', 'secure/' || md5('kept-' || i),
            '{}', 'done', '{}', 0
        FROM generate_series(1, 100000 + $kept) AS i"
    sql "INSERT INTO secure_payloads (id, app, identity, push_id, content, is_sealed, read_once,
            expires_at, ends_at, read_at)
        SELECT md5('kept-' || i), '$rows', 'user-' || i % $readers / 3, md5('push-' || i)::uuid,
            decode(repeat('ab', 440), 'hex'), false, false, t, t,
            CASE WHEN i > 100000 THEN now() END
        FROM generate_series(1, 100000 + $kept) AS i, LATERAL (SELECT now() + interval '1 day') AS e (t)"
    sql "INSERT INTO secure_reads (payload, app, installation)
        SELECT md5('kept-' || i), '$rows', lpad(to_hex(i % $readers + 1), 24, '0')
        FROM generate_series(100001, 100000 + $kept) AS i"
    sql 'VACUUM (ANALYZE) secure_payloads, secure_reads, secure_readers, pushes'
    sql CHECKPOINT
}

# secure_scripts: makes scripts of the statements of SecurePayloadStore and SecureReaderStore:
# statements that are sent together are a pipeline here. Parts of a request that can be constant
# are.
secure_scripts() {
    cat >"$stack/secure-kept.sql" <<SQL
\\set i random(1, 1000000000000000)
\\startpipeline
BEGIN;
WITH app AS MATERIALIZED (
    SELECT id, coalesce(settings->>'secure-ids', 'random') AS form
    FROM apps WHERE id = '$rows' FOR KEY SHARE
), kept AS (
    INSERT INTO secure_payloads (id, app, identity, push_id, content, is_sealed, read_once,
        expires_at, ends_at)
    SELECT md5('new-' || :i::bigint), app.id, 'user-' || :i::bigint % 333,
        md5('new-push-' || :i::bigint)::uuid, decode(repeat('ab', 440), 'hex'), false, false,
        now() + interval '1 day', now() + interval '1 day'
    FROM app WHERE app.form = 'random'
    ON CONFLICT (id) DO NOTHING RETURNING id
)
SELECT (SELECT form FROM app) AS form, EXISTS (SELECT FROM kept) AS is_kept;
INSERT INTO pushes (id, app, event_source, event_id, request, status, notes, lane,
    expires_at, environment, release_at, schedule_id, created_at, updated_at)
VALUES (md5('new-push-' || :i::bigint)::uuid, '$rows', 'carillon/secure',
    'secure/' || md5('new-' || :i::bigint), :request::jsonb, 'queued', '{}'::jsonb, 0,
    now() + interval '1 day', 'production', NULL, NULL,
    date_trunc('milliseconds', now()), date_trunc('milliseconds', now()))
ON CONFLICT (id) DO NOTHING;
INSERT INTO outbox (kafka_topic, key, value, headers, order_key)
SELECT '$requests_topic', convert_to(md5('new-push-' || :i::bigint), 'UTF8'),
    convert_to(:request, 'UTF8'), '[]'::jsonb, NULL;
SELECT pg_notify('carillon_outbox', '');
\\endpipeline
COMMIT;
SQL
    cat >"$stack/secure-look.sql" <<SQL
SELECT app, installation, identity FROM secure_readers
WHERE digest = sha256(convert_to('reader-' || :i::bigint % $readers + 1, 'UTF8'));
SELECT p.push_id, p.is_sealed, p.read_at IS NOT NULL AS was_read,
    CASE WHEN p.is_sealed THEN s.content ELSE p.content END AS bytes,
    EXISTS (SELECT FROM secure_reads r WHERE r.payload = p.id AND r.installation
        = CASE WHEN p.is_sealed THEN lpad(to_hex(:i::bigint % $readers + 1), 24, '0')
            ELSE lpad(to_hex(:i::bigint % $readers + 1), 24, '0') END) AS is_noted
FROM secure_payloads p
LEFT JOIN secure_sealed s ON s.payload = p.id
    AND s.installation = lpad(to_hex(:i::bigint % $readers + 1), 24, '0')
WHERE p.id = md5('kept-' || :i::bigint) AND p.app = '$rows'
    AND p.identity = 'user-' || :i::bigint % $readers / 3 AND p.is_kept AND p.ends_at > now()
    AND (NOT p.is_sealed OR s.payload IS NOT NULL);
SQL
    {
        echo "\\set i random(100001, $((100000 + kept)))"
        cat "$stack/secure-look.sql"
    } >"$stack/secure-read.sql"
    {
        # Each client has every fourth row of this round.
        echo '\set n :n + 1'
        echo '\set i :first + :n * 4 + :client_id'
        cat "$stack/secure-look.sql"
        cat <<SQL
WITH held AS MATERIALIZED (
    SELECT p.id, p.app, p.push_id, p.read_at IS NOT NULL AS was_read, p.read_once
    FROM secure_payloads p
    WHERE p.id = md5('kept-' || :i::bigint) AND p.app = '$rows'
        AND p.identity = 'user-' || :i::bigint % $readers / 3 AND p.is_kept AND p.ends_at > now()
    FOR NO KEY UPDATE
), noted AS (
    INSERT INTO secure_reads (payload, app, installation)
    SELECT id, app, lpad(to_hex(:i::bigint % $readers + 1), 24, '0') FROM held
    ON CONFLICT (payload, installation) DO NOTHING RETURNING payload
), opened AS (
    UPDATE secure_payloads p SET read_at = clock_timestamp(),
        ends_at = CASE WHEN h.read_once
            THEN least(p.ends_at, clock_timestamp() + 60000 * interval '1 millisecond')
            ELSE p.ends_at END
    FROM held h WHERE p.id = h.id AND NOT h.was_read
), counted AS (
    UPDATE pushes u SET confirmed = u.confirmed + 1
    FROM held h JOIN noted n ON n.payload = h.id WHERE u.id = h.push_id
), told AS (
    INSERT INTO outbox (kafka_topic, key, value, headers, order_key)
    SELECT '${KAFKA_TOPIC_PREFIX}push.outcomes', convert_to(md5('push-' || :i::bigint), 'UTF8'),
        convert_to(:outcome, 'UTF8'), '[]'::jsonb, NULL
    WHERE EXISTS (SELECT FROM noted) RETURNING id
)
SELECT h.was_read, (SELECT pg_notify('carillon_outbox', '') FROM told LIMIT 1) FROM held h;
SQL
    } >"$stack/secure-first.sql"
}

# secure_pgbench KIND SECONDS: runs it while the service is stopped, and deletes the outbox records.
secure_pgbench() {
    local id request outcome
    id="$(printf '%032d' 1)"
    request="$(jq -nc --arg id "$id" --arg app "$rows" '{id: "secure/\($id)", source: "carillon/secure",
        $app, identities: ["user-1"], expiration_interval: 86400,
        native: {apns: {headers: {"apns-push-type": "background", "apns-priority": "5"},
                payload: {aps: {"content-available": 1}, secureId: $id}},
            fcm: {data: {secureId: $id}, android: {priority: "high"}}, wns: {raw: $id}}}')"
    outcome="$(jq -nc --arg id "$id" --arg app "$rows" '{pushId: $id, eventId: "secure/\($id)", $app,
        installationId: "000000000000000000000001", identity: "user-1", provider: "secure",
        outcome: "confirmed", attempt: 1, at: "2026-11-23T12:00:00.000Z"}')"
    kill -STOP "$pid"
    "$(postgres_bin)/pgbench" -n -M prepared -c 4 -j 2 -T "$2" -D n=0 \
        -D first="$((1 + ${round:-0} * 100000 / rounds))" -D request="$request" \
        -D outcome="$outcome" -f "$stack/secure-$1.sql" "$stack_database" 2>"$stack/pgbench.log" |
        awk '/^tps/ { printf "{\"per_second\": %s}\n", $3 }'
    sql 'DELETE FROM outbox' >/dev/null
    kill -CONT "$pid"
}

# ── While others guess ──────────────────────────────────────────────────────────────────────────

# secure_guesses: starts 20 addresses that guess; some of the identities have secrets that a backend
# chose, which are expensive to verify.
secure_guesses() {
    local number
    note "20 begin to guess"
    for ((number = 0; number < 20; number++)); do
        curl -sS --fail-with-body -o "$stack/secret" -X PUT \
            "http://127.0.0.1:$port/v1/identities/guessed-$number/secret" -u "$app:$master" \
            -H 'Content-Type: application/json' -d "{\"secret\": \"hunter2-$RANDOM$RANDOM\"}" ||
            fail "no secret was set: $(cat "$stack/secret")"
    done
    start guesses "$run_folder/guesses.log" python3 "$root/Tests/Benchmarks/secure_guesses.py" \
        "$port" "$app" 20 10 20
    guesses_pid=$started
    # Waits until the queue is full.
    sleep 5
}

secure_guesses_end() {
    running "$guesses_pid" || fail "nobody guessed: $(tail -n 5 "$run_folder/guesses.log")"
    stop_service "$guesses_pid"
    tail -n 1 "$run_folder/guesses.log" >"$run_folder/secure-guesses.ours"
    note "the guesses' answers: $(jq -c .answers "$run_folder/secure-guesses.ours")"
    figure secure-guesses sent "guesses meanwhile" /s least 180
}

# secure_latency KIND TITLE: measures at half of the maximum rate.
secure_latency() {
    local rate file
    case $1 in
        kept) file=writes ;;
        read) file=reads ;;
        token) file=token-reads ;;
    esac
    rate="$(jq -s 'map(.per_second) | sort | .[length / 2 | floor] / 2 | floor' \
        "$run_folder/secure-$1.ours")"
    take_turns "secure-p99-$1" -- secure_load "$file" any 10 "$rate" -- true
    figure "secure-p99-$1" p50 "$2, p50 at $rate/s" ms - 0
    figure "secure-p99-$1" p99 "$2, p99 at $rate/s" ms most 50
}

# ── Equal answers ───────────────────────────────────────────────────────────────────────────────

# secure_turns: requests content that is not the reader's, without any limits.
secure_turns() {
    local identity authorization
    start_secure_payload RATE_LIMIT_FAILURES_PER_ADDRESS=0 SECURE_FAILURES_PER_IDENTITY=0 \
        SECURE_READ_GRACE=1s
    IFS=$'\t' read -r identity _ authorization <"$stack/readers"
    python3 "$root/Tests/Benchmarks/secure_turns.py" "$port" "$app" "$master" "$other" \
        "$(jq -r .masterKey "$stack/$other.json")" "$identity" "$authorization" 200 >"$stack/turns"
    awk -F '[\t/]' '$1 == "expired" { print $NF }' "$stack/turns" >"$stack/expired"
    sql "UPDATE secure_payloads SET expires_at = now() - interval '1 second',
            ends_at = now() - interval '1 second'
        WHERE id = ANY (string_to_array('$(tr '\n' ' ' <"$stack/expired" | xargs)', ' '))"
    # By then the grace period of the others has ended, too.
    sleep 3
    rounds=1 take_turns secure-turns -- "$bench" turns "$port" "$stack/turns" 404 10000 -- true
    note "medians in microseconds: $(jq -c .medians "$run_folder/secure-turns.ours")"
    figure secure-turns spread "404s, slowest median by fastest" "" most 1.05
    figure secure-turns answers "different 404s, but for the date" "" most 1
}
