/// The cost of a pattern, counted while it is parsed.
///
/// A step is 10 ns, the time of trying one item. Measured in addition: 1 ns for each character that
/// a counted item passes over before it fails, and 0.85 ns for each member of a class that a
/// character beyond U+00FF is compared with; below, PCRE2 looks it up.
struct PatternCost {
    private static let membersPerStep = 12
    private static let charactersPerStep = 10
    /// The least bytes of a compared character.
    private static let bytesPerCharacter = 2

    private(set) var foldedCharacters = 0
    private(set) var stepsPerByte = 1
    private(set) var itemCosts: [UInt8] = []

    /// Counts a class.
    ///
    /// - Parameters:
    ///   - item: Where it begins.
    ///   - members: How many of its members are compared one by one.
    ///   - folded: How many characters are looked up for their other case.
    mutating func count(classAt item: Int, members: Int, folded: Int) {
        foldedCharacters += folded
        stepsPerByte = max(
            stepsPerByte,
            1 + members / (Self.membersPerStep * Self.bytesPerCharacter)
        )
        set(1 + members / Self.membersPerStep, at: item)
    }

    /// Counts an item with at least so many repeats: each may be the one that fails.
    mutating func count(itemAt item: Int, members: Int, repeats: Int) {
        set(
            repeats * (1 + members * Self.charactersPerStep / Self.membersPerStep)
                / Self.charactersPerStep,
            at: item
        )
    }

    private mutating func set(_ steps: Int, at item: Int) {
        guard steps > 1 else { return }
        let power = UInt8(Int.bitWidth - (steps - 1).leadingZeroBitCount)
        if itemCosts.count <= item {
            itemCosts += [UInt8](repeating: 0, count: item + 1 - itemCosts.count)
        }
        itemCosts[item] = max(itemCosts[item], power)
    }
}
