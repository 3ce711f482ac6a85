/// A map from strings, compared by their bytes, to values; see `ExactString`.
public struct ExactStringMap<Value>: Sequence, ExpressibleByDictionaryLiteral {
    private var entries: [ExactString: Value] = [:]

    public typealias Element = (key: String, value: Value)

    public init() {}

    public init(dictionaryLiteral elements: (String, Value)...) {
        for (key, value) in elements { entries[ExactString(key)] = value }
    }

    /// Groups the values of each key, in their order.
    public init<Member>(
        grouping members: some Sequence<Member>,
        by key: (Member) throws -> String
    ) rethrows where Value == [Member] {
        entries = try Dictionary(grouping: members) { ExactString(try key($0)) }
    }

    /// Makes a map; `combine` merges the values of a duplicate key.
    public init(
        _ members: some Sequence<(String, Value)>,
        uniquingKeysWith combine: (Value, Value) throws -> Value
    ) rethrows {
        entries = try Dictionary(
            members.lazy.map { (ExactString($0.0), $0.1) },
            uniquingKeysWith: combine
        )
    }

    public var count: Int { entries.count }
    public var isEmpty: Bool { entries.isEmpty }
    public var keys: some Sequence<String> { entries.keys.lazy.map(\.text) }
    public var values: Dictionary<ExactString, Value>.Values { entries.values }

    public subscript(key: String) -> Value? {
        get { entries[ExactString(key)] }
        _modify { yield &entries[ExactString(key)] }
    }

    public subscript(key: String, default value: @autoclosure () -> Value) -> Value {
        get { entries[ExactString(key)] ?? value() }
        _modify { yield &entries[ExactString(key), default: value()] }
    }

    @discardableResult
    public mutating func updateValue(_ value: Value, forKey key: String) -> Value? {
        entries.updateValue(value, forKey: ExactString(key))
    }

    @discardableResult
    public mutating func removeValue(forKey key: String) -> Value? {
        entries.removeValue(forKey: ExactString(key))
    }

    public mutating func removeAll() { entries.removeAll() }

    public func mapValues<Other>(_ make: (Value) throws -> Other) rethrows -> ExactStringMap<Other>
    {
        var result = ExactStringMap<Other>()
        for (key, value) in entries { result[key.text] = try make(value) }
        return result
    }

    public func filter(_ isKept: (Element) throws -> Bool) rethrows -> ExactStringMap {
        var result = ExactStringMap()
        result.entries = try entries.filter { try isKept((key: $0.key.text, value: $0.value)) }
        return result
    }

    public struct Iterator: IteratorProtocol {
        fileprivate var entries: Dictionary<ExactString, Value>.Iterator

        public mutating func next() -> Element? {
            guard let (key, value) = entries.next() else { return nil }
            return (key: key.text, value: value)
        }
    }

    public func makeIterator() -> Iterator { Iterator(entries: entries.makeIterator()) }

    /// Returns the entries in the order of the keys' bytes.
    public func sortedByKey() -> [Element] { sorted { $0.key.precedes($1.key) } }
}

extension ExactStringMap: Sendable where Value: Sendable {}
extension ExactStringMap: Equatable where Value: Equatable {}
extension ExactStringMap: Hashable where Value: Hashable {}
