extension Migration {
    /// What was erased, by the digests of its names, for a day: what is written down later does not name
    /// it. A service of the version before writes its audit with the name.
    static let twentySecond = Migration(
        version: 22,
        oldestUsable: 1,
        statements: [
            """
            CREATE TABLE erased_names (
                app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
                digest bytea NOT NULL,
                at timestamptz NOT NULL,
                PRIMARY KEY (app, digest))
            """,
            "CREATE INDEX erased_names_at ON erased_names (at)",
        ]
    )
}
