package import Postgres
package import Storage

/// A page of the objects that a client's query finds, in its order.
package struct ObjectPage<Element: Sendable>: Sendable {
    package var elements: [Element]
    /// Whether the page was cut at its limit of bytes, so that there are more objects.
    package let isCut: Bool
    /// The computed size of the elements.
    package let bytes: Int

    /// Returns the elements of a complete page.
    ///
    /// - Throws: `PageTooLarge` if it is cut.
    package func whole() throws(PageTooLarge) -> [Element] {
        guard !isCut else { throw PageTooLarge() }
        return elements
    }
}

/// The ids of the objects of a page, in its order, to be read in parts.
package struct ObjectLocations: Sendable {
    /// The ids, in parts. Each part has at least one id, for objects of about `PageBound.partBytes`
    /// in all.
    package let parts: [[String]]
    /// Whether the page was cut at its limit of bytes.
    package let isCut: Bool

    package var count: Int { parts.reduce(0) { $0 + $1.count } }
    package var last: String? { parts.last?.last }
}

/// Thrown if a page has more bytes than one response may have.
package struct PageTooLarge: Error, Sendable, CustomStringConvertible {
    package init() {}

    package var description: String {
        "what is found comes to more than \(PageBound.bytes >> 20) MiB; ask for less at once by limit"
    }
}

/// The limits of a page in bytes, as each of a thousand objects may be large.
package enum PageBound {
    /// The limit of a page's rows as text, with all their fields.
    package static let bytes = 16 << 20

    /// The limit of each part, if a page is read in parts.
    package static let partBytes = 256 << 10

    /// The bytes around the values of a row in a response.
    private static let bytesOfRow = 700

    /// Returns a statement that reads the rows of `page`, an ordered query, up to `bytes`. It also
    /// reads the first row beyond, which shows to `read` that the page is cut. Postgres stops
    /// there, so that neither Postgres nor this process reads rows that are not sent. `weight` is
    /// the expression for a row's size.
    package static func statement(
        _ page: String,
        weight: String,
        order: String? = nil,
        _ rows: PageRows = .whole(bytes: PageBound.bytes)
    ) -> String {
        """
        SELECT \(order == nil ? rows.columns : rows.columnsOfFew) FROM (
            SELECT weighed.*, sum(row_bytes) OVER (\(order.map { "ORDER BY \($0)" } ?? "")
                ROWS UNBOUNDED PRECEDING) AS page_bytes
            FROM (
                SELECT page.*, \(bytesOfRow) + coalesce(\(weight), 0) AS row_bytes
                FROM (\(page)) page OFFSET 0) weighed
        ) n WHERE page_bytes - row_bytes <= \(rows.bytes)\(order.map { " ORDER BY \($0)" } ?? "")
        """
    }

    /// Reads the first rows of `page`, up to `partBytes`, as rows may have grown since the parts
    /// were made.
    package static func part<Element: Sendable>(
        of page: String,
        weight: String,
        _ parameters: [PostgresValue],
        in database: Database,
        _ element: (PostgresRow) throws -> Element
    ) async throws -> ObjectPage<Element> {
        let statement = statement(page, weight: weight, .whole(bytes: partBytes))
        let rows = try await database.execute(statement, parameters).rows
        return try read(Array(rows), bytes: partBytes, element)
    }

    package static func read<Element: Sendable>(
        _ rows: [PostgresRow],
        bytes: Int = PageBound.bytes,
        _ element: (PostgresRow) throws -> Element
    ) throws -> ObjectPage<Element> {
        let (kept, isCut) = try keep(rows, bytes)
        return ObjectPage(
            elements: try kept.map(element),
            isCut: isCut,
            bytes: try kept.last?.integer("page_bytes") ?? 0
        )
    }

    package static func places(_ rows: [PostgresRow]) throws -> ObjectLocations {
        let (kept, isCut) = try keep(rows, bytes)
        var parts: [[String]] = []
        var end = 0
        for row in kept {
            let bytes = try row.integer("page_bytes")
            if parts.isEmpty || bytes > end {
                parts.append([])
                end = try bytes - row.integer("row_bytes") + partBytes
            }
            parts[parts.count - 1].append(try row.text("place_id"))
        }
        return ObjectLocations(parts: parts, isCut: isCut)
    }

    private static func keep(
        _ rows: [PostgresRow],
        _ bytes: Int
    ) throws -> (ArraySlice<PostgresRow>, isCut: Bool) {
        let isCut = try (rows.last?.integer("page_bytes") ?? 0) > bytes
        // A single row that is too large is returned all the same.
        return (isCut && rows.count > 1 ? rows.dropLast() : rows[...], isCut)
    }
}

/// The columns that are read of a page's rows.
package enum PageRows {
    /// All columns, up to so many bytes.
    case whole(bytes: Int)
    /// The ids, from the column of this name.
    case places(String)

    var bytes: Int {
        switch self {
        case .whole(let bytes): bytes
        case .places: PageBound.bytes
        }
    }

    var columns: String {
        switch self {
        case .whole: "*"
        case .places(let id): "\(id)::text AS place_id, row_bytes, page_bytes"
        }
    }

    /// The same columns, for a query that also counts its rows.
    var columnsOfFew: String {
        switch self {
        case .whole: columns
        case .places: "found, is_there, \(columns)"
        }
    }
}
