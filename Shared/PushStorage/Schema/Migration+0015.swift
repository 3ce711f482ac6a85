extension Migration {
    /// Erasures that were cut short are finished by the maintenance loop: when each was last worked
    /// at, and who wanted it.
    static let fifteenth = Migration(
        version: 15,
        oldestUsable: 1,
        statements: [
            """
            ALTER TABLE erasures
                ADD COLUMN touched_at timestamptz NOT NULL DEFAULT now(),
                ADD COLUMN wanted_by jsonb NOT NULL DEFAULT '{}'
            """
        ]
    )
}
