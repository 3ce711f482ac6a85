import Postgres

/// What a transaction says before statements that each have their index.
///
/// A partition grows from nothing to millions of rows within minutes, faster than its statistics: left
/// alone, the planner sorts all that is due to claim 500 of it (275 ms of 200,000 rows, against 18).
/// So it is told to use the index. What is sorted none the less then looks so dear that Postgres would
/// compile it, for a second and more.
enum IndexPlan {
    private static let off = [
        "enable_sort", "enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit",
    ]

    static let sql =
        "SELECT "
        + off.map { "set_config('\($0)', 'off', true)" }.joined(separator: ", ")

    /// The same for all that a connection says: each statement is planned once, whatever its values. A plan
    /// for these values costs a millisecond, as much as the statement itself for dozens of pushes.
    static let ofConnections: [(name: String, value: String)] =
        (off + ["enable_bitmapscan"]).map { ($0, "off") }
        + [("plan_cache_mode", "force_generic_plan")]

    static func require(_ transaction: PostgresTransaction) async throws {
        _ = try await transaction.execute(sql)
    }
}

/// What planning by a condition asks of the planner: the plan that these values deserve, no compiling, and
/// room to hash what a sub-query selects.
enum ConditionPlan {
    static let sql = """
        SELECT set_config('plan_cache_mode', 'force_custom_plan', true),
            set_config('jit', 'off', true), set_config('work_mem', '32MB', true)
        """
}
