/// What a pattern costs, counted while it is read.
///
/// A step is 10 ns, as of one item tried. Measured beside that: 1 ns for each character that a counted
/// item passes over before it fails, and 0.85 ns for each member of a class that a character beyond
/// U+00FF is compared with; below, PCRE2 looks it up.
struct PatternCost {
    private static let membersPerStep = 12
    private static let charactersPerStep = 10
    /// A character that is compared has two bytes or more.
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

    /// Counts an item that is there so many times at least: each time may be the one that fails.
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
