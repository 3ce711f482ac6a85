import Postgres

/// A page of what a client's query finds, in its order.
package struct ObjectPage<Element: Sendable>: Sendable {
    package var elements: [Element]
    /// It ends here because of its bytes: there is more of it.
    package let isCut: Bool

    /// What was asked for as a whole.
    ///
    /// - Throws: `PageTooLarge` where it is cut.
    func whole() throws(PageTooLarge) -> [Element] {
        guard !isCut else { throw PageTooLarge() }
        return elements
    }
}

/// A page that comes to more bytes than one answer may have.
package struct PageTooLarge: Error, Sendable, CustomStringConvertible {
    package init() {}

    package var description: String {
        "what is found comes to more than \(PageBound.bytes >> 20) MiB; ask for less at once by limit"
    }
}

/// What a page may be: a thousand objects may each be large.
package enum PageBound {
    /// Of its rows as text, before anything is left out of them.
    package static let bytes = 16 << 20

    /// What surrounds the texts of a row in an answer.
    private static let bytesOfRow = 700

    /// The rows of `page`, a query that puts them in their order, as far as they come to `bytes`, and
    /// the first that goes beyond, by which `read` knows: Postgres stops there, so that neither it nor
    /// this process holds what nobody will get. A row's own bytes are `weight`, in its columns.
    static func statement(_ page: String, weight: String, order: String? = nil) -> String {
        """
        SELECT * FROM (
            SELECT weighed.*, sum(row_bytes) OVER (\(order.map { "ORDER BY \($0)" } ?? "")
                ROWS UNBOUNDED PRECEDING) AS page_bytes
            FROM (
                SELECT page.*, \(bytesOfRow) + coalesce(\(weight), 0) AS row_bytes
                FROM (\(page)) page OFFSET 0) weighed
        ) n WHERE page_bytes - row_bytes <= \(bytes)\(order.map { " ORDER BY \($0)" } ?? "")
        """
    }

    static func read<Element: Sendable>(
        _ rows: [PostgresRow],
        _ element: (PostgresRow) throws -> Element
    ) throws -> ObjectPage<Element> {
        let isCut = try (rows.last?.integer("page_bytes") ?? 0) > bytes
        // One that is too large by itself is shown all the same.
        let kept = isCut && rows.count > 1 ? rows.dropLast() : rows[...]
        return ObjectPage(elements: try kept.map(element), isCut: isCut)
    }
}
