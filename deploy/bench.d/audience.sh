# Audiences: the cost of finding the installations of a push. Sourced by deploy/bench.
# shellcheck shell=bash

bench_audience() {
    local size name app broadcasts=0
    use_stack
    size="$(printf '%s\n' "${sizes[@]}" | sort -n | tail -n 1)"
    name="$(size_name "$size")"
    app="all-$name"
    create_app "$app" "$size"
    take_turns audience -- one_audience -- true
    figure audience channel "channel of half of $name" rows/s least 200000
    figure audience with_cut "the same, with its cut" rows/s - 0
    figure audience p50 "an identity's devices, p50" ms - 0
    figure audience p99 "an identity's devices, p99" ms most 2
    measure_where
}

one_audience() {
    local channel identity
    clear_books
    channel="$("$bench" audience channel "$app" half)"
    identity="$("$bench" audience identity "$app" $((size / 3)) 10000)"
    jq -n --argjson channel "$channel" --argjson identity "$identity" --argjson half $((size / 2)) '
        if $channel.rows != $half then error("the channel has \($channel.rows) rows") else . end
        | {channel: $channel.per_second, with_cut: $channel.with_cut} + $identity'
}

# A dry run counts the devices that a push would reach, by a condition on a custom field that one in
# a hundred meets.
measure_where() {
    local title="where, 1 % of $name"
    if ! carillon push send "$app" --where '{"plan": 7}' --alert x --dry-run >"$stack/where" 2>&1; then
        skipped "$title" "$(tail -n 1 "$stack/where")"
        return
    fi
    start_apns constant
    start_dispatcher where "$(apns_origin constant)"
    take_turns where -- where_dry_run -- true
    stop_dispatcher where
    figure where ms "$title, record to answer" ms - 0
}

where_dry_run() {
    local id="where-$((++broadcasts))" since
    clear_books
    since="$(milliseconds_now)"
    broadcast "$app" "$id" '{}' '{"where": {"plan": 7}, "dry_run": true}'
    finished_push "$app" "$id" | jq -e '.status == "done"' >/dev/null || fail "the dry run failed"
    jq -n --argjson from "$(when_written "$since")" \
        --argjson to "$(sql "SELECT extract(epoch FROM finished_at) * 1000 FROM all_pushes
            WHERE event_id = '$id'")" '{ms: ($to - $from)}'
}
