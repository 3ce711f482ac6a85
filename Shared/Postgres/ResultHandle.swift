import CPQ

/// Sole owner of one `PGresult *`. `PQclear` runs exactly once, when the value dies.
@safe
struct ResultHandle: ~Copyable {
    private let pointer: OpaquePointer

    /// Takes ownership of a result from `PQgetResult`.
    init(adopting pointer: OpaquePointer) { unsafe self.pointer = pointer }
    deinit { unsafe PQclear(pointer) }

    enum Status: Equatable {
        /// Done; it has its rows, if any.
        case done
        /// One row of single-row mode.
        case singleRow
        case failed
        /// An earlier statement of its group failed.
        case aborted
        case sync
        case copyIn
        case copyOut
        /// A status that no caller of ours can cause.
        case unexpected
    }

    var status: Status {
        switch unsafe PQresultStatus(pointer) {
        case PGRES_COMMAND_OK, PGRES_TUPLES_OK, PGRES_EMPTY_QUERY: return .done
        case PGRES_SINGLE_TUPLE: return .singleRow
        case PGRES_FATAL_ERROR, PGRES_BAD_RESPONSE: return .failed
        case PGRES_PIPELINE_ABORTED: return .aborted
        case PGRES_PIPELINE_SYNC: return .sync
        case PGRES_COPY_IN: return .copyIn
        case PGRES_COPY_OUT: return .copyOut
        default: return .unexpected
        }
    }

    var rowCount: Int { unsafe Int(PQntuples(pointer)) }
    var columnCount: Int { unsafe Int(PQnfields(pointer)) }

    var affectedRows: Int {
        guard var digit = unsafe PQcmdTuples(pointer) else { return 0 }
        var count = 0
        while unsafe digit.pointee != 0 {
            count = unsafe count &* 10 &+ Int(digit.pointee) &- Int(UInt8(ascii: "0"))
            unsafe digit += 1
        }
        return count
    }

    /// The first word of the command tag.
    var command: String {
        guard let text = unsafe PQcmdStatus(pointer) else { return "" }
        var length = 0
        while unsafe text[length] != 0 && text[length] != CChar(UInt8(ascii: " ")) { length += 1 }
        return unsafe String(
            decoding: UnsafeRawBufferPointer(start: text, count: length),
            as: UTF8.self
        )
    }

    func makeColumns() -> ColumnSet {
        let columns = 0..<Int32(columnCount)
        return ColumnSet(
            names: columns.map { column in
                unsafe PQfname(pointer, column).map { unsafe String(cString: $0) } ?? ""
            },
            types: columns.map { column in unsafe UInt32(PQftype(pointer, column)) },
            isBinary: false
        )
    }

    /// Copies the rows out, so that no pointer outlives the handle.
    func append(to builder: inout RowBlockBuilder) {
        let columns = Int32(columnCount)
        for row in 0..<Int32(rowCount) {
            for column in 0..<columns {
                guard unsafe PQgetisnull(pointer, row, column) == 0 else {
                    builder.appendNull()
                    continue
                }
                let count = unsafe Int(PQgetlength(pointer, row, column))
                let start = unsafe PQgetvalue(pointer, row, column)
                unsafe builder.append(UnsafeRawBufferPointer(start: start, count: count))
            }
            builder.endRow()
        }
    }

    /// Copies all rows out; `columns` are those of an earlier run of the same statement, if any.
    func makeResult(columns: ColumnSet?) -> PostgresResult {
        guard columnCount > 0 else {
            return PostgresResult(
                rows: PostgresRows(block: .empty),
                affectedRows: affectedRows,
                command: command
            )
        }
        var builder = RowBlockBuilder(columns: columns ?? makeColumns())
        append(to: &builder)
        return PostgresResult(
            rows: PostgresRows(block: builder.finish()),
            affectedRows: affectedRows,
            command: command
        )
    }

    /// The error of a failed result.
    var error: PostgresError {
        guard let state = field(Int32(UInt8(ascii: "C"))) else {
            // libpq itself failed: the connection broke.
            let text = unsafe PQresultErrorMessage(pointer).map { unsafe String(cString: $0) }
            return PostgresError(
                .connectionLost,
                "the connection to Postgres was lost",
                detail: text ?? ""
            )
        }
        let primary = field(Int32(UInt8(ascii: "M"))) ?? ""
        let rest = [
            field(Int32(UInt8(ascii: "D"))), field(Int32(UInt8(ascii: "H"))),
            field(Int32(UInt8(ascii: "W"))),
        ].compactMap { $0 }.joined(separator: "; ")
        return .server(
            sqlState: state,
            primary: primary,
            detail: rest,
            constraint: field(Int32(UInt8(ascii: "n")))
        )
    }

    private func field(_ code: Int32) -> String? {
        unsafe PQresultErrorField(pointer, code).map { unsafe String(cString: $0) }
    }
}
