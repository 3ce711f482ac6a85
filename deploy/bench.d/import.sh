# Imports: a file of LeanCloud's export, compared with a COPY of the rows that it becomes. Sourced by
# deploy/bench.
# shellcheck shell=bash

bench_import() {
    local size name folder="$run_folder/import" server
    use_stack
    # A database of its own, as the tables are emptied.
    sql 'CREATE DATABASE import'
    server="${stack_database%/*}/import"
    export DATABASE_URL="$server"
    mkdir -p "$folder"
    carillon migrate >/dev/null
    carillon app create import --json >/dev/null
    size="$(printf '%s\n' "${sizes[@]}" | sort -n | tail -n 1)"
    name="$(size_name "$size")"
    note "writing $size lines"
    python3 "$root/Tests/Benchmarks/import_lines.py" "$size" >"$folder/export.jsonl"
    ((rounds > 3)) && local rounds=3
    # The first import makes the rows that the COPY writes.
    one_import >/dev/null
    import_sql "\\copy (SELECT $(import_columns) FROM installations) TO '$folder/rows' (FORMAT binary)"
    take_turns import -- one_import -- one_copy
    compare import per_second "import of $name LeanCloud lines" "COPY" rows/s least 0.3
    figure import memory "the same, memory" MB most 200 max
    export DATABASE_URL="$stack_database"
}

import_sql() { "$(postgres_bin)/psql" -X -q -A -t -v ON_ERROR_STOP=1 -c "$1" "$server"; }

# import_columns: prints the columns that are not computed.
import_columns() {
    import_sql "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
        WHERE attrelid = 'installations'::regclass AND attnum > 0 AND NOT attisdropped
            AND attgenerated = ''"
}

# Empties the tables, so that both sides begin alike.
clear_imports() {
    import_sql 'SET client_min_messages = warning; TRUNCATE installations, imports CASCADE'
    import_sql CHECKPOINT
}

one_import() {
    local began ended
    clear_imports
    began="$(date +%s%N)"
    /usr/bin/env python3 "$root/Tests/Benchmarks/peak_memory.py" "$folder/memory" \
        "$bin/carillon" import leancloud import "$folder/export.jsonl" --json >"$folder/end"
    ended="$(date +%s%N)"
    jq -e --argjson size "$size" '.imported == $size and .rejected == 0' "$folder/end" >/dev/null ||
        fail "not every line was imported: $(cat "$folder/end")"
    jq -n --argjson size "$size" --argjson ns $((ended - began)) --argjson kb "$(cat "$folder/memory")" \
        '{per_second: ($size * 1e9 / $ns), memory: ($kb / 1024)}'
}

one_copy() {
    local began ended
    clear_imports
    began="$(date +%s%N)"
    import_sql "\\copy installations ($(import_columns)) FROM '$folder/rows' (FORMAT binary)"
    ended="$(date +%s%N)"
    jq -n --argjson size "$size" --argjson ns $((ended - began)) '{per_second: ($size * 1e9 / $ns)}'
}
