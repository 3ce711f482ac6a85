/// A set of texts, each of which is itself by its bytes; see `ExactText`.
public struct TextSet: Hashable, Sendable, Sequence, ExpressibleByArrayLiteral {
    private var texts: Set<ExactText> = []

    public init() {}

    public init(_ texts: some Sequence<String>) {
        self.texts = Set(texts.lazy.map { ExactText($0) })
    }

    public init(arrayLiteral elements: String...) { self.init(elements) }

    public var count: Int { texts.count }
    public var isEmpty: Bool { texts.isEmpty }

    public func contains(_ text: String) -> Bool { texts.contains(ExactText(text)) }

    @discardableResult
    public mutating func insert(_ text: String) -> (inserted: Bool, memberAfterInsert: String) {
        let (inserted, member) = texts.insert(ExactText(text))
        return (inserted, member.text)
    }

    @discardableResult
    public mutating func remove(_ text: String) -> String? { texts.remove(ExactText(text))?.text }

    public mutating func formUnion(_ others: some Sequence<String>) {
        for text in others { texts.insert(ExactText(text)) }
    }

    public func union(_ others: some Sequence<String>) -> TextSet {
        var result = self
        result.formUnion(others)
        return result
    }

    public mutating func subtract(_ others: some Sequence<String>) {
        for text in others { texts.remove(ExactText(text)) }
    }

    public func subtracting(_ others: some Sequence<String>) -> TextSet {
        var result = self
        result.subtract(others)
        return result
    }

    public func intersection(_ others: TextSet) -> TextSet {
        var result = self
        result.texts.formIntersection(others.texts)
        return result
    }

    public func isSuperset(of others: TextSet) -> Bool { texts.isSuperset(of: others.texts) }

    public func isSubset(of others: TextSet) -> Bool { texts.isSubset(of: others.texts) }

    public func isDisjoint(with others: some Sequence<String>) -> Bool {
        !others.contains { contains($0) }
    }

    public mutating func removeAll() { texts.removeAll() }

    /// In the order of their bytes.
    public func sorted() -> [String] { sortedByBytes() }

    public struct Iterator: IteratorProtocol, Sendable {
        fileprivate var texts: Set<ExactText>.Iterator

        public mutating func next() -> String? { texts.next()?.text }
    }

    public func makeIterator() -> Iterator { Iterator(texts: texts.makeIterator()) }
}
