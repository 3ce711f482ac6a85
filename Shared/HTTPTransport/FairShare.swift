/// The part of a shared resource that one owner may hold. Pure.
///
/// An owner may take one more while it holds less than three times the free number. So a single
/// owner gets at most three quarters. The rest stays free for others, however long the owner holds
/// its part: a provider that does not answer one app must not block other apps. The more an owner
/// already holds, the more must be free; an owner that holds nothing needs one free.
package enum FairShare {
    private static let weight = 3

    /// Whether an owner that holds `holding` may take one more while `free` are free.
    package static func admits(holding: Int, free: Int) -> Bool {
        free > 0 && (holding == 0 || holding < weight * free)
    }

    /// Returns how many more an owner may take at once.
    package static func room(holding: Int, free: Int) -> Int {
        guard free > 0 else { return 0 }
        let room = (weight * free - holding + weight) / (weight + 1)
        return min(free, max(room, holding == 0 ? 1 : 0))
    }
}
