package import Postgres

/// The planner settings of a transaction whose statements each have a matching index.
///
/// A partition grows from nothing to millions of rows within minutes, faster than its statistics: by
/// default, the planner sorts all due rows to claim 500 of them (275 ms for 200,000 rows, against 18).
/// These settings force the index. Remaining sorts then look so expensive that Postgres would compile
/// them, for a second and more, so JIT is off.
package enum IndexPlan {
    private static let off = [
        "enable_sort", "enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit",
    ]

    package static let sql =
        "SELECT "
        + off.map { "set_config('\($0)', 'off', true)" }.joined(separator: ", ")

    /// The settings for a statement that also joins lists with each other: these may be hashed.
    package static let joiningSQL =
        "SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)"

    /// The same settings for all statements of a connection, with generic plans: each statement is
    /// planned once, whatever its values. Planning for specific values costs a millisecond, as much
    /// as the statement itself for dozens of pushes.
    package static let ofConnections: [(name: String, value: String)] =
        (off + ["enable_bitmapscan"]).map { ($0, "off") }
        + [("plan_cache_mode", "force_generic_plan")]

    package static func require(_ transaction: PostgresTransaction) async throws {
        _ = try await transaction.execute(sql)
    }
}

/// The planner settings for planning by a condition: a plan for the specific values, no JIT
/// compilation, and memory to hash the result of a sub-query.
package enum ConditionPlan {
    package static let sql = """
        SELECT set_config('plan_cache_mode', 'force_custom_plan', true),
            set_config('jit', 'off', true), set_config('work_mem', '32MB', true)
        """
}
