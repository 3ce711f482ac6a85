/// The objects that a changeset creates, and where the changes of each are. It takes 8 bytes for a
/// change and at most 32 for an object, so an object exists only while it is converted.
struct ChangeIndex: Sendable {
    private struct Object {
        /// The position of the instruction that creates it.
        let start: Int32
        var firstLink: Int32 = -1
        var lastLink: Int32 = -1
        var isErased = false
    }

    private struct Link {
        let position: Int32
        var next: Int32 = -1
    }

    private var objects: [Object] = []
    private var links: [Link] = []
    /// A hash table of objects by their reference, with open addressing; at most half full.
    private var slots: [Int32]
    private var recent: (reference: ObjectReference, object: Int)?

    /// - Parameters:
    ///   - creations: The instructions that create an object, at most.
    ///   - changes: Those that change one, at most.
    init(creations: Int, changes: Int) {
        objects.reserveCapacity(creations)
        links.reserveCapacity(changes)
        var size = 16
        while size < creations * 2 { size *= 2 }
        slots = Array(repeating: -1, count: size)
    }

    var count: Int { objects.count }

    /// Adds an object; a repeat changes nothing.
    mutating func create(
        _ reference: ObjectReference,
        at position: Int,
        _ reader: inout InstructionReader
    ) throws(RealmChangesetFault) {
        let slot = try slot(of: reference, &reader)
        if slots[slot] >= 0, !objects[Int(slots[slot])].isErased { return }
        slots[slot] = Int32(objects.count)
        recent = (reference, objects.count)
        objects.append(Object(start: Int32(position)))
    }

    mutating func erase(
        _ reference: ObjectReference,
        _ reader: inout InstructionReader
    ) throws(RealmChangesetFault) {
        guard let object = try find(reference, &reader) else { return }
        objects[object].isErased = true
        recent = nil
    }

    /// Adds a change. Those of objects that this changeset did not create are ignored.
    mutating func change(
        _ reference: ObjectReference,
        at position: Int,
        _ reader: inout InstructionReader
    ) throws(RealmChangesetFault) {
        guard let object = try find(reference, &reader) else { return }
        let link = Int32(links.count)
        links.append(Link(position: Int32(position)))
        let last = objects[object].lastLink
        if last >= 0 { links[Int(last)].next = link } else { objects[object].firstLink = link }
        objects[object].lastLink = link
    }

    private mutating func find(
        _ reference: ObjectReference,
        _ reader: inout InstructionReader
    ) throws(RealmChangesetFault) -> Int? {
        if let recent, recent.reference == reference { return recent.object }
        let object = Int(slots[try slot(of: reference, &reader)])
        guard object >= 0, !objects[object].isErased else { return nil }
        recent = (reference, object)
        return object
    }

    /// Returns the slot of an object, or the one where it belongs.
    private func slot(
        of reference: ObjectReference,
        _ reader: inout InstructionReader
    ) throws(RealmChangesetFault) -> Int {
        // The seed of hashes is random, so nobody can choose references that collide.
        var slot = reference.hashValue & (slots.count - 1)
        while slots[slot] >= 0 {
            let start = Int(objects[Int(slots[slot])].start)
            if try reader.created(at: start) == reference { return slot }
            slot = (slot + 1) & (slots.count - 1)
        }
        return slot
    }

    // MARK: Reading

    /// - Returns: The position of the instruction that creates an object; `nil` if the changeset erased
    ///   it again.
    func start(of object: Int) -> Int? {
        objects[object].isErased ? nil : Int(objects[object].start)
    }

    /// Passes the positions of an object's changes, in their order.
    func forEachChange(
        of object: Int,
        _ body: (Int) throws(RealmObjectFault) -> Void
    ) throws(RealmObjectFault) {
        var link = Int(objects[object].firstLink)
        while link >= 0 {
            try body(Int(links[link].position))
            link = Int(links[link].next)
        }
    }
}
