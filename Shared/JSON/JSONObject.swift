/// The members of a JSON object, in the order they came. Of duplicate keys the last value wins, at
/// the place of the first.
///
/// Up to `linearLimit` members a key is found by comparing, which beats hashing; beyond, an index is
/// kept, so a hostile object of many keys costs no quadratic time.
public struct JSONObject: Sendable, Sequence, ExpressibleByDictionaryLiteral {
    public typealias Element = (key: String, value: JSONValue)

    private static var linearLimit: Int { 16 }

    private var entries: [Element] = []
    private var places: [String: Int]?

    public init() {}

    public init(_ members: some Sequence<(String, JSONValue)>) {
        for (key, value) in members { self[key] = value }
    }

    public init(dictionaryLiteral elements: (String, JSONValue)...) { self.init(elements) }

    public var count: Int { entries.count }
    public var isEmpty: Bool { entries.isEmpty }
    public var keys: [String] { entries.map(\.key) }
    public var values: [JSONValue] { entries.map(\.value) }

    public func makeIterator() -> IndexingIterator<[Element]> { entries.makeIterator() }

    public subscript(key: String) -> JSONValue? {
        get {
            guard let place = place(of: key) else { return nil }
            return entries[place].value
        }
        set {
            guard let newValue else {
                removeValue(forKey: key)
                return
            }
            if let place = place(of: key) {
                entries[place].value = newValue
            } else {
                append(key, newValue)
            }
        }
    }

    @discardableResult
    public mutating func removeValue(forKey key: String) -> JSONValue? {
        guard let place = place(of: key) else { return nil }
        let removed = entries.remove(at: place)
        rebuildPlaces()
        return removed.value
    }

    mutating func reserveCapacity(_ count: Int) { entries.reserveCapacity(count) }

    private func place(of key: String) -> Int? {
        if let places { return places[key] }
        for place in entries.indices where entries[place].key == key { return place }
        return nil
    }

    private mutating func append(_ key: String, _ value: JSONValue) {
        entries.append((key, value))
        if places != nil {
            places?[key] = entries.count - 1
        } else if entries.count > Self.linearLimit {
            rebuildPlaces()
        }
    }

    private mutating func rebuildPlaces() {
        guard entries.count > Self.linearLimit else {
            places = nil
            return
        }
        var rebuilt: [String: Int] = [:]
        rebuilt.reserveCapacity(entries.count * 2)
        for (place, entry) in entries.enumerated() { rebuilt[entry.key] = place }
        places = rebuilt
    }
}

extension JSONObject: Equatable {
    /// Whether both hold the same members, in whatever order.
    public static func == (left: JSONObject, right: JSONObject) -> Bool {
        guard left.count == right.count else { return false }
        return left.entries.allSatisfy { right[$0.key] == $0.value }
    }
}
