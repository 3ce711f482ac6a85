import EventLoop

// COPY's binary format: a header of 19 bytes at least, then each row as a count of fields (Int16)
// and each field as its length (Int32, -1: NULL) and bytes, then a count of -1. Postgres' manual,
// "COPY", section "Binary Format".

/// Decodes a COPY TO, message by message; a row may span messages.
struct CopyDecoder {
    private static let signature: [UInt8] = Array("PGCOPY\n".utf8) + [0xFF, 0x0D, 0x0A, 0x00]

    private let columnNames: [String]
    private var columns: ColumnSet?
    private var rows = RowBlockBuilder(columns: RowBlock.empty.columns)
    /// The beginning of an incomplete row.
    private var pending: [UInt8] = []
    private var hasHeader = false
    private var isFinished = false

    init(columnNames: [String]) { self.columnNames = columnNames }

    var rowCount: Int { rows.rowCount }

    /// - Returns: False if the format is invalid.
    mutating func receive(_ message: UnsafeRawBufferPointer) -> Bool {
        if pending.isEmpty {
            // Postgres sends one row a message, so each byte is copied only once.
            guard let used = unsafe decode(message) else { return false }
            unsafe pending.append(contentsOf: UnsafeRawBufferPointer(rebasing: message[used...]))
            return true
        }
        var held = pending
        pending = []
        unsafe held.append(contentsOf: message)
        guard let used = unsafe held.withUnsafeBytes({ unsafe decode($0) }) else { return false }
        held.removeFirst(used)
        pending = held
        return true
    }

    mutating func takeRows() -> RowBlock? {
        guard rows.rowCount > 0 else { return nil }
        let full = rows
        // The next block will be much like this one.
        rows = RowBlockBuilder(columns: full.columns)
        rows.reserve(bytes: full.bytes.count, cells: full.places.count)
        return full.finish()
    }

    /// - Returns: The length of the complete part; nil if the format is invalid.
    private mutating func decode(_ bytes: UnsafeRawBufferPointer) -> Int? {
        var position = 0
        if !hasHeader {
            guard bytes.count >= 19 else { return 0 }
            guard unsafe bytes.starts(with: Self.signature) else { return nil }
            let extra = unsafe Int(
                Int32(bigEndian: bytes.loadUnaligned(fromByteOffset: 15, as: Int32.self))
            )
            guard extra >= 0 else { return nil }
            guard bytes.count - 19 >= extra else { return 0 }
            hasHeader = true
            position = 19 + extra
        }
        while !isFinished, bytes.count - position >= 2 {
            let fields = unsafe Int(
                Int16(bigEndian: bytes.loadUnaligned(fromByteOffset: position, as: Int16.self))
            )
            if fields == -1 {
                isFinished = true
                break
            }
            guard fields >= 0, columns == nil || columns?.count == fields else { return nil }
            if columns == nil { begin(fields) }
            switch unsafe decodeRow(bytes, from: position, fields) {
            case .whole(let end): position = end
            case .partial: return position
            case .malformed: return nil
            }
        }
        // Bytes after the end are ignored.
        return isFinished ? bytes.count : position
    }

    private enum Row { case whole(end: Int), partial, malformed }

    /// Appends the row's bytes to the block unchanged, lengths included, and notes where its cells
    /// are.
    private mutating func decodeRow(
        _ bytes: UnsafeRawBufferPointer,
        from start: Int,
        _ fields: Int
    ) -> Row {
        let shift = rows.bytes.count - start
        let cells = rows.places.count
        var position = start + 2
        for _ in 0..<fields {
            guard bytes.count - position >= 4 else {
                rows.forgetPlaces(after: cells)
                return .partial
            }
            let length = unsafe Int(
                Int32(bigEndian: bytes.loadUnaligned(fromByteOffset: position, as: Int32.self))
            )
            position += 4
            guard length >= -1 else { return .malformed }
            guard bytes.count - position >= length else {
                rows.forgetPlaces(after: cells)
                return .partial
            }
            rows.appendPlace(RowBlock.Place(start: position + shift, length: length))
            position += max(0, length)
        }
        unsafe rows.appendRow(UnsafeRawBufferPointer(rebasing: bytes[start..<position]))
        return .whole(end: position)
    }

