/// A set of strings, compared by their bytes; see `ExactString`.
public struct ExactStringSet: Hashable, Sendable, Sequence, ExpressibleByArrayLiteral {
    private var texts: Set<ExactString> = []

    public init() {}

    public init(_ texts: some Sequence<String>) {
        self.texts = Set(texts.lazy.map { ExactString($0) })
    }

    public init(arrayLiteral elements: String...) { self.init(elements) }

    public var count: Int { texts.count }
    public var isEmpty: Bool { texts.isEmpty }

    public func contains(_ text: String) -> Bool { texts.contains(ExactString(text)) }

    @discardableResult
    public mutating func insert(_ text: String) -> (inserted: Bool, memberAfterInsert: String) {
        let (inserted, member) = texts.insert(ExactString(text))
        return (inserted, member.text)
    }

    @discardableResult
    public mutating func remove(_ text: String) -> String? { texts.remove(ExactString(text))?.text }

    public mutating func formUnion(_ others: some Sequence<String>) {
        for text in others { texts.insert(ExactString(text)) }
    }

    public func union(_ others: some Sequence<String>) -> ExactStringSet {
        var result = self
        result.formUnion(others)
        return result
    }

    public mutating func subtract(_ others: some Sequence<String>) {
        for text in others { texts.remove(ExactString(text)) }
    }

    public func subtracting(_ others: some Sequence<String>) -> ExactStringSet {
        var result = self
        result.subtract(others)
        return result
    }

    public func intersection(_ others: ExactStringSet) -> ExactStringSet {
        var result = self
        result.texts.formIntersection(others.texts)
        return result
    }

    public func isSuperset(of others: ExactStringSet) -> Bool { texts.isSuperset(of: others.texts) }

    public func isSubset(of others: ExactStringSet) -> Bool { texts.isSubset(of: others.texts) }

    public func isDisjoint(with others: some Sequence<String>) -> Bool {
        !others.contains { contains($0) }
    }

    public mutating func removeAll() { texts.removeAll() }

    /// Returns the strings in the order of their bytes.
    public func sorted() -> [String] { sortedByBytes() }

    public struct Iterator: IteratorProtocol, Sendable {
        fileprivate var texts: Set<ExactString>.Iterator

        public mutating func next() -> String? { texts.next()?.text }
    }

    public func makeIterator() -> Iterator { Iterator(texts: texts.makeIterator()) }
}
