import JSON

/// One record of a file, or the place of one that is too long.
struct RawRecord: Equatable, Sendable {
    /// Empty if the record is too long.
    var bytes: [UInt8]
    /// The line that it begins on; the first line is 1. In a file of JSON values, which may be one
    /// long line, the number of the record.
    var line: Int
    /// The position after it.
    var end: Int
    /// The line of the next record.
    var endLine: Int
    var isTooLong = false
    /// Whether the record could not be found as a whole: the file ends inside of it.
    var isCut = false
}

/// Splits a file into its records, of which it knows no more than where they end. Pure: bytes in, records
/// out. It holds one record at most.
struct RecordSplitter {
    /// The form of a file.
    enum Form: Equatable, Sendable {
        /// One record a line. Empty lines, and lines that begin with `#`, are skipped.
        case lines
        /// Records of CSV: a line's end inside quotation marks belongs to the value.
        case csv
        /// JSON values, one after the other.
        case values
        /// The elements of an array at the top of the file, or of several arrays.
        case array
        /// The elements of an array in an object, under one of these names.
        case container([String])
    }

    private enum State: Equatable {
        /// Between records.
        case outside
        case inside
    }

    let form: Form
    private let maximumBytes: Int
    private(set) var position: Int
    private(set) var line: Int
    private var state = State.outside
    private var record: [UInt8] = []
    private var recordLine = 1
    private var isTooLong = false
    /// Open brackets of the record.
    private var depth = 0
    private var isInString = false
    private var isEscaped = false
    /// The open brackets around the records, once the array is entered.
    private var isInArray: Bool
    private var outer = ContainerScan()

    /// - Parameters:
    ///   - form: The form of the file.
    ///   - position: The position of the first byte that it gets: 0, or the end of a record.
    ///   - line: The line there.
    ///   - isResumed: Whether the position is that of a record inside the array.
    ///   - maximumBytes: A longer record is reported, and its bytes are dropped.
    init(
        _ form: Form,
        position: Int = 0,
        line: Int = 1,
        isResumed: Bool = false,
        maximumBytes: Int = ImportLimits.recordBytes
    ) {
        (self.form, self.position, self.line) = (form, position, line)
        self.maximumBytes = maximumBytes
        isInArray = isResumed
        if isResumed, case .container = form { outer.enterAgain() }
    }

    /// Takes the next bytes, and calls `body` with each record that ends in them.
    mutating func take(
        _ bytes: [UInt8],
        _ body: (RawRecord) throws(ImportError) -> Void
    ) throws(ImportError) {
        switch form {
        case .lines: try takeLines(bytes, body)
        case .csv: try takeCSV(bytes, body)
        case .values, .array, .container: try takeValues(bytes, body)
        }
    }

    /// Ends the file: returns the last record, if its line has no end.
    ///
    /// - Throws: `ImportError` if the file ends inside an array.
    mutating func finish() throws(ImportError) -> RawRecord? {
        switch form {
        case .lines, .csv:
            guard state == .inside else { return nil }
            var last = end()
            last.isCut = form == .csv && isInString
            return last
        case .values:
            guard state == .inside else { return nil }
            var last = end()
            last.isCut = true
            return last
        case .array, .container:
            guard state == .outside, !isInArray else {
                throw ImportError(.broken, "the file ends inside its list, at record \(line)")
            }
            return nil
        }
    }

    // MARK: Records

    private mutating func begin() {
        state = .inside
        record = []
        recordLine = line
        isTooLong = false
    }

    private mutating func add(_ bytes: ArraySlice<UInt8>) {
        guard !isTooLong else { return }
        guard record.count + bytes.count <= maximumBytes else {
            isTooLong = true
            record = []
            return
        }
        record += bytes
    }

    private mutating func end() -> RawRecord {
        state = .outside
        defer { record = [] }
        switch form {
        case .lines, .csv: break
        case .values, .array, .container: line += 1
        }
        return RawRecord(
            bytes: record,
            line: recordLine,
            end: position,
            endLine: line,
            isTooLong: isTooLong
        )
    }

