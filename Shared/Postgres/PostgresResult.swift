package import JSON

/// The rows of one answered statement, copied out of libpq into one block.
package struct PostgresResult: Sendable {
    package let rows: PostgresRows
    /// The row count of an INSERT, UPDATE, DELETE, MERGE, COPY or SELECT; 0 for other statements.
    package let affectedRows: Int
    /// `SELECT`, `INSERT`, `COMMIT`: the first word of the command tag.
    package let command: String

    package var columns: [String] { rows.block.columns.names }
    package var count: Int { rows.count }
    package var isEmpty: Bool { rows.isEmpty }
    package var first: PostgresRow? { rows.first }
    package subscript(row: Int) -> PostgresRow { rows[row] }

    static let empty = PostgresResult(
        rows: PostgresRows(block: .empty),
        affectedRows: 0,
        command: ""
    )
}

package struct PostgresRows: RandomAccessCollection, Sendable {
    let block: RowBlock

    package var startIndex: Int { 0 }
    package var endIndex: Int { block.rowCount }
    package subscript(row: Int) -> PostgresRow {
        precondition(indices.contains(row), "row \(row) of \(block.rowCount)")
        return PostgresRow(block: block, row: row)
    }
}

/// A column: `"name"` or its position from 0.
package enum PostgresColumn: Sendable, ExpressibleByStringLiteral, ExpressibleByIntegerLiteral {
    case name(String)
    case index(Int)

    package init(stringLiteral value: String) { self = .name(value) }
    package init(integerLiteral value: Int) { self = .index(value) }
}

/// One row. Each reader throws `PostgresError.decoding` with the column's name and the expected
/// type, never with the value.
package struct PostgresRow: Sendable {
    let block: RowBlock
    let row: Int

    package func isNull(_ column: PostgresColumn) throws(PostgresError) -> Bool {
        try block.cell(row, position(of: column)).length < 0
    }

    package func text(_ column: PostgresColumn) throws(PostgresError) -> String {
        try required(column, textOrNil(column), "text")
    }
    package func integer(_ column: PostgresColumn) throws(PostgresError) -> Int {
        try required(column, integerOrNil(column), "an integer")
    }
    package func double(_ column: PostgresColumn) throws(PostgresError) -> Double {
        try required(column, doubleOrNil(column), "a number")
    }
    package func boolean(_ column: PostgresColumn) throws(PostgresError) -> Bool {
        try required(column, booleanOrNil(column), "a boolean")
    }
    package func bytes(_ column: PostgresColumn) throws(PostgresError) -> [UInt8] {
        try required(column, bytesOrNil(column), "bytes")
    }
    package func json(_ column: PostgresColumn) throws(PostgresError) -> JSONValue {
        try required(column, jsonOrNil(column), "JSON")
    }
    package func uuid(_ column: PostgresColumn) throws(PostgresError) -> String {
        try required(column, uuidOrNil(column), "a uuid")
    }
    /// Returns microseconds since 1970, UTC, of a `timestamptz`, `timestamp` or `date`.
    package func timestampMicroseconds(_ column: PostgresColumn) throws(PostgresError) -> Int64 {
        try required(column, timestampMicrosecondsOrNil(column), "a timestamp")
    }
    package func textArray(_ column: PostgresColumn) throws(PostgresError) -> [String] {
        try required(column, textArrayOrNil(column), "an array of texts")
    }
    package func integerArray(_ column: PostgresColumn) throws(PostgresError) -> [Int] {
        try required(column, integerArrayOrNil(column), "an array of integers")
    }

    package func textOrNil(_ column: PostgresColumn) throws(PostgresError) -> String? {
        try decode(column, "text") { cell in cell.text }
    }
    package func integerOrNil(_ column: PostgresColumn) throws(PostgresError) -> Int? {
        try decode(column, "an integer") { cell in cell.integer }
    }
    package func doubleOrNil(_ column: PostgresColumn) throws(PostgresError) -> Double? {
        try decode(column, "a number") { cell in cell.double }
    }
    package func booleanOrNil(_ column: PostgresColumn) throws(PostgresError) -> Bool? {
        try decode(column, "a boolean") { cell in cell.boolean }
    }
    package func bytesOrNil(_ column: PostgresColumn) throws(PostgresError) -> [UInt8]? {
        try decode(column, "bytes") { cell in cell.rawBytes }
    }
    package func jsonOrNil(_ column: PostgresColumn) throws(PostgresError) -> JSONValue? {
        try decode(column, "JSON") { cell in
            // Values stored before strings were bounded must still be readable.
            try? JSONValue.parse(cell.jsonBytes, maximumMarks: .max)
        }
    }
    package func uuidOrNil(_ column: PostgresColumn) throws(PostgresError) -> String? {
        try decode(column, "a uuid") { cell in cell.uuid }
    }
    package func timestampMicrosecondsOrNil(
        _ column: PostgresColumn
    ) throws(PostgresError) -> Int64? {
        try decode(column, "a timestamp") { cell in cell.timestamp }
    }
    /// Returns an array; throws if it has a NULL element.
    package func textArrayOrNil(_ column: PostgresColumn) throws(PostgresError) -> [String]? {
        try decode(column, "an array of texts") { cell in
            guard let elements = cell.arrayElements else { return nil }
            let texts = elements.compactMap { $0 }
            return texts.count == elements.count ? texts : nil
        }
    }
    package func integerArrayOrNil(_ column: PostgresColumn) throws(PostgresError) -> [Int]? {
        try decode(column, "an array of integers") { cell in
            guard let elements = cell.arrayElements else { return nil }
            let numbers = elements.compactMap { $0.flatMap { Int($0) } }
            return numbers.count == elements.count ? numbers : nil
        }
    }

    private func position(of column: PostgresColumn) throws(PostgresError) -> Int {
        switch column {
        case .index(let index):
            guard (0..<block.columnCount).contains(index) else {
                throw PostgresError(
                    .decoding,
                    "there is no column \(index), only \(block.columnCount)"
                )
            }
            return index
        case .name(let name):
            guard let index = block.columns.positions[name] else {
                throw PostgresError(.decoding, "there is no column \"\(name)\"")
            }
            return index
        }
    }

    private func decode<Value>(
        _ column: PostgresColumn,
        _ wanted: StaticString,
        _ read: (Cell) -> Value?
    ) throws(PostgresError) -> Value? {
        let position = try position(of: column)
        let place = block.cell(row, position)
        guard place.length >= 0 else { return nil }
        if let value = read(Cell(block: block, place: place, column: position)) { return value }
        throw PostgresError(.decoding, "column \(block.columns.label(position)) is not \(wanted)")
    }

    private func required<Value>(
        _ column: PostgresColumn,
        _ value: Value?,
        _ wanted: StaticString
    ) throws(PostgresError) -> Value {
        if let value { return value }
        let label = block.columns.label(try position(of: column))
        throw PostgresError(.decoding, "column \(label) is null, not \(wanted)")
    }
}

