internal import JSON

/// The reason why one object cannot be stored, although its changeset is valid.
package enum RealmObjectFault: String, Error, Sendable {
    case nullKey = "a null key cannot be stored"
    case globalKey = "an object needs a primary key"
    case notFinite = "NaN and infinity cannot be stored"
    case time = "a time must be in the years 0001 to 9999"
    case text = "a string is not valid UTF-8"
    case tooLarge = "the object is too large"
    case tooManyChanges = "the object has too many changes"
}

/// The primary key of an object, or of a link's target, within its changeset.
struct InternedKey: Hashable {
    enum Kind: UInt8 { case null, integer, string, objectID, uuid, global }
    let kind: Kind
    /// An integer, the index of a string, or the first 8 bytes of an id.
    var high: UInt64 = 0
    var low: UInt64 = 0

    /// Resolves the key by the interned strings of its changeset.
    func resolved(_ strings: [String]) -> RealmKey {
        switch kind {
        case .null: .null
        case .integer: .integer(Int64(bitPattern: high))
        case .string: .string(strings[Int(high)])
        case .objectID: .objectID(high: high, low: UInt32(truncatingIfNeeded: low))
        case .uuid: .uuid(high: high, low: low)
        case .global: .global
        }
    }
}

/// One step of a path: the index of an element, or the index of an interned name.
enum PathStep: Equatable {
    case element(Int)
    case member(Int32)
}

/// A collection, as an instruction names it.
enum CollectionKind { case list, object }

/// The objects of one changeset while its instructions are applied.
///
/// All values are in one array and refer to each other by their index, so that a change costs no
/// copy of a path. Memory is proportional to the changeset.
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

    struct Object {
        let table: Int32
        let key: InternedKey
        var root: Int32
        var isErased = false
        var fault: RealmObjectFault?
        /// The approximate bytes of everything that was ever set.
        var weight = 0
    }

    private struct Reference: Hashable {
        let table: Int32
        let key: InternedKey
    }

    /// An object of more bytes cannot be valid, even if much of it was overwritten.
    private static let maximumWeight = 1 << 20

    private(set) var nodes: [Node] = []
    private(set) var objects: [Object] = []
    private var places: [Reference: Int32] = [:]
    private var last: (reference: Reference, place: Int32)?
    private let maximumNodes: Int
    private let maximumObjects: Int
    /// The elements that may still be moved by insertions and removals, which bounds their time.
    private var moves: Int

    init(changesetBytes: Int) {
        // No change that adds a value has less than 8 bytes, and an object with one field, among
        // more than a few, has 16.
        maximumNodes = changesetBytes / 8 + 1024
        maximumObjects = changesetBytes / 16 + 1024
        moves = changesetBytes * 64 + (4 << 20)
    }

    // MARK: Objects

    /// Adds an object; a repeat changes nothing.
    ///
    /// - Returns: False if there are too many.
    mutating func create(_ table: Int32, _ key: InternedKey) -> Bool {
        let reference = Reference(table: table, key: key)
        if last?.reference == reference || places[reference] != nil { return true }
        guard objects.count < maximumObjects, let root = add(Node(.object)) else { return false }
        var object = Object(table: table, key: key, root: root)
        switch key.kind {
        case .null: object.fault = .nullKey
        case .global: object.fault = .globalKey
        case .integer, .string, .objectID, .uuid: break
        }
        places[reference] = Int32(objects.count)
        last = (reference, Int32(objects.count))
        objects.append(object)
        return true
    }

    mutating func erase(_ table: Int32, _ key: InternedKey) {
        guard let place = find(table, key) else { return }
        objects[place].isErased = true
        places[Reference(table: table, key: key)] = nil
        last = nil
    }

    /// - Returns: The place of an object that this changeset created; `nil` if it did not.
    mutating func find(_ table: Int32, _ key: InternedKey) -> Int? {
        let reference = Reference(table: table, key: key)
        if let last, last.reference == reference { return Int(last.place) }
        guard let place = places[reference] else { return nil }
        last = (reference, place)
        return Int(place)
    }

    /// Whether changes of the object are applied: those of a refused one are not.
    func accepts(_ object: Int) -> Bool { objects[object].fault == nil }

    mutating func refuse(_ object: Int, _ fault: RealmObjectFault) {
        guard objects[object].fault == nil else { return }
        objects[object].fault = fault
        nodes[Int(objects[object].root)] = Node(.object)
    }

    /// Charges the bytes of a value to an object, and refuses the object if there are too many.
    mutating func charge(_ object: Int, _ bytes: Int) -> Bool {
        objects[object].weight += min(bytes, Self.maximumWeight)
        guard objects[object].weight <= Self.maximumWeight else {
            refuse(object, .tooLarge)
            return false
        }
        return true
    }

    /// Charges elements that are moved in memory, or compared.
    mutating func charge(_ object: Int, moves count: Int) -> Bool {
        moves -= count
        guard moves >= 0 else {
            refuse(object, .tooManyChanges)
            return false
        }
        return true
    }

    // MARK: Values

    /// - Returns: `nil` if there are too many.
    mutating func add(_ node: Node) -> Int32? {
        guard nodes.count < maximumNodes, nodes.count < Int(Int32.max) else { return nil }
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

    /// Sets a member of an object.
    mutating func set(_ node: Int32, member name: Int32, to child: Int32) {
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

    mutating func set(_ node: Int32, element index: Int, to child: Int32) {
        nodes[Int(node)].children[index] = child
    }

    mutating func insert(_ node: Int32, element index: Int, _ child: Int32) {
        nodes[Int(node)].children.insert(child, at: index)
    }

    mutating func remove(_ node: Int32, element index: Int) -> Int32 {
        nodes[Int(node)].children.remove(at: index)
    }

    mutating func replace(_ node: Int32, with other: Node) { nodes[Int(node)] = other }
}
