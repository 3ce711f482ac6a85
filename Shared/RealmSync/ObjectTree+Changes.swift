internal import JSON

/// Applies the changes of one object.
extension ObjectTree {
    /// The weight of a change that adds no value: it takes as long as one that does.
    private static let changeWeight = 8
    /// The weight of a container that a path makes.
    private static let containerWeight = 32
    /// The longest name of a field, or key of a dictionary. A name is stored once in a changeset, and in
    /// each object.
    private static let maximumNameBytes = 1024

    /// Applies a change.
    ///
    /// - Parameters:
    ///   - change: With its values.
    ///   - path: From a field of the object; never empty.
    ///   - names: Those of the changeset.
    /// - Throws: `RealmObjectFault`, for which the object is refused.
    mutating func apply(
        _ change: Instruction.Change,
        at path: [PathStep],
        _ names: InternedNames
    ) throws(RealmObjectFault) {
        let node = try container(of: path, names)
        let last = path[path.count - 1]
        let nameBytes = try bytes(of: last, names)
        switch change {
        case .update(.erased):
            try charge(Self.changeWeight)
            if case .member(let name) = last { remove(node, member: name) }
        case .update(let payload):
            guard let value = try makeNode(payload, nameBytes) else { return }
            try set(node, last, to: value)
        case .add(let number):
            try add(number, to: node, last, nameBytes)
        case .insert(let payload, at: let index, let priorSize):
            guard index <= count(node), priorSize <= count(node) else { throw .path }
            try charge(moves: count(node) - index)
            guard let value = try makeNode(payload, nameBytes) else { return }
            insert(node, element: index, value)
        case .move(from: let index, to: let destination, let priorSize):
            guard index < count(node), destination < count(node), priorSize <= count(node)
            else { throw .path }
            try charge(Self.changeWeight)
            try charge(moves: 2 * count(node))
            insert(node, element: destination, remove(node, element: index))
        case .remove(at: let index, let priorSize):
            guard index < count(node), priorSize <= count(node) else { throw .path }
            try charge(Self.changeWeight)
            try charge(moves: count(node) - index)
            _ = remove(node, element: index)
        case .clear(let kind):
            try charge(Self.changeWeight)
            replace(try collection(node, last, kind, names), with: Node(kind))
        case .insertIntoSet(let payload):
            // A client inserts no element twice.
            let set = try collection(node, last, .list, names)
            guard let value = try makeNode(payload, nameBytes) else { return }
            insert(set, element: count(set), value)
        case .eraseFromSet(let payload):
            let set = try collection(node, last, .list, names)
            guard let value = try makeNode(payload, nameBytes) else { return }
            // A comparison takes as long as many moves.
            try charge(moves: count(set) * 16)
            if let index = index(of: value, in: set) { _ = remove(set, element: index) }
        }
    }

    /// Returns the container of the last step, and makes those that were declared and have no
    /// instruction: their first element makes them.
    private mutating func container(
        of path: [PathStep],
        _ names: InternedNames
    ) throws(RealmObjectFault) -> Int32 {
        var node = Self.root
        for place in path.indices.dropFirst() {
            let kind: CollectionKind
            switch path[place] {
            case .element: kind = .list
            case .member: kind = .object
            }
            node = try collection(node, path[place - 1], kind, names)
        }
        return node
    }

    /// Returns the child of a container that is a collection of this kind.
    private mutating func collection(
        _ node: Int32,
        _ step: PathStep,
        _ kind: CollectionKind,
        _ names: InternedNames
    ) throws(RealmObjectFault) -> Int32 {
        if let child = child(node, step) {
            if isCollection(child, kind) { return child }
            guard isNull(child) else { throw .path }
        }
        try charge(Self.containerWeight + bytes(of: step, names))
        let made = add(Node(kind))
        try set(node, step, to: made)
        return made
    }

    /// Returns the size of a step's name; 0 for an element.
    private func bytes(
        of step: PathStep,
        _ names: InternedNames
    ) throws(RealmObjectFault) -> Int {
        guard case .member(let name) = step else { return 0 }
        let count = names.byteCount(name)
        guard count <= Self.maximumNameBytes else { throw .longName }
        return count
    }

    /// Makes a value of a payload, and charges it to the object.
    ///
    /// - Returns: `nil` if there is no value.
    private mutating func makeNode(
        _ payload: Payload,
        _ nameBytes: Int
    ) throws(RealmObjectFault) -> Int32? {
        // With the comma, and a name's quotes and colon.
        let more = nameBytes + 5
        switch payload {
        case .unused, .erased: return nil
        case .value(let value, let bytes):
            try charge(bytes + more)
            return add(Node(kind: .scalar, value: value))
        case .refused(.tooLarge, _): throw .tooLarge
        case .refused(let fault, let text):
            try charge(16 + more)
            return add(Node(kind: .scalar, fault: fault, value: text))
        case .collection(let kind):
            try charge(2 + more)
            return add(Node(kind))
        }
    }

    /// Adds to an integer; one that was never set is 0.
    private mutating func add(
        _ number: Int64,
        to node: Int32,
        _ step: PathStep,
        _ nameBytes: Int
    ) throws(RealmObjectFault) {
        var value: Int64 = 0
        if let child = child(node, step), !isNull(child) {
            guard case .integer(let number) = nodes[Int(child)].value else { throw .path }
            value = number
        }
        // Realm's addition wraps around, too.
        let sum = Payload.value(.integer(value &+ number), bytes: 1)
        guard let sum = try makeNode(sum, nameBytes) else { return }
        try set(node, step, to: sum)
    }
}
