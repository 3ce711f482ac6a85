/// The members of a JSON object, in the order they came. Of duplicate keys the last value wins, at
/// the place of the first. Keys are the same when their bytes are, as everyone else takes JSON, not
/// when Unicode finds them equivalent.
///
/// Up to `linearLimit` members a key is found by comparing, which beats hashing; beyond, an index is
/// kept, so a hostile object of many keys costs no quadratic time.
public struct JSONObject: Sendable, Sequence, ExpressibleByDictionaryLiteral {
    public typealias Element = (key: String, value: JSONValue)

    private static var linearLimit: Int { 16 }

    private var entries: [Element] = []
    private var places: [ExactKey: Int]?

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
        let key = ExactKey(text: key)
        if let places { return places[key] }
        for place in entries.indices where ExactKey(text: entries[place].key) == key {
            return place
        }
        return nil
    }

    private mutating func append(_ key: String, _ value: JSONValue) {
        entries.append((key, value))
        if places != nil {
            places?[ExactKey(text: key)] = entries.count - 1
        } else if entries.count > Self.linearLimit {
            rebuildPlaces()
        }
    }

    private mutating func rebuildPlaces() {
        guard entries.count > Self.linearLimit else {
            places = nil
            return
        }
        var rebuilt: [ExactKey: Int] = [:]
        rebuilt.reserveCapacity(entries.count * 2)
        for (place, entry) in entries.enumerated() { rebuilt[ExactKey(text: entry.key)] = place }
        places = rebuilt
    }
}

/// A text that equals another when its bytes do.
private struct ExactKey: Hashable {
    let text: String

    /// Swift's own comparison is the faster one, and tells apart almost all that differ.
    static func == (left: ExactKey, right: ExactKey) -> Bool {
        left.text == right.text
            && (left.text.utf8.count == right.text.utf8.count
                && left.text.utf8.elementsEqual(right.text.utf8))
    }

    /// What has the same bytes is equivalent too, and so has the same hash.
    func hash(into hasher: inout Hasher) { hasher.combine(text) }
}

extension JSONObject: Equatable {
    /// Whether both hold the same members, in whatever order.
    public static func == (left: JSONObject, right: JSONObject) -> Bool {
        guard left.count == right.count else { return false }
        return left.entries.allSatisfy { right[$0.key] == $0.value }
    }
}
