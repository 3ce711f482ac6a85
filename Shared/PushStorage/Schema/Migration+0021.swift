extension Migration {
    /// What waits in the ledger, by app and provider, so that each gets its share of a claim. Only
    /// rows that nobody owns are in it, retries above all: what is sent at the first try never is.
    static let twentyFirst = Migration(
        version: 21,
        oldestUsable: 1,
        statements: [
            """
            CREATE INDEX deliveries_due_of ON deliveries (lane, app, provider, due_at)
                WHERE state = 0 AND owner IS NULL
            """
        ]
    )
}