    // MARK: Lines

    private static let newline = UInt8(ascii: "\n")
    private static let quote = UInt8(ascii: "\"")

    private mutating func takeLines(
        _ bytes: [UInt8],
        _ body: (RawRecord) throws(ImportError) -> Void
    ) throws(ImportError) {
        var start = 0
        while start < bytes.count {
            if state == .outside { begin() }
            let end = bytes[start...].firstIndex(of: Self.newline)
            add(bytes[start..<(end ?? bytes.count)])
            position += (end.map { $0 + 1 } ?? bytes.count) - start
            guard let end else { return }
            line += 1
            start = end + 1
            let record = self.end()
            if record.isTooLong || !Self.isSkipped(record.bytes) { try body(record) }
        }
    }

    /// Whether a line has no record: it is blank, or LeanCloud's first line, `#filetype:JSON-streaming …`.
    static func isSkipped(_ line: [UInt8]) -> Bool {
        guard let first = line.first(where: { $0 != 0x20 && $0 != 0x09 && $0 != 0x0d }) else {
            return true
        }
        return first == UInt8(ascii: "#")
    }

    private mutating func takeCSV(
        _ bytes: [UInt8],
        _ body: (RawRecord) throws(ImportError) -> Void
    ) throws(ImportError) {
        var start = 0
        var index = 0
        while index < bytes.count {
            if state == .outside {
                begin()
                start = index
                isInString = false
            }
            let byte = bytes[index]
            index += 1
            position += 1
            if byte == Self.quote {
                // A doubled quotation mark closes and opens.
                isInString.toggle()
            } else if byte == Self.newline {
                line += 1
                if !isInString {
                    add(bytes[start..<(index - 1)])
                    let record = end()
                    let isEmpty = record.bytes.allSatisfy { $0 == 0x0d }
                    if record.isTooLong || !isEmpty { try body(record) }
                }
            }
        }
        if state == .inside { add(bytes[start...]) }
    }

    // MARK: JSON

    private mutating func takeValues(
        _ bytes: [UInt8],
        _ body: (RawRecord) throws(ImportError) -> Void
    ) throws(ImportError) {
        var start = 0
        var index = 0
        while index < bytes.count {
            let byte = bytes[index]
            if state == .inside {
                index += 1
                position += 1
                guard closes(byte) else { continue }
                add(bytes[start..<index])
                try body(end())
                continue
            }
            if form == .values || isInArray, byte == UInt8(ascii: "{") {
                begin()
                (depth, isInString, isEscaped) = (0, false, false)
                start = index
                continue
            }
            try passOutside(byte)
            index += 1
            position += 1
        }
        if state == .inside { add(bytes[start...]) }
    }

    /// Whether this byte of a record is its last one.
    private mutating func closes(_ byte: UInt8) -> Bool {
        if isInString {
            if isEscaped {
                isEscaped = false
            } else if byte == UInt8(ascii: "\\") {
                isEscaped = true
            } else if byte == Self.quote {
                isInString = false
            }
            return false
        }
        switch byte {
        case Self.quote: isInString = true
        case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
        case UInt8(ascii: "}"), UInt8(ascii: "]"):
            depth -= 1
            return depth == 0
        default: break
        }
        return false
    }

    /// Follows a byte between records.
    private mutating func passOutside(_ byte: UInt8) throws(ImportError) {
        let isBlank = byte == 0x20 || byte == 0x09 || byte == 0x0d || byte == Self.newline
        switch form {
        case .lines, .csv: return
        case .values:
            if isBlank || byte == UInt8(ascii: ",") { return }
        case .array:
            if isBlank { return }
            if isInArray {
                if byte == UInt8(ascii: ",") { return }
                if byte == UInt8(ascii: "]") {
                    isInArray = false
                    return
                }
            } else if byte == UInt8(ascii: "[") {
                isInArray = true
                return
            }
        case .container(let names):
            if isInArray {
                if isBlank || byte == UInt8(ascii: ",") { return }
                if byte == UInt8(ascii: "]") {
                    isInArray = false
                    outer.left()
                    return
                }
            } else if outer.take(byte, names) {
                isInArray = true
                return
            } else {
                return
            }
        }
        throw ImportError(
            .broken,
            "at record \(line): expected an object; everything before it is imported"
        )
    }
}

