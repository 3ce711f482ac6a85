# Conditions over a million installations, for a query and a count. Sourced by deploy/bench.
# shellcheck shell=bash

bench_where() {
    local app=where-1M
    use_stack
    create_where_app "$app"
    take_turns where -- "$bench" where "$app" 400 -- true
    figure where equal_p50 "where equal, 100 of 1M, p50" ms - 0
    figure where equal_p99 "where equal, 100 of 1M, p99" ms most 10
    figure where first_p99 "the first 100 of 10k of 1M, p99" ms most 10
    figure where contains_p99 "where all of two in a list, p99" ms most 10
    figure where pointer_p99 "where a pointer, p99" ms most 10
    figure where range_p99 "a range with its index, p99" ms most 10
    figure where count_p50 "count 10k of 1M, p50" ms - 0
    figure where count_p99 "count 10k of 1M, p99" ms most 10
    figure where channel_p99 "count a channel of 10k of 1M, p99" ms most 10
    take_turns where-half -- where_half "$app" -- true
    figure where-half ms "count half of 1M" ms - 0
    take_turns where-plan -- where_plan "$app" -- true
    figure where-plan one "explain an audience of 1 %" ms - 0
}

# create_where_app APP: makes a million installations with custom fields, and an index for ranges of
# one of them.
create_where_app() {
    local app="$1"
    carillon app create "$app" --json >"$stack/$app.json"
    note "registering a million installations of $app"
    sql "INSERT INTO installations (app, object_id, device_type, provider, token, token_hash,
            environment, channels, fields, token_updated_at)
        SELECT '$app', lpad(to_hex(i), 24, '0'), 'ios', 'apns', token,
            sha256(convert_to(token, 'UTF8')), 'production', ARRAY['news', 'c' || i % 100],
            jsonb_build_object('plan', i % 100, 'group', i % 10000, 'age', i, 'even', i % 2 = 0,
                'tags', jsonb_build_array('all', 'tag' || i % 10000),
                'owner', jsonb_build_object('__type', 'Pointer', 'className', '_User',
                    'objectId', 'user-' || (i - 1) / 3)), now()
        FROM generate_series(1, 1000000) AS i,
            LATERAL (SELECT encode(sha256(convert_to('$app ' || i, 'UTF8')), 'hex')) AS t (token)"
    carillon app index "$app" age >/dev/null
    sql 'VACUUM (ANALYZE) installations'
    sql CHECKPOINT
}

where_half() {
    local before after
    before="$(milliseconds_now)"
    carillon audience explain "$1" --where '{"even": true}' --json |
        jq -e '.installations == 500000' >/dev/null || fail "half of a million was not found"
    after="$(milliseconds_now)"
    jq -n --argjson ms $((after - before)) '{ms: $ms}'
}

where_plan() {
    local before after
    before="$(milliseconds_now)"
    carillon audience explain "$1" --where '{"plan": 7}' --json |
        jq -e '.installations == 10000 and .plan.cost > 0' >/dev/null || fail "1 % was not found"
    after="$(milliseconds_now)"
    jq -n --argjson ms $((after - before)) '{one: $ms}'
}
