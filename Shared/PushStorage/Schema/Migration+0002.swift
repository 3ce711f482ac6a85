extension Migration {
    /// What a push's `prod` decides, kept beside the request: SQL must not look into that for each
    /// delivery, as it may be a megabyte, and may hold a \u0000, over which Postgres fails.
    static let second = Migration(
        version: 2,
        oldestUsable: 1,
        statements: [
            "ALTER TABLE pushes ADD COLUMN environment text NOT NULL DEFAULT 'production'"
        ]
    )
}
