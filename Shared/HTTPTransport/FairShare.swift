/// How much of something that several owners share one of them may hold. Pure.
///
/// An owner may take one more while it holds less than three times of what is free. So one alone gets
/// three quarters, and what is left is there for who comes next, however long the others keep what
/// they have: a provider that does not answer one app must not be in the way of another's. The more
/// an owner holds already, the more has to be free; who holds nothing needs one.
package enum FairShare {
    private static let weight = 3

    /// Whether an owner that holds so many may take one more of those that are free.
    package static func admits(holding: Int, free: Int) -> Bool {
        free > 0 && (holding == 0 || holding < weight * free)
    }

    /// How many more an owner may take at once.
    package static func room(holding: Int, free: Int) -> Int {
        guard free > 0 else { return 0 }
        let room = (weight * free - holding + weight) / (weight + 1)
        return min(free, max(room, holding == 0 ? 1 : 0))
    }
}
