extension Migration {
    /// Why deliveries of a push failed (`FailureCounts`). A dispatcher of the version before counts
    /// none: then they are fewer than `failed`.
    static let twentieth = Migration(
        version: 20,
        oldestUsable: 1,
        statements: ["ALTER TABLE pushes ADD COLUMN failures jsonb"]
    )
}