    private mutating func begin(_ fields: Int) {
        let columns = ColumnSet(
            names: columnNames,
            types: Array(repeating: 0, count: fields),
            isBinary: true
        )
        self.columns = columns
        rows = RowBlockBuilder(columns: columns)
    }
}

/// Encodes rows for a COPY FROM, each value by its column's type.
struct CopyEncoder {
    static let header: [UInt8] =
        Array("PGCOPY\n".utf8) + [0xFF, 0x0D, 0x0A, 0x00] + [0, 0, 0, 0] + [0, 0, 0, 0]
    static let trailer: [UInt8] = [0xFF, 0xFF]

    let columns: ColumnSet

    /// - Throws: `PostgresError.encoding` with the column that the value does not fit.
    func write(_ row: [PostgresValue], into bytes: inout [UInt8]) throws(PostgresError) {
        guard row.count == columns.count else {
            throw PostgresError(.encoding, "a row has \(row.count) values, not \(columns.count)")
        }
        append(Int16(row.count), to: &bytes)
        for (index, value) in row.enumerated() {
            if value == .null {
                append(Int32(-1), to: &bytes)
                continue
            }
            let start = bytes.count
            append(Int32(0), to: &bytes)
            guard try write(value, as: columns.types[index], into: &bytes),
                let length = Int32(exactly: bytes.count - start - 4)
            else {
                throw PostgresError(
                    .encoding,
                    "the value for column \(columns.label(index)) does not fit its type"
                )
            }
            for (offset, shift) in [24, 16, 8, 0].enumerated() {
                bytes[start + offset] = UInt8(truncatingIfNeeded: length >> Int32(shift))
            }
        }
    }

    private func write(
        _ value: PostgresValue,
        as type: UInt32,
        into bytes: inout [UInt8]
    ) throws(PostgresError) -> Bool {
        switch (type, value) {
        case (TypeOID.smallint, .integer(let number)):
            guard let exact = Int16(exactly: number) else { return false }
            append(exact, to: &bytes)
        case (TypeOID.integer, .integer(let number)):
            guard let exact = Int32(exactly: number) else { return false }
            append(exact, to: &bytes)
        case (TypeOID.bigint, .integer(let number)): append(Int64(number), to: &bytes)
        case (TypeOID.double, .double(let number)): append(number.bitPattern, to: &bytes)
        case (TypeOID.double, .integer(let number)):
            append(Double(number).bitPattern, to: &bytes)
        case (TypeOID.real, .double(let number)): append(Float(number).bitPattern, to: &bytes)
        case (TypeOID.boolean, .boolean(let isTrue)): bytes.append(isTrue ? 1 : 0)
        case (TypeOID.text, .text), (TypeOID.varchar, .text), (TypeOID.name, .text),
            (TypeOID.json, .json), (TypeOID.json, .text), (TypeOID.bytea, .bytes):
            return try value.write(into: &bytes)
        case (TypeOID.jsonb, .json), (TypeOID.jsonb, .text):
            bytes.append(1)
            return try value.write(into: &bytes)
        case (TypeOID.uuid, .uuid(let text)), (TypeOID.uuid, .text(let text)):
            return append(uuid: text, to: &bytes)
        case (TypeOID.timestamptz, .timestamp(let time)), (TypeOID.timestamp, .timestamp(let time)):
            if time == .max || time == .min {
                append(time, to: &bytes)
            } else {
                let (shifted, overflow) = time.subtractingReportingOverflow(
                    TimestampText.postgresEpoch
                )
                if overflow { return false }
                append(shifted, to: &bytes)
            }
        case (TypeOID.date, .timestamp(let time)):
            let days = (time - TimestampText.postgresEpoch) / TimestampText.microsecondsPerDay
            guard let exact = Int32(exactly: days) else { return false }
            append(exact, to: &bytes)
        case (TypeOID.textArray, .textArray(let texts)):
            appendArrayHead(texts.count, TypeOID.text, to: &bytes)
            for text in texts { append(field: text.map { Array($0.utf8) }, to: &bytes) }
        case (TypeOID.bigintArray, .integerArray(let numbers)):
            appendArrayHead(numbers.count, TypeOID.bigint, to: &bytes)
            for number in numbers {
                var field: [UInt8] = []
                if let number { append(Int64(number), to: &field) }
                append(field: number == nil ? nil : field, to: &bytes)
            }
        default: return false
        }
        return true
    }

