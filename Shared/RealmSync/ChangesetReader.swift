internal import JSON

/// Reads the instructions of a changeset, and applies those on objects that it creates.
struct ChangesetReader {
    /// The kinds of a class. Only objects of asymmetric ones are stored.
    private(set) var tables: [(name: Int32, kind: RealmTable.Kind)] = []
    private(set) var strings: [String] = []
    var tree: ObjectTree
    var cursor: ByteCursor
    let ids: RealmIDs
    /// The place of the current change: the field, then the elements of its path.
    var path: [PathStep] = []

    private static let maximumStrings = 1 << 24

    /// The bytes must outlive the reader.
    init(_ bytes: UnsafeRawBufferPointer, ids: RealmIDs) {
        tree = ObjectTree(changesetBytes: bytes.count)
        unsafe cursor = ByteCursor(bytes)
        self.ids = ids
    }

    mutating func read() throws(RealmChangesetFault) {
        while !cursor.isAtEnd { try instruction() }
    }

    private mutating func instruction() throws(RealmChangesetFault) {
        switch try cursor.byte() {
        case 0x3F: try internString()
        case 0x00: try addTable()
        case 0x01: _ = try className()
        case 0x02:
            let (table, key) = (try className(), try key())
            guard tree.create(table, key) else { throw cursor.fault(.values) }
        case 0x03:
            let (table, key) = (try className(), try key())
            tree.erase(table, key)
        case 0x04: try update()
        case 0x05: try addInteger()
        case 0x06: try addColumn()
        case 0x07: _ = (try className(), try stringIndex())
        case 0x08: try arrayInsert()
        case 0x09: try arrayMove()
        case 0x0A: try arrayErase()
        case 0x0B: try clear()
        case 0x0C: try changeSet(isInsertion: true)
        case 0x0D: try changeSet(isInsertion: false)
        default: throw cursor.fault(.instruction)
        }
    }

    // MARK: Names and keys

    private mutating func internString() throws(RealmChangesetFault) {
        guard try cursor.integer() == Int64(strings.count), strings.count < Self.maximumStrings
        else {
            throw cursor.fault(.stringOrder)
        }
        let count = try cursor.length()
        let text = try unsafe cursor.take(count) { bytes in
            unsafe String(validating: bytes.bindMemory(to: UInt8.self), as: UTF8.self)
        }
        guard let text else { throw cursor.fault(.text) }
        strings.append(text)
    }

    mutating func stringIndex() throws(RealmChangesetFault) -> Int32 {
        let index = try cursor.integer()
        guard index >= 0, index < Int64(strings.count) else { throw cursor.fault(.string) }
        return Int32(truncatingIfNeeded: index)
    }

    mutating func className() throws(RealmChangesetFault) -> Int32 {
        let index = try stringIndex()
        guard (1...63).contains(strings[Int(index)].utf8.count) else {
            throw cursor.fault(.className)
        }
        return index
    }

    mutating func key() throws(RealmChangesetFault) -> InternedKey {
        switch try cursor.byte() {
        case 0x00: return InternedKey(kind: .null)
        case 0x01:
            return InternedKey(kind: .integer, high: UInt64(bitPattern: try cursor.integer()))
        case 0x03: return InternedKey(kind: .string, high: UInt64(try stringIndex()))
        case 0x0A:
            let high = try cursor.word64().byteSwapped
            return InternedKey(
                kind: .objectID,
                high: high,
                low: UInt64(try cursor.word32().byteSwapped)
            )
        case 0x0B:
            let high = try cursor.word64().byteSwapped
            return InternedKey(kind: .uuid, high: high, low: try cursor.word64().byteSwapped)
        case 0x40:
            let high = UInt64(bitPattern: try cursor.integer())
            return InternedKey(
                kind: .global,
                high: high,
                low: UInt64(bitPattern: try cursor.integer())
            )
        default: throw cursor.fault(.key)
        }
    }

    // MARK: The schema

    private mutating func addTable() throws(RealmChangesetFault) {
        let name = try className()
        let kind: RealmTable.Kind
        switch try cursor.integer() {
        case 0: kind = .twoWay
        case 1: kind = .embedded
        case 2: kind = .asymmetric
        default: throw cursor.fault(.type)
        }
        if kind != .embedded {
            _ = try stringIndex()
            guard [0x01, 0x03, 0x0A, 0x0B].contains(try cursor.integer()) else {
                throw cursor.fault(.type)
            }
            _ = try cursor.flag()
        }
        tables.append((name, kind))
    }

    private mutating func addColumn() throws(RealmChangesetFault) {
        _ = (try className(), try stringIndex())
        let type = try cursor.integer()
        guard (0...0x0B).contains(type) else { throw cursor.fault(.type) }
        _ = try cursor.flag()
        let collection = try cursor.integer()
        guard (0...3).contains(collection) else { throw cursor.fault(.collection) }
        if type == 0x09 { _ = try className() }
        if collection == 2, try cursor.integer() != 0x03 { throw cursor.fault(.type) }
    }
}
