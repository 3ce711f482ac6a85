import JSON
import Testing

@testable import Postgres

@Suite(.timeLimit(.minutes(1)))
struct PostgresValueTests {
    private func text(_ value: PostgresValue) throws -> String? {
        var bytes: [UInt8] = []
        return try value.write(into: &bytes) ? String(decoding: bytes, as: UTF8.self) : nil
    }

    @Test("Each value is written in the form that Postgres reads")
    func writing() throws {
        #expect(try text(.null) == nil)
        #expect(try text(.boolean(true)) == "t")
        #expect(try text(.integer(.min)) == "-9223372036854775808")
        #expect(try text(.double(-.infinity)) == "-Infinity")
        #expect(try text(.json(["a": [1, .null]])) == #"{"a":[1,null]}"#)
    }

    @Test("An array is written in the binary form of its type")
    func arrays() throws {
        func bytes(_ value: PostgresValue) throws -> [UInt8] {
            var bytes: [UInt8] = []
            #expect(try value.write(into: &bytes) && value.isBinary)
            return bytes
        }
        #expect(try bytes(.integerArray([])) == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20])
        #expect(
            try bytes(.textArray(["ab", nil, ""])) == [
                0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 25, 0, 0, 0, 3, 0, 0, 0, 1,
                0, 0, 0, 2, 97, 98, 255, 255, 255, 255, 0, 0, 0, 0,
            ]
        )
        #expect(
            try bytes(.integerArray([-2])).suffix(12)
                == [0, 0, 0, 8, 255, 255, 255, 255, 255, 255, 255, 254]
        )
        let uuid = "6f1d3c6e-0000-8000-8000-0123456789AB"
        #expect(
            try bytes(.uuidArray([uuid])).suffix(16) == [
                0x6f, 0x1d, 0x3c, 0x6e, 0, 0, 0x80, 0, 0x80, 0, 1, 0x23, 0x45, 0x67, 0x89, 0xab,
            ]
        )
        #expect(try bytes(.booleanArray([true, false])).suffix(6) == [1, 0, 0, 0, 1, 0])
        #expect(
            try bytes(.timestampArray([.max])).suffix(8) == [127] + Array(repeating: 255, count: 7)
        )
        #expect(
            try bytes(.timestampArray([TimestampText.postgresEpoch])).suffix(8)
                == Array(repeating: 0, count: 8)
        )
    }

    @Test(
        "An invalid uuid is refused before anything is sent",
        arguments: ["", "no", "6f1d3c6e-0000"]
    )
    func refusesNoUUID(_ text: String) {
        let value = PostgresValue.uuidArray([text])
        #expect(throws: PostgresError.self) { try value.check() }
        #expect(throws: PostgresError.self) { try self.text(value) }
    }

    @Test("A NUL, which Postgres cannot store, is refused and never truncates a string")
    func refusesNUL() {
        #expect(throws: PostgresError.self) { try text(.text("a\0b")) }
        #expect(throws: PostgresError.self) { try text(.textArray(["a\0b"])) }
    }

    @Test(
        "Timestamps are exact to the microsecond in both directions",
        arguments: [
            (0, "1970-01-01 00:00:00.000000+00"),
            (1_763_717_796_123_456, "2025-11-21 09:36:36.123456+00"),
            (-1, "1969-12-31 23:59:59.999999+00"),
            (951_782_400_000_000, "2000-02-29 00:00:00.000000+00"),
            (-62_135_596_800_000_001, "0001-12-31 23:59:59.999999+00 BC"),
            (253_402_300_800_000_000, "10000-01-01 00:00:00.000000+00"),
            (Int64.max, "infinity"), (Int64.min, "-infinity"),
        ] as [(Int64, String)]
    )
    func timestamps(value: Int64, written: String) {
        #expect(TimestampText.write(value) == written)
        #expect(TimestampText.parse(written.utf8) == value)
    }

    @Test("Postgres' other forms of a time are parsed, and an invalid one is refused")
    func readsTimestamps() {
        #expect(TimestampText.parse("2025-11-21".utf8) == 1_763_683_200_000_000)
        #expect(TimestampText.parse("2025-11-21 00:00:00".utf8) == 1_763_683_200_000_000)
        #expect(TimestampText.parse("2025-11-21 05:30:00+05:30".utf8) == 1_763_683_200_000_000)
        #expect(TimestampText.parse("2025-11-20 22:00:00.5-02".utf8) == 1_763_683_200_500_000)
        for text in ["", "2025", "2025-13-01", "2025-11-21 25:00:00", "2025-11-21x", "noon"] {
            #expect(TimestampText.parse(text.utf8) == nil, "\(text)")
        }
    }

    @Test("Arrays are parsed with quotes and NULLs, and an invalid one is refused")
    func readsArrays() {
        func parse(_ text: String) -> [String?]? { ArrayText.parse(Array(text.utf8)[...]) }
        #expect(parse("{}") == [])
        #expect(parse(#"{a,"b,c",NULL,"NULL","q\"\\"}"#) == ["a", "b,c", nil, "NULL", #"q"\"#])
        for text in ["", "{", "a", "{a,}", "{{1},{2}}", #"{"a}"#, #"{"a"b}"#, "[0:0]={1}"] {
            #expect(parse(text) == nil, "\(text)")
        }
    }

    @Test("An error's description never contains a value, and its debugDescription does")
    func safeDescriptions() {
        let unique = PostgresError.server(
            sqlState: "23505",
            primary: "duplicate key value violates unique constraint \"tokens_pkey\"",
            detail: "Key (token)=(secret) already exists.",
            constraint: "tokens_pkey"
        )
        #expect(!unique.description.contains("secret"))
        #expect(unique.debugDescription.contains("secret"))
        #expect(unique.constraint == "tokens_pkey")
        #expect(!unique.isRetryable && unique.metricLabel == "constraint")
        let data = PostgresError.server(
            sqlState: "22P02",
            primary: "invalid input syntax for type integer: \"secret\"",
            detail: "",
            constraint: nil
        )
        #expect(!data.description.contains("secret"))
        let uri = "postgresql://user:secret@host/db"
        #expect(!PostgresError.connect(libpq: "invalid URI \(uri)").description.contains("secret"))
    }

    @Test("An error is retryable if a later attempt may succeed")
    func retryable() {
        func isRetryable(_ state: String) -> Bool {
            PostgresError(.server, "", sqlState: state).isRetryable
        }
        for state in ["40001", "40P01", "55P03", "57014", "57P01", "53300"] {
            #expect(isRetryable(state), "\(state)")
        }
        for state in ["23505", "42P01", "22012", "42501"] {
            #expect(!isRetryable(state), "\(state)")
        }
        #expect(PostgresError.lost(nil).isRetryable)
        #expect(PostgresError(.overloaded, "").isRetryable)
        #expect(!PostgresError.closed.isRetryable)
        for kind in PostgresError.Kind.allCases {
            #expect(PostgresError.metricLabels.contains(PostgresError(kind, "").metricLabel))
        }
    }
}

