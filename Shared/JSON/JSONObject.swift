/// The members of a JSON object, in their order. Of duplicate keys the last value wins, at the
/// place of the first. Keys are compared by bytes, as in other JSON software, not by Unicode
/// equivalence.
///
/// With up to `linearLimit` members, a key is found by comparing, which is faster than hashing.
/// With more, there is an index, so that a hostile object of many keys costs no quadratic time. In
/// an object with an index, a removed member leaves a hole. Holes are closed once they are the
/// greater part, so that removing all members one by one is linear, too.
public struct JSONObject: Sendable, Sequence, ExpressibleByDictionaryLiteral {
    public typealias Element = (key: String, value: JSONValue)

    private static var linearLimit: Int { 16 }

    /// If there is an index, an entry that is not at its indexed place is a hole.
    private var entries: [Element] = []
    private var places: [ExactString: Int]?

    public init() {}

    public init(_ members: some Sequence<(String, JSONValue)>) {
        for (key, value) in members { self[key] = value }
    }

    public init(dictionaryLiteral elements: (String, JSONValue)...) { self.init(elements) }

    public var count: Int { places?.count ?? entries.count }
    public var isEmpty: Bool { count == 0 }
    public var keys: [String] { map(\.key) }
    public var values: [JSONValue] { map(\.value) }
    public var underestimatedCount: Int { count }

    public struct Iterator: IteratorProtocol, Sendable {
        fileprivate let entries: [JSONObject.Element]
        /// `nil` if there are no holes.
        fileprivate let places: [ExactString: Int]?
        fileprivate var place = 0

        public mutating func next() -> JSONObject.Element? {
            while place < entries.count {
                let entry = entries[place]
                place += 1
                guard let places, places[ExactString(entry.key)] != place - 1 else { return entry }
            }
            return nil
        }
    }

    public func makeIterator() -> Iterator {
        Iterator(entries: entries, places: count == entries.count ? nil : places)
    }

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
            if places != nil {
                put(newValue, forIndexed: key)
            } else if let place = place(of: key) {
                entries[place].value = newValue
            } else {
                entries.append((key, newValue))
                if entries.count > Self.linearLimit { indexPlaces() }
            }
        }
    }

    /// Sets a value. A missing key, as most are while parsing, is hashed only once.
    private mutating func put(_ value: JSONValue, forIndexed key: String) {
        guard let place = places?.updateValue(entries.count, forKey: ExactString(key)) else {
            entries.append((key, value))
            return
        }
        places?[ExactString(key)] = place
        entries[place].value = value
    }

    @discardableResult
    public mutating func removeValue(forKey key: String) -> JSONValue? {
        guard let place = place(of: key) else { return nil }
        guard places != nil else { return entries.remove(at: place).value }
        let removed = entries[place].value
        entries[place].value = .null
        places?[ExactString(key)] = nil
        if count < entries.count / 2 {
            entries = Array(self)
            indexPlaces()
        }
        return removed
    }

    mutating func reserveCapacity(_ count: Int) { entries.reserveCapacity(count) }

    private func place(of key: String) -> Int? {
        if let places { return places[ExactString(key)] }
        for place in entries.indices where entries[place].key.isSame(as: key) { return place }
        return nil
    }

    private mutating func indexPlaces() {
        guard entries.count > Self.linearLimit else {
            places = nil
            return
        }
        var index: [ExactString: Int] = [:]
        index.reserveCapacity(entries.count * 2)
        for (place, entry) in entries.enumerated() {
            index[ExactString(entry.key)] = place
        }
        places = index
    }
}

extension JSONObject: Equatable {
    /// Whether both have the same members, in any order.
    public static func == (left: JSONObject, right: JSONObject) -> Bool {
        guard left.count == right.count else { return false }
        return left.allSatisfy { right[$0.key] == $0.value }
    }
}
