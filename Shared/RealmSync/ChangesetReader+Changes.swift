internal import JSON

/// Changes of the objects that the changeset creates. Those of other objects, and of refused ones,
/// are read and not applied.
extension ChangesetReader {
    private static var maximumPath: Int64 { 32 }

    // MARK: Paths

    /// Reads the head of a change; its path is then in `path`.
    ///
    /// - Returns: The object; `nil` if the change is not applied.
    private mutating func target() throws(RealmChangesetFault) -> Int? {
        let (table, key) = (try className(), try key())
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
        guard let object = tree.find(table, key), tree.accepts(object) else { return nil }
        return object
    }

    /// The last step of the path, which is never empty.
    private var lastStep: PathStep { path[path.count - 1] }

    /// The last step of the path, if it is an element.
    private func lastElement() throws(RealmChangesetFault) -> Int {
        guard case .element(let index) = lastStep else { throw cursor.fault(.path) }
        return index
    }

    /// Returns the container of the last step, and makes those that were declared and have no
    /// instruction: their first element makes them.
    private mutating func container(_ object: Int) throws(RealmChangesetFault) -> Int32 {
        var node = tree.objects[object].root
        var place = 1
        while place < path.count {
            let next: CollectionKind
            switch path[place] {
            case .element: next = .list
            case .member: next = .object
            }
            node = try collection(node, path[place - 1], next)
            place += 1
        }
        return node
    }

    /// Returns the child of a container that is a collection of this kind.
    private mutating func collection(
        _ node: Int32,
        _ step: PathStep,
        _ kind: CollectionKind
    ) throws(RealmChangesetFault) -> Int32 {
        if let child = tree.child(node, step) {
            if tree.isCollection(child, kind) { return child }
            guard tree.isNull(child) else { throw cursor.fault(.path) }
        }
        let made = try add(ObjectTree.Node(kind))
        try set(node, step, to: made)
        return made
    }

    private mutating func add(_ node: ObjectTree.Node) throws(RealmChangesetFault) -> Int32 {
        guard let place = tree.add(node) else { throw cursor.fault(.values) }
        return place
    }

    /// Sets a child. An element must be there already.
    private mutating func set(
        _ node: Int32,
        _ step: PathStep,
        to child: Int32
    ) throws(RealmChangesetFault) {
        switch step {
        case .member(let name): tree.set(node, member: name, to: child)
        case .element(let index):
            guard index < tree.count(node) else { throw cursor.fault(.path) }
            tree.set(node, element: index, to: child)
        }
    }

    /// Charges the bytes of a value, and of its name, to the object.
    private mutating func charge(_ object: Int, _ bytes: Int) -> Bool {
        var bytes = bytes
        if case .member(let name) = lastStep { bytes += strings[Int(name)].utf8.count + 3 }
        return tree.charge(object, bytes + 2)
    }

    /// Makes a value of a payload, and charges it to the object.
    ///
    /// - Returns: `nil` if there is no value, or the object has been refused.
    private mutating func makeNode(
        _ payload: Payload,
        of object: Int
    ) throws(RealmChangesetFault) -> Int32? {
        switch payload {
        case .unused, .erased: return nil
        case .value(let value, let bytes):
            guard charge(object, bytes) else { return nil }
            return try add(ObjectTree.Node(kind: .scalar, value: value))
        case .refused(.tooLarge, _):
            tree.refuse(object, .tooLarge)
            return nil
        case .refused(let fault, let text):
            guard charge(object, 16) else { return nil }
            return try add(ObjectTree.Node(kind: .scalar, fault: fault, value: text))
        case .collection(let kind):
            guard charge(object, 2) else { return nil }
            return try add(ObjectTree.Node(kind))
        }
    }

    // MARK: Instructions

