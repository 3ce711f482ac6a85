internal import JSON

/// Reads the instructions of a changeset. It applies none, and keeps nothing but strings and classes.
struct InstructionReader {
    var cursor: ByteCursor
    var names = InternedNames()
    /// Whether the whole changeset was read before, and `names` has all strings and classes.
    var isChecked = false
    let ids: RealmIDs
    /// The place of the last change: the field, then the elements of its path.
    var path: [PathStep] = []

    private static let maximumPath: Int64 = 32

    /// The bytes must outlive the reader.
    init(_ bytes: UnsafeRawBufferPointer, _ ids: RealmIDs) {
        unsafe cursor = ByteCursor(bytes)
        self.ids = ids
    }

    /// Reads an instruction.
    ///
    /// - Parameter isUsed: Whether the values of changes are made; else they are only checked.
    /// - Returns: Its meaning; the place of a change is then in `path`.
    /// - Throws: `RealmChangesetFault`. Nothing behind it can be read.
    mutating func next(isUsed: Bool) throws(RealmChangesetFault) -> Instruction {
        switch try cursor.byte() {
        case 0x3F: try internString()
        case 0x00: try addTable()
        case 0x01: _ = try className()
        case 0x02: return .create(try reference())
        case 0x03: return .erase(try reference())
        case 0x04:
            return try change { reader throws(RealmChangesetFault) in
                .update(try reader.updated(isUsed))
            }
        case 0x05:
            return try change { reader throws(RealmChangesetFault) in
                .add(try reader.cursor.integer())
            }
        case 0x06: try addColumn()
        case 0x07: _ = (try className(), try stringIndex())
        case 0x08:
            return try change { reader throws(RealmChangesetFault) in
                let payload = try reader.payload(isUsed: isUsed)
                let priorSize = try reader.size()
                return .insert(payload, at: try reader.element(), priorSize: priorSize)
            }
        case 0x09:
            return try change { reader throws(RealmChangesetFault) in
                let destination = try reader.size()
                let priorSize = try reader.size()
                return .move(from: try reader.element(), to: destination, priorSize: priorSize)
            }
        case 0x0A:
            return try change { reader throws(RealmChangesetFault) in
                let priorSize = try reader.size()
                return .remove(at: try reader.element(), priorSize: priorSize)
            }
        case 0x0B:
            return try change { reader throws(RealmChangesetFault) in
                switch try reader.cursor.integer() {
                case 1, 3: .clear(.list)
                case 2: .clear(.object)
                default: throw reader.cursor.fault(.collection)
                }
            }
        case 0x0C:
            return try change { reader throws(RealmChangesetFault) in
                .insertIntoSet(try reader.member(isUsed))
            }
        case 0x0D:
            return try change { reader throws(RealmChangesetFault) in
                .eraseFromSet(try reader.member(isUsed))
            }
        default: throw cursor.fault(.instruction)
        }
        return .declaration
    }

    // MARK: Names and keys

    private mutating func internString() throws(RealmChangesetFault) {
        let index = try cursor.integer()
        guard isChecked || index == Int64(names.count) else { throw cursor.fault(.stringOrder) }
        let count = try cursor.length()
        if isChecked { return try cursor.skip(count) }
        let start = cursor.position
        guard let text = try cursor.text(count) else { throw cursor.fault(.text) }
        guard names.append(text, at: start) else { throw cursor.fault(.values) }
    }

    mutating func stringIndex() throws(RealmChangesetFault) -> Int32 {
        let index = try cursor.integer()
        guard index >= 0, index < Int64(names.count) else { throw cursor.fault(.string) }
        return Int32(truncatingIfNeeded: index)
    }

    mutating func className() throws(RealmChangesetFault) -> Int32 {
        let index = try stringIndex()
        guard (1...63).contains(names.byteCount(index)) else { throw cursor.fault(.className) }
        return index
    }

    private mutating func reference() throws(RealmChangesetFault) -> ObjectReference {
        ObjectReference(table: try className(), key: try key())
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

    /// Returns the object that the instruction at a position creates, which was read before.
    mutating func created(at position: Int) throws(RealmChangesetFault) -> ObjectReference {
        let here = cursor.position
        defer { cursor.position = here }
        cursor.position = position + 1
        return try reference()
    }

    // MARK: Changes

    /// Reads the head of a change, which leads to `path`, and the rest of it.
    private mutating func change(
        _ rest: (inout InstructionReader) throws(RealmChangesetFault) -> Instruction.Change
    ) throws(RealmChangesetFault) -> Instruction {
        let reference = try reference()
        path.removeAll(keepingCapacity: true)
        path.append(.member(try stringIndex()))
        let count = try cursor.integer()
        guard (0...Self.maximumPath).contains(count) else { throw cursor.fault(.pathLength) }
        for _ in 0..<count {
            let element = try cursor.integer()
            if element >= 0 {
                guard element <= Int64(Int32.max) else { throw cursor.fault(.path) }
                path.append(.element(Int(element)))
            } else if element == -1 {
                path.append(.member(try stringIndex()))
            } else {
                throw cursor.fault(.path)
            }
        }
        return .change(reference, try rest(&self))
    }

    /// The last step of the path, which is never empty.
    private var lastStep: PathStep { path[path.count - 1] }

    /// The last step of the path, if it is an element.
    private func element() throws(RealmChangesetFault) -> Int {
        guard case .element(let index) = lastStep else { throw cursor.fault(.path) }
        return index
    }

    /// Reads the former size of a collection, or an index.
    private mutating func size() throws(RealmChangesetFault) -> Int {
        let size = try cursor.integer()
        guard size >= 0, size <= Int64(Int32.max) else { throw cursor.fault(.path) }
        return Int(size)
    }

    private mutating func updated(_ isUsed: Bool) throws(RealmChangesetFault) -> Payload {
        let payload = try payload(isUsed: isUsed)
        switch lastStep {
        case .element: _ = try size()
        case .member: _ = try cursor.flag()
        }
        // Only an entry of a dictionary can be erased.
        if case .erased = payload {
            guard case .member = lastStep, path.count > 1 else { throw cursor.fault(.path) }
        }
        return payload
    }

    /// Reads an element of a set.
    private mutating func member(_ isUsed: Bool) throws(RealmChangesetFault) -> Payload {
        let payload = try payload(isUsed: isUsed)
        switch payload {
        case .erased, .collection: throw cursor.fault(.type)
        case .unused, .value, .refused: return payload
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
        guard isChecked || names.declare(name, kind) else { throw cursor.fault(.values) }
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