@Suite(.timeLimit(.minutes(1)))
struct CopyCodecTests {
    private let columns = ColumnSet(
        names: ["n", "t"],
        types: [TypeOID.bigint, TypeOID.text],
        isBinary: true
    )

    @Test("The decoder reads the encoder's output, however the bytes are split")
    func roundTrip() throws {
        var bytes = CopyEncoder.header
        for row in 0..<50 {
            let text: PostgresValue = row % 7 == 0 ? .null : .text("row \(row)")
            try CopyEncoder(columns: columns).write([.integer(row), text], into: &bytes)
        }
        bytes += CopyEncoder.trailer
        for size in [1, 3, 20, 1000] {
            var decoder = CopyDecoder(columnNames: ["n", "t"])
            for start in stride(from: 0, to: bytes.count, by: size) {
                let piece = Array(bytes[start..<min(start + size, bytes.count)])
                let isGood = unsafe piece.withUnsafeBytes { unsafe decoder.receive($0) }
                #expect(isGood)
            }
            let taken = decoder.takeRows()
            let rows = try #require(taken)
            #expect(rows.rowCount == 50)
            for (index, row) in (0..<50).map({ ($0, PostgresRow(block: rows, row: $0)) }) {
                #expect(try row.integer("n") == index)
                #expect(try row.textOrNil("t") == (index % 7 == 0 ? nil : "row \(index)"))
            }
        }
    }

    @Test("Bytes that are not a binary COPY are refused and do not trap")
    func refusesNonsense() {
        let row: [UInt8] = [0, 1, 0xFF, 0xFF, 0xFF, 0xF0]
        for bytes in [Array(repeating: UInt8(7), count: 40), CopyEncoder.header + row] {
            var decoder = CopyDecoder(columnNames: [])
            let isGood = unsafe bytes.withUnsafeBytes { unsafe decoder.receive($0) }
            #expect(!isGood)
        }
    }

    @Test("A value that does not fit its column is refused with the column's name")
    func misfit() {
        var bytes: [UInt8] = []
        #expect {
            try CopyEncoder(columns: columns).write([.text("x"), .text("y")], into: &bytes)
        } throws: { error in
            "\(error)".contains("\"n\"") && !"\(error)".contains("x\"")
        }
    }
}
