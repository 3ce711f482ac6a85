import Postgres

/// A page of what a client's query finds, in its order.
package struct ObjectPage<Element: Sendable>: Sendable {
    package var elements: [Element]
    /// It ends here because of its bytes: there is more of it.
    package let isCut: Bool
    /// What the elements were weighed at.
    package let bytes: Int

    /// What was asked for as a whole.
    ///
    /// - Throws: `PageTooLarge` where it is cut.
    func whole() throws(PageTooLarge) -> [Element] {
        guard !isCut else { throw PageTooLarge() }
        return elements
    }
}

/// Where the objects of a page are, in its order, to be read in parts.
package struct ObjectPlaces: Sendable {
    /// Ids; the objects of each part came to about `PageBound.partBytes`, and one object at least.
    package let parts: [[String]]
    /// As a page's.
    package let isCut: Bool

    package var count: Int { parts.reduce(0) { $0 + $1.count } }
    package var last: String? { parts.last?.last }
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

    /// What is read at once of a page that is read in parts.
    package static let partBytes = 256 << 10

    /// What surrounds the texts of a row in an answer.
    private static let bytesOfRow = 700

    /// The rows of `page`, a query that puts them in their order, as far as they come to `bytes`, and
    /// the first that goes beyond, by which `read` knows: Postgres stops there, so that neither it nor
    /// this process holds what nobody will get. A row's own bytes are `weight`, in its columns.
    static func statement(
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

    /// The first of `page` that may be held at once. What was weighed when a page's places were listed
    /// may have grown since.
    static func part<Element: Sendable>(
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

    static func read<Element: Sendable>(
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

    static func places(_ rows: [PostgresRow]) throws -> ObjectPlaces {
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
        return ObjectPlaces(parts: parts, isCut: isCut)
    }

    private static func keep(
        _ rows: [PostgresRow],
        _ bytes: Int
    ) throws -> (ArraySlice<PostgresRow>, isCut: Bool) {
        let isCut = try (rows.last?.integer("page_bytes") ?? 0) > bytes
        // One that is too large by itself is shown all the same.
        return (isCut && rows.count > 1 ? rows.dropLast() : rows[...], isCut)
    }
}

/// What is read of a page's rows.
enum PageRows {
    /// All of each, up to so many bytes.
    case whole(bytes: Int)
    /// Which they are, by the column of this name.
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

    /// The same where it is told too how many were found.
    var columnsOfFew: String {
        switch self {
        case .whole: columns
        case .places: "found, is_there, \(columns)"
        }
    }
}
