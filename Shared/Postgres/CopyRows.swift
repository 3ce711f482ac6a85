/// The cells of a binary COPY, one after the other. Each method appends a cell of one type; the
/// server refuses a COPY whose cells do not match its columns.
package struct CopyCells: Sendable {
    private(set) var bytes: [UInt8] = []

    package init() {}

    package mutating func null() { append(Int32(-1)) }

    /// Appends cells that were encoded before.
    package mutating func append(_ cells: CopyCells) { append(encoded: cells.bytes) }

    /// Appends a cell for `text`, `varchar` or `json`; the server refuses a NUL.
    package mutating func text(_ text: String) {
        append(Int32(truncatingIfNeeded: text.utf8.count))
        bytes.append(contentsOf: text.utf8)
    }

    package mutating func text(_ text: String?) {
        if let text { self.text(text) } else { null() }
    }

    /// Appends JSON for `jsonb`, as UTF-8; the server parses it.
    package mutating func jsonb(_ text: [UInt8]) {
        append(Int32(truncatingIfNeeded: text.count + 1))
        bytes.append(1)
        bytes.append(contentsOf: text)
    }

    /// Appends a cell for `text[]`; the server refuses a NUL.
    package mutating func textArray(_ texts: [String]) {
        // Empty arrays have no dimension.
        let head = texts.isEmpty ? 12 : 20
        append(Int32(clamping: texts.reduce(head) { $0 + 4 + $1.utf8.count }))
        append(Int32(texts.isEmpty ? 0 : 1))
        append(Int32(0))
        append(TypeOID.text)
        guard !texts.isEmpty else { return }
        append(Int32(clamping: texts.count))
        append(Int32(1))
        for text in texts { self.text(text) }
    }

    package mutating func smallint(_ number: Int) {
        append(Int32(2))
        append(Int16(clamping: number))
    }

    package mutating func integer(_ number: Int) {
        append(Int32(4))
        append(Int32(clamping: number))
    }

    package mutating func integer(_ number: Int?) {
        if let number { integer(number) } else { null() }
    }

    package mutating func bigint(_ number: Int) {
        append(Int32(8))
        append(Int64(number))
    }

    package mutating func boolean(_ isTrue: Bool) {
        append(Int32(1))
        bytes.append(isTrue ? 1 : 0)
    }

    /// Appends a cell for `timestamptz`: microseconds since 1970.
    package mutating func timestamp(_ microseconds: Int64) {
        append(Int32(8))
        append(microseconds &- TimestampText.postgresEpoch)
    }

    package mutating func timestamp(_ microseconds: Int64?) {
        if let microseconds { timestamp(microseconds) } else { null() }
    }

    /// Appends a cell for `date`: the UTC day of a time in microseconds since 1970.
    package mutating func date(_ microseconds: Int64) {
        let (days, rest) = (microseconds &- TimestampText.postgresEpoch)
            .quotientAndRemainder(dividingBy: TimestampText.microsecondsPerDay)
        append(Int32(4))
        append(Int32(clamping: rest < 0 ? days - 1 : days))
    }

    /// - Returns: False if it is not a uuid; no cell is appended then.
    package mutating func uuid(_ text: String) -> Bool {
        var digits: [UInt8] = []
        digits.reserveCapacity(32)
        for character in text.utf8 where character != UInt8(ascii: "-") {
            guard let digit = Character(Unicode.Scalar(character)).hexDigitValue else {
                return false
            }
            digits.append(UInt8(digit))
        }
        guard digits.count == 32 else { return false }
        append(Int32(16))
        for index in stride(from: 0, to: 32, by: 2) {
            bytes.append(digits[index] << 4 | digits[index + 1])
        }
        return true
    }

    fileprivate mutating func append(_ number: some FixedWidthInteger) {
        unsafe withUnsafeBytes(of: number.bigEndian) { unsafe bytes.append(contentsOf: $0) }
    }

    fileprivate mutating func append(encoded: [UInt8]) { bytes.append(contentsOf: encoded) }

    fileprivate mutating func reserve(_ count: Int) { bytes.reserveCapacity(count) }
}

/// Rows for `PostgresTransaction.copyIn`, encoded as they are appended: only their bytes are held.
package struct CopyRows: Sendable {
    /// The start of each row: the number of its cells, then the cells that are the same in every
    /// row.
    private let head: [UInt8]
    private var cells = CopyCells()
    package private(set) var count = 0

    /// - Parameters:
    ///   - columns: The number of cells of a row.
    ///   - constant: The first cells of each row, the same in every row.
    ///   - rows: The expected number of rows.
    package init(columns: Int, constant: CopyCells = CopyCells(), rows: Int = 0) {
        var head = CopyCells()
        head.append(Int16(clamping: columns))
        head.append(encoded: constant.bytes)
        self.head = head.bytes
        cells.reserve(rows * (head.bytes.count + 192))
        cells.append(encoded: CopyEncoder.header)
    }

    /// Appends one row: `write` appends the cells after the constant ones.
    package mutating func append(_ write: (inout CopyCells) throws -> Void) rethrows {
        cells.append(encoded: head)
        try write(&cells)
        count += 1
    }

    /// Returns the whole input of a COPY.
    consuming func finish() -> [UInt8] {
        cells.append(encoded: CopyEncoder.trailer)
        return cells.bytes
    }
}

extension PostgresTransaction {
    /// Runs `COPY table (columns) FROM STDIN (FORMAT binary)` in the transaction: the cheapest way
    /// to insert many rows.
    ///
    /// - Parameters:
    ///   - table: Its name, with or without a schema; quoted here.
    ///   - columns: The columns of the rows' cells, in their order.
    ///   - rows: Sent as they are.
    /// - Returns: How many rows were copied.
    /// - Throws: `PostgresError`; `CancellationError`. The transaction can only be rolled back
    ///   then.
    package func copyIn(table: String, columns: [String], _ rows: CopyRows) async throws -> Int {
        let name = table.split(separator: ".").map { quotedIdentifier($0) }.joined(separator: ".")
        let list = columns.map { quotedIdentifier($0) }.joined(separator: ", ")
        return try await plain { connection in
            try await connection.beginCopy(
                "COPY \(name) (\(list)) FROM STDIN (FORMAT binary)",
                .copyIn
            )
            try await connection.putCopyData(rows.finish())
            return try await connection.endCopyIn()
        }
    }
}