    mutating func update() throws(RealmChangesetFault) {
        let object = try target()
        let payload = try payload(isUsed: object != nil)
        switch lastStep {
        case .element: _ = try size()
        case .member: _ = try cursor.flag()
        }
        guard let object else { return }
        let node = try container(object)
        if case .erased = payload {
            guard case .member(let name) = lastStep, path.count > 1 else {
                throw cursor.fault(.path)
            }
            return tree.remove(node, member: name)
        }
        guard let value = try makeNode(payload, of: object) else { return }
        try set(node, lastStep, to: value)
    }

    mutating func arrayInsert() throws(RealmChangesetFault) {
        let object = try target()
        let payload = try payload(isUsed: object != nil)
        let priorSize = try size()
        let index = try lastElement()
        guard let object else { return }
        let node = try container(object)
        let count = tree.count(node)
        guard index <= count, priorSize <= count else { throw cursor.fault(.path) }
        guard let value = try makeNode(payload, of: object),
            tree.charge(object, moves: count - index)
        else { return }
        tree.insert(node, element: index, value)
    }

    mutating func arrayMove() throws(RealmChangesetFault) {
        let object = try target()
        let destination = try size()
        let priorSize = try size()
        let index = try lastElement()
        guard let object else { return }
        let node = try container(object)
        let count = tree.count(node)
        guard index < count, destination < count, priorSize <= count else {
            throw cursor.fault(.path)
        }
        guard tree.charge(object, moves: 2 * count) else { return }
        tree.insert(node, element: destination, tree.remove(node, element: index))
    }

    mutating func arrayErase() throws(RealmChangesetFault) {
        let object = try target()
        let priorSize = try size()
        let index = try lastElement()
        guard let object else { return }
        let node = try container(object)
        let count = tree.count(node)
        guard index < count, priorSize <= count else { throw cursor.fault(.path) }
        guard tree.charge(object, moves: count - index) else { return }
        _ = tree.remove(node, element: index)
    }

    mutating func clear() throws(RealmChangesetFault) {
        let object = try target()
        let kind: CollectionKind
        switch try cursor.integer() {
        case 1, 3: kind = .list
        case 2: kind = .object
        default: throw cursor.fault(.collection)
        }
        guard let object else { return }
        let node = try collection(try container(object), lastStep, kind)
        tree.replace(node, with: ObjectTree.Node(kind))
    }

    /// Inserts into a set, or erases from it. A client inserts no element twice.
    mutating func changeSet(isInsertion: Bool) throws(RealmChangesetFault) {
        let object = try target()
        let payload = try payload(isUsed: object != nil)
        switch payload {
        case .erased, .collection: throw cursor.fault(.type)
        case .unused, .value, .refused: break
        }
        guard let object else { return }
        let node = try collection(try container(object), lastStep, .list)
        guard let value = try makeNode(payload, of: object) else { return }
        let count = tree.count(node)
        if isInsertion { return tree.insert(node, element: count, value) }
        // A comparison takes as long as many moves.
        guard tree.charge(object, moves: count * 16),
            let index = tree.index(of: value, in: node)
        else { return }
        _ = tree.remove(node, element: index)
    }

    /// Adds to an integer; one that was never set is 0.
    mutating func addInteger() throws(RealmChangesetFault) {
        let object = try target()
        let change = try cursor.integer()
        guard let object else { return }
        let node = try container(object)
        var value: Int64 = 0
        if let child = tree.child(node, lastStep), !tree.isNull(child) {
            guard case .integer(let number) = tree.nodes[Int(child)].value else {
                throw cursor.fault(.path)
            }
            value = number
        }
        // Realm's addition wraps around, too.
        let sum = Payload.value(.integer(value &+ change), bytes: 1)
        guard let sum = try makeNode(sum, of: object) else { return }
        try set(node, lastStep, to: sum)
    }

    /// Reads the former size of a collection, or an index.
    private mutating func size() throws(RealmChangesetFault) -> Int {
        let size = try cursor.integer()
        guard size >= 0, size <= Int64(Int32.max) else { throw cursor.fault(.path) }
        return Int(size)
    }
}