/// The columns of a result; one object for all its rows and for all runs of the statement.
final class ColumnSet: Sendable {
    let names: [String]
    /// Postgres' type OIDs; 0 where unknown, as in COPY.
    let types: [UInt32]
    let isBinary: Bool
    /// The position of each name; of columns that share a name, the first.
    let positions: [String: Int]
    let count: Int

    init(names: [String], types: [UInt32], isBinary: Bool) {
        self.names = names
        self.types = types
        self.isBinary = isBinary
        count = types.count
        positions = Dictionary(
            names.enumerated().map { ($0.element, $0.offset) },
            uniquingKeysWith: { first, _ in first }
        )
    }

    func label(_ position: Int) -> String {
        position < names.count ? "\"\(names[position])\"" : "\(position)"
    }
}

/// Rows in one block of memory: no allocation a cell, no pointer into libpq.
final class RowBlock: Sendable {
    struct Place {
        var start: Int
        /// Negative: NULL.
        var length: Int
    }

    let columns: ColumnSet
    let bytes: [UInt8]
    let places: [Place]
    let rowCount: Int
    // Copied from the columns, as they are read with every cell.
    let isBinary: Bool
    let columnCount: Int

    init(columns: ColumnSet, bytes: [UInt8], places: [Place], rowCount: Int) {
        self.columns = columns
        isBinary = columns.isBinary
        columnCount = columns.count
        self.bytes = bytes
        self.places = places
        self.rowCount = rowCount
    }

    static let empty = RowBlock(
        columns: ColumnSet(names: [], types: [], isBinary: false),
        bytes: [],
        places: [],
        rowCount: 0
    )

    func cell(_ row: Int, _ column: Int) -> Place { places[row * columnCount + column] }
}

/// Collects rows one by one.
struct RowBlockBuilder {
    let columns: ColumnSet
    private(set) var bytes: [UInt8] = []
    private(set) var places: [RowBlock.Place] = []
    private(set) var rowCount = 0

    init(columns: ColumnSet) { self.columns = columns }

    mutating func appendNull() { places.append(RowBlock.Place(start: 0, length: -1)) }

    mutating func append(_ cell: UnsafeRawBufferPointer) {
        places.append(RowBlock.Place(start: bytes.count, length: cell.count))
        unsafe bytes.append(contentsOf: cell)
    }

    mutating func endRow() { rowCount += 1 }

    /// Adds the place of a cell, before `appendRow` adds the bytes.
    mutating func appendPlace(_ place: RowBlock.Place) { places.append(place) }
    mutating func forgetPlaces(after count: Int) { places.removeLast(places.count - count) }

    mutating func appendRow(_ row: UnsafeRawBufferPointer) {
        unsafe bytes.append(contentsOf: row)
        rowCount += 1
    }

    mutating func reserve(bytes: Int, cells: Int) {
        self.bytes.reserveCapacity(bytes)
        places.reserveCapacity(cells)
    }

    consuming func finish() -> RowBlock {
        RowBlock(columns: columns, bytes: bytes, places: places, rowCount: rowCount)
    }
}
