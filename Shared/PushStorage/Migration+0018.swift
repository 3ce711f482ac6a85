extension Migration {
    /// Why deliveries of a push failed (`FailureCounts`). A dispatcher of the version before counts
    /// none: then they are fewer than `failed`.
    static let eighteenth = Migration(
        version: 18,
        oldestUsable: 1,
        statements: ["ALTER TABLE pushes ADD COLUMN failures jsonb"]
    )
}
