/// Finds the objects of a transaction, step by step, so that no thread is taken for long. First all
/// instructions are checked, then those of each object are found. It takes at most some 4 bytes of
/// memory for each byte, as objects are made only when they are asked for.
package struct RealmDecoding: Sendable {
    private let bytes: ArraySlice<UInt8>
    private let ids: RealmIDs
    private var position = 0
    private var names = InternedNames()
    private var creations = 0
    private var changes = 0
    /// `nil` until all instructions are checked.
    private var index: ChangeIndex?

    /// The bytes after which a step ends.
    private static let stepBytes = 256 << 10

    /// - Parameters:
    ///   - changeset: The transaction.
    ///   - derivedID: Returns the id that stands for a key which cannot be one: the same for the same
    ///     parts, which are `realm`, the class, `int` or `string`, and the key's text.
    package init(_ changeset: RealmChangeset, derivedID: @escaping @Sendable ([String]) -> String) {
        bytes = changeset.bytes
        ids = RealmIDs(derived: derivedID)
    }

    /// Reads on, for some milliseconds at most.
    ///
    /// - Returns: The objects that the transaction creates, without those that it only changes; `nil`
    ///   if there is more to read.
    /// - Throws: `RealmChangesetFault`. Then nothing of the transaction can be stored.
    package mutating func step() throws(RealmChangesetFault) -> RealmObjects? {
        let result = unsafe bytes.withUnsafeBytes {
            [ids] source -> Result<RealmObjects?, RealmChangesetFault> in
            var reader = unsafe InstructionReader(source, ids)
            // They are the reader's meanwhile, as a second owner would copy them.
            swap(&reader.names, &names)
            defer { swap(&reader.names, &names) }
            do throws(RealmChangesetFault) {
                return .success(try step(&reader))
            } catch {
                return .failure(error)
            }
        }
        return try result.get()
    }

    private mutating func step(
        _ reader: inout InstructionReader
    ) throws(RealmChangesetFault) -> RealmObjects? {
        while true {
            try read(&reader)
            guard reader.cursor.isAtEnd else { return nil }
            if let index { return RealmObjects(index, reader.names, bytes, ids) }
            // An application does not create so many objects without a field.
            guard creations <= bytes.count / 16 + 1024 else { throw reader.cursor.fault(.values) }
            index = ChangeIndex(creations: creations, changes: changes)
            position = 0
        }
    }

    private mutating func read(
        _ reader: inout InstructionReader
    ) throws(RealmChangesetFault) {
        reader.cursor.position = position
        reader.isChecked = index != nil
        defer { position = reader.cursor.position }
        while !reader.cursor.isAtEnd, reader.cursor.position - position < Self.stepBytes {
            let start = reader.cursor.position
            let instruction = try reader.next(isUsed: false)
            if index == nil {
                count(instruction)
            } else {
                try find(instruction, at: start, &reader)
            }
        }
    }

    private mutating func count(_ instruction: Instruction) {
        switch instruction {
        case .declaration, .erase: break
        case .create: creations += 1
        case .change: changes += 1
        }
    }

    private mutating func find(
        _ instruction: Instruction,
        at start: Int,
        _ reader: inout InstructionReader
    ) throws(RealmChangesetFault) {
        switch instruction {
        case .declaration: break
        case .create(let object): try index?.create(object, at: start, &reader)
        case .erase(let object): try index?.erase(object, &reader)
        case .change(let object, _): try index?.change(object, at: start, &reader)
        }
    }
}
