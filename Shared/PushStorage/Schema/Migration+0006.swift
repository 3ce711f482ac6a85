extension Migration {
    /// What a delivery's placeholders stand for, kept with the row for the time that it waits.
    static let sixth = Migration(
        version: 6,
        oldestUsable: 1,
        statements: ["ALTER TABLE deliveries ADD COLUMN template_values json"]
    )
}
