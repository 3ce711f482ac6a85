extension Migration {
    /// Events for few devices are looked for by their event's id, whole: an index of hashes is a third of
    /// one of texts, and cheaper to write.
    static let twentyEighth = Migration(
        version: 28,
        oldestUsable: 1,
        statements: [
            "DROP INDEX event_pushes_event",
            "CREATE INDEX event_pushes_event ON event_pushes USING hash (event_id)",
        ]
    )
}
