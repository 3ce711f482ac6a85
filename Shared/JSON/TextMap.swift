/// Values by texts, each of which is itself by its bytes; see `ExactText`.
public struct TextMap<Value>: Sequence, ExpressibleByDictionaryLiteral {
    private var entries: [ExactText: Value] = [:]

    public typealias Element = (key: String, value: Value)

    public init() {}

    public init(dictionaryLiteral elements: (String, Value)...) {
        for (key, value) in elements { entries[ExactText(key)] = value }
    }

    /// The values of each key in their order.
    public init<Member>(
        grouping members: some Sequence<Member>,
        by key: (Member) throws -> String
    ) rethrows where Value == [Member] {
        entries = try Dictionary(grouping: members) { ExactText(try key($0)) }
    }

    /// Of a key that comes twice the value that `combine` makes of both.
    public init(
        _ members: some Sequence<(String, Value)>,
        uniquingKeysWith combine: (Value, Value) throws -> Value
    ) rethrows {
        entries = try Dictionary(
            members.lazy.map { (ExactText($0.0), $0.1) },
            uniquingKeysWith: combine
        )
    }

    public var count: Int { entries.count }
    public var isEmpty: Bool { entries.isEmpty }
    public var keys: some Sequence<String> { entries.keys.lazy.map(\.text) }
    public var values: Dictionary<ExactText, Value>.Values { entries.values }

    public subscript(key: String) -> Value? {
        get { entries[ExactText(key)] }
        _modify { yield &entries[ExactText(key)] }
    }

    public subscript(key: String, default value: @autoclosure () -> Value) -> Value {
        get { entries[ExactText(key)] ?? value() }
        _modify { yield &entries[ExactText(key), default: value()] }
    }

    @discardableResult
    public mutating func updateValue(_ value: Value, forKey key: String) -> Value? {
        entries.updateValue(value, forKey: ExactText(key))
    }

    @discardableResult
    public mutating func removeValue(forKey key: String) -> Value? {
        entries.removeValue(forKey: ExactText(key))
    }

    public mutating func removeAll() { entries.removeAll() }

    public func mapValues<Other>(_ make: (Value) throws -> Other) rethrows -> TextMap<Other> {
        var result = TextMap<Other>()
        for (key, value) in entries { result[key.text] = try make(value) }
        return result
    }

    public func filter(_ isKept: (Element) throws -> Bool) rethrows -> TextMap {
        var result = TextMap()
        result.entries = try entries.filter { try isKept((key: $0.key.text, value: $0.value)) }
        return result
    }

    public struct Iterator: IteratorProtocol {
        fileprivate var entries: Dictionary<ExactText, Value>.Iterator

        public mutating func next() -> Element? {
            guard let (key, value) = entries.next() else { return nil }
            return (key: key.text, value: value)
        }
    }

    public func makeIterator() -> Iterator { Iterator(entries: entries.makeIterator()) }

    /// In the order of the keys' bytes.
    public func sortedByKey() -> [Element] { sorted { $0.key.precedes($1.key) } }
}

extension TextMap: Sendable where Value: Sendable {}
extension TextMap: Equatable where Value: Equatable {}
extension TextMap: Hashable where Value: Hashable {}
