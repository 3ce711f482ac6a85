extension Migration {
    /// Which connections are a dispatcher's: they are ended with its session.
    static let nineteenth = Migration(
        version: 19,
        oldestUsable: 1,
        statements: ["ALTER TABLE dispatchers ADD COLUMN connections text"]
    )
}
