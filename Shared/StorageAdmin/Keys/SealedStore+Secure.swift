import Postgres
import Storage

/// The contents of secure payloads, of which there may be very many: counted by their first bytes, and
/// read in pages.
extension SealedStore {
    /// The number of values with the same first bytes.
    package struct HeadCount: Sendable, Equatable {
        /// The first bytes, up to the id of the key that sealed them.
        package var head: [UInt8]
        package var count: Int
    }

    /// A page of values, by their ids.
    package struct SecurePage: Sendable {
        package var values: [SealedValue]
        /// The last id, for the next page; `nil` if this is the last page.
        package var last: String?
    }

    // `substring` makes Postgres read only this part of a value.
    private static let byte = "get_byte(substring(content FROM 2 FOR 1), 0)"

    /// Counts all contents by their keys. Opens none.
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

    /// Returns contents that are under another key.
    ///
    /// - Parameters:
    ///   - head: The first bytes of each value under the key.
    ///   - last: The last id of the previous page.
    ///   - limit: The size of the page. A content may have 64 KiB.
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

    /// Replaces contents by the same contents sealed under another key, in one transaction.
    ///
    /// - Returns: The number of replaced contents. The others were deleted or sealed again
    ///   meanwhile.
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
