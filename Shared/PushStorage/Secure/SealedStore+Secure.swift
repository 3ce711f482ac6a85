import Postgres

/// The content of secure payloads, of which there may be very many: counted by their first bytes, and read
/// some at a time.
extension SealedStore {
    /// How many values begin so.
    package struct HeadCount: Sendable, Equatable {
        /// As far as the id of the key that sealed them.
        package var head: [UInt8]
        package var count: Int
    }

    /// A page of values, by their ids.
    package struct SecurePage: Sendable {
        package var values: [SealedValue]
        /// Where the next one begins; `nil`: there is none.
        package var last: String?
    }

    // A part of a value is read without the rest, where it is asked for as a part.
    private static let byte = "get_byte(substring(content FROM 2 FOR 1), 0)"

    /// All content, by the keys that it is under. Opens none of it.
    package func secureHeads() async throws -> [HeadCount] {
        try await database.execute(
            """
            SELECT head, count(*) AS count FROM (
                SELECT CASE WHEN octet_length(content) > 2
                        THEN substring(content FROM 1 FOR 2 + least(\(Self.byte), 32))
                    ELSE content END AS head
                FROM secure_payloads WHERE content IS NOT NULL) heads
            GROUP BY head ORDER BY head
            """
        ).rows.map { HeadCount(head: try $0.bytes("head"), count: try $0.integer("count")) }
    }

    /// Content that does not begin so: what is under another key.
    ///
    /// - Parameters:
    ///   - head: What each value under the key begins with.
    ///   - last: The last id of the page before.
    ///   - limit: Each may have 64 KiB.
    /// - Returns: At most `limit`, by id.
    /// - Throws: `StorageError`.
    package func securePage(
        notUnder head: [UInt8],
        after last: String?,
        limit: Int = 100
    ) async throws -> SecurePage {
        let rows = try await database.execute(
            """
            SELECT id, app, identity, content FROM secure_payloads
            WHERE content IS NOT NULL AND id > $1 AND substring(content FROM 1 FOR $2) <> $3
            ORDER BY id LIMIT $4
            """,
            [.text(last ?? ""), .integer(head.count), .bytes(head), .integer(limit)]
        ).rows
        let values = try rows.map { row in
            SealedValue(
                app: try row.text("app"),
                place: .securePayload(
                    id: try row.text("id"),
                    identity: try row.text("identity")
                ),
                sealed: try row.bytes("content")
            )
        }
        return SecurePage(
            values: values,
            last: rows.count == limit ? try rows.last?.text("id") : nil
        )
    }

    /// Puts the same contents, sealed anew, in the place of what was read, in one transaction.
    ///
    /// - Returns: How many; of the others there is no content any more, or it is sealed anew already.
    package func replace(
        _ values: [(value: SealedValue, sealed: [UInt8])]
    ) async throws -> Int {
        guard !values.isEmpty else { return 0 }
        return try await database.transaction { transaction in
            try await transaction.pipeline(
                values.map { Self.replacement(of: $0.value, by: $0.sealed) }
            ).reduce(0) { $0 + $1.affectedRows }
        }
    }
}