    private func append(_ number: some FixedWidthInteger, to bytes: inout [UInt8]) {
        for shift in stride(from: number.bitWidth - 8, through: 0, by: -8) {
            bytes.append(UInt8(truncatingIfNeeded: number >> shift))
        }
    }

    private func append(field: [UInt8]?, to bytes: inout [UInt8]) {
        append(Int32(field?.count ?? -1), to: &bytes)
        bytes.append(contentsOf: field ?? [])
    }

    /// Appends the header of an array of one dimension from index 1; an empty array has no
    /// dimension.
    private func appendArrayHead(_ count: Int, _ element: UInt32, to bytes: inout [UInt8]) {
        append(Int32(count == 0 ? 0 : 1), to: &bytes)
        append(Int32(1), to: &bytes)
        append(element, to: &bytes)
        if count > 0 {
            append(Int32(count), to: &bytes)
            append(Int32(1), to: &bytes)
        }
    }

    private func append(uuid text: String, to bytes: inout [UInt8]) -> Bool {
        var digits: [UInt8] = []
        for character in text.utf8 where character != UInt8(ascii: "-") {
            guard let digit = UInt8(String(Unicode.Scalar(character)), radix: 16) else {
                return false
            }
            digits.append(digit)
        }
        guard digits.count == 32 else { return false }
        for index in stride(from: 0, to: 32, by: 2) {
            bytes.append(digits[index] << 4 | digits[index + 1])
        }
        return true
    }
}

extension PostgresConnection {
    /// Starts a COPY; `wanted` is `.copyIn` or `.copyOut`, by its direction.
    func beginCopy(_ sql: String, _ wanted: ResultHandle.Status) async throws {
        guard handle.sendScript(sql) else { throw broken() }
        try await flushPlain()
        guard let (status, _) = try await nextStatus(), status == wanted else {
            throw PostgresError(.usage, "that statement is no COPY of this direction")
        }
    }

    /// - Returns: Nil when all rows were returned.
    func nextCopiedRows(limit: Int, into decoder: inout CopyDecoder) async throws -> RowBlock? {
        var isDry = false
        reading: while decoder.rowCount < limit {
            var isSound = true
            switch unsafe handle.getCopyData({ isSound = unsafe decoder.receive($0) }) {
            case .data:
                isDry = false
                guard isSound else {
                    throw PostgresError(.decoding, "not a binary COPY")
                }
            case .wait where isDry:
                isDry = false
                try await waitForInput()
            case .wait:
                // Reads what has already arrived, without waiting for a turn of the loop.
                isDry = true
                guard handle.consumeInput() else { throw broken() }
            case .end, .failed:
                // The command's own result: done, or the error.
                while try await nextStatus() != nil {}
                break reading
            }
        }
        return decoder.takeRows()
    }

    /// Returns once the bytes are written, so that the caller does not get ahead of the server.
    func putCopyData(_ bytes: [UInt8]) async throws {
        guard handle.putCopyData(bytes) else { throw broken() }
        try await flushPlain()
    }

    func endCopyIn() async throws -> Int {
        guard handle.endCopy(refusal: nil) else { throw broken() }
        try await flushPlain()
        var copied = 0
        while let (_, affectedRows) = try await nextStatus() { copied = affectedRows }
        return copied
    }
}
