internal import JSON

/// The values of one object while its changes are applied.
///
/// All are in one array and refer to each other by their index, so that a change costs no copy of a
/// path. An object beyond some megabytes of memory, or of too many changes, is refused.
struct ObjectTree {
    struct Node {
        enum Kind: UInt8 { case scalar, list, object }
        var kind: Kind
        var fault: RealmObjectFault?
        var value: JSONValue = .null
        var children: [Int32] = []
        /// The names of an object's children; -1 for a removed one.
        var names: [Int32] = []
        /// The places of names, if there are many.
        var places: [Int32: Int32] = [:]

        init(_ kind: CollectionKind) {
            switch kind {
            case .list: self.kind = .list
            case .object: self.kind = .object
            }
        }

        init(kind: Kind, fault: RealmObjectFault? = nil, value: JSONValue) {
            self.kind = kind
            self.fault = fault
            self.value = value
        }

        /// The most names that are found by comparing.
        static let linearLimit = 16
    }

    /// The object itself.
    static let root: Int32 = 0

    /// An object of more bytes cannot be valid, even if much of it was overwritten.
    private static let maximumWeight = 1 << 20

    private(set) var nodes = [Node(.object)]
    /// The approximate bytes of everything that was ever set.
    private var weight = 0
    /// The elements that this and later objects may still move by insertions and removals, which bounds
    /// their time.
    private var moves: Int

    /// - Parameter changesetBytes: The size of the changeset.
    init(changesetBytes: Int) { moves = changesetBytes * 64 + (4 << 20) }

    /// Begins the next object, in the memory of the one before.
    mutating func clear() {
        nodes.removeAll(keepingCapacity: true)
        nodes.append(Node(.object))
        weight = 0
    }

    /// Charges the bytes of a value.
    mutating func charge(_ bytes: Int) throws(RealmObjectFault) {
        weight += min(bytes, Self.maximumWeight)
        guard weight <= Self.maximumWeight else { throw .tooLarge }
    }

    /// Charges elements that are moved in memory, or compared.
    mutating func charge(moves count: Int) throws(RealmObjectFault) {
        moves -= count
        guard moves >= 0 else { throw .tooManyChanges }
    }

    mutating func add(_ node: Node) -> Int32 {
        nodes.append(node)
        return Int32(nodes.count - 1)
    }

    func count(_ node: Int32) -> Int { nodes[Int(node)].children.count }

    func isCollection(_ node: Int32, _ kind: CollectionKind) -> Bool {
        switch kind {
        case .list: nodes[Int(node)].kind == .list
        case .object: nodes[Int(node)].kind == .object
        }
    }

    func isNull(_ node: Int32) -> Bool {
        nodes[Int(node)].kind == .scalar && nodes[Int(node)].value.isNull
    }

    /// - Returns: The index of the first element with the value of another.
    func index(of value: Int32, in list: Int32) -> Int? {
        let wanted = nodes[Int(value)].value
        return nodes[Int(list)].children.firstIndex { child in
            nodes[Int(child)].kind == .scalar && nodes[Int(child)].value == wanted
        }
    }

    /// - Returns: The child of a container; `nil` if there is none.
    func child(_ node: Int32, _ step: PathStep) -> Int32? {
        switch step {
        case .element(let index):
            let children = nodes[Int(node)].children
            return children.indices.contains(index) ? children[index] : nil
        case .member(let name):
            guard let place = place(of: name, in: node) else { return nil }
            return nodes[Int(node)].children[place]
        }
    }

    private func place(of name: Int32, in node: Int32) -> Int? {
        let place = Int(node)
        guard nodes[place].names.count > Node.linearLimit else {
            return nodes[place].names.firstIndex(of: name)
        }
        return nodes[place].places[name].map(Int.init)
    }

    /// Sets a child. An element must be there already.
    mutating func set(_ node: Int32, _ step: PathStep, to child: Int32) throws(RealmObjectFault) {
        switch step {
        case .member(let name): set(node, member: name, to: child)
        case .element(let index):
            guard index < count(node) else { throw .path }
            nodes[Int(node)].children[index] = child
        }
    }

    private mutating func set(_ node: Int32, member name: Int32, to child: Int32) {
        if let place = place(of: name, in: node) {
            nodes[Int(node)].children[place] = child
            return
        }
        let index = Int(node)
        nodes[index].names.append(name)
        nodes[index].children.append(child)
        let count = nodes[index].names.count
        if count == Node.linearLimit + 1 {
            for (place, name) in nodes[index].names.enumerated() where name >= 0 {
                nodes[index].places[name] = Int32(place)
            }
        } else if count > Node.linearLimit {
            nodes[index].places[name] = Int32(count - 1)
        }
    }

    /// Removes a member of an object, and leaves its place empty.
    mutating func remove(_ node: Int32, member name: Int32) {
        guard let place = place(of: name, in: node) else { return }
        nodes[Int(node)].names[place] = -1
        nodes[Int(node)].places[name] = nil
    }

    mutating func insert(_ node: Int32, element index: Int, _ child: Int32) {
        nodes[Int(node)].children.insert(child, at: index)
    }

    mutating func remove(_ node: Int32, element index: Int) -> Int32 {
        nodes[Int(node)].children.remove(at: index)
    }

    mutating func replace(_ node: Int32, with other: Node) { nodes[Int(node)] = other }
}