/// Finds the array of records in the objects at the top of a file.
private struct ContainerScan {
    private var depth = 0
    private var isInString = false
    private var isEscaped = false
    /// The last string at the depth of a member, which may be its key.
    private var key: [UInt8] = []
    private var isKeyNext = false
    private static let longestKey = 64

    /// Continues inside the array of an object.
    mutating func enterAgain() { depth = 1 }

    /// The array has ended.
    mutating func left() { key = [] }

    /// - Returns: Whether this byte opens the array.
    mutating func take(_ byte: UInt8, _ names: [String]) -> Bool {
        if isInString {
            if isEscaped {
                isEscaped = false
            } else if byte == UInt8(ascii: "\\") {
                isEscaped = true
            } else if byte == UInt8(ascii: "\"") {
                isInString = false
                return false
            }
            if depth == 1, key.count < Self.longestKey { key.append(byte) }
            return false
        }
        switch byte {
        case UInt8(ascii: "\""):
            isInString = true
            if depth == 1 { (key, isKeyNext) = ([], false) }
        case UInt8(ascii: ":"): isKeyNext = depth == 1
        case UInt8(ascii: "["):
            if depth == 1, isKeyNext, names.contains(where: { $0.utf8.elementsEqual(key) }) {
                return true
            }
            depth += 1
            isKeyNext = false
        case UInt8(ascii: "{"):
            depth += 1
            isKeyNext = false
        case UInt8(ascii: "}"), UInt8(ascii: "]"): depth -= 1
        case 0x20, 0x09, 0x0a, 0x0d: break
        default: isKeyNext = false
        }
        return false
    }

    /// Whether the first object of a file's head has such an array.
    static func finds(_ names: [String], in head: [UInt8]) -> Bool {
        var scan = ContainerScan()
        for byte in head {
            if scan.take(byte, names) { return true }
            if scan.depth == 0, byte == UInt8(ascii: "}") { return false }
        }
        return false
    }
}

extension RecordSplitter {
    /// The bytes at the beginning of a file by which its form is decided.
    static let headBytes = 64 * 1024

    /// Decides the form of a file by its head.
    static func form(_ format: ImportFormat, head: [UInt8]) -> Form {
        if format == .csv { return .csv }
        var head = head[...]
        if head.starts(with: [0xEF, 0xBB, 0xBF]) { head = head.dropFirst(3) }
        let first = head.first { ![0x20, 0x09, 0x0a, 0x0d].contains($0) }
        if first == UInt8(ascii: "[") { return .array }
        guard first == UInt8(ascii: "{") else { return .lines }
        let names = format.containers
        if ContainerScan.finds(names, in: Array(head)) { return .container(names) }
        // A pretty-printed object begins with a line that is not whole.
        guard let end = head.firstIndex(of: newline) else { return .lines }
        var (depth, isInString, isEscaped) = (0, false, false)
        for byte in head[..<end] {
            if isInString {
                if isEscaped {
                    isEscaped = false
                } else if byte == UInt8(ascii: "\\") {
                    isEscaped = true
                } else if byte == quote {
                    isInString = false
                }
                continue
            }
            if byte == quote { isInString = true }
            if byte == UInt8(ascii: "{") || byte == UInt8(ascii: "[") { depth += 1 }
            if byte == UInt8(ascii: "}") || byte == UInt8(ascii: "]") { depth -= 1 }
        }
        let rest = head[end...].first { ![0x20, 0x09, 0x0a, 0x0d].contains($0) }
        // A broken first line of many is rejected alone.
        let isWhole = depth == 0 && !isInString
        return isWhole || rest == UInt8(ascii: "{") ? .lines : .values
    }
}
