/// How many devices there are behind the identities that pushes name, as far as that matters: who has
/// more than `limit` is sent to as a broadcast is, page by page.
struct MemberCounts {
    /// Devices behind the identities of one push that are planned at once.
    static let limit = 1000
    /// In one transaction.
    static let together = 2000

    /// By push; none for what names no identities, or too many of them.
    let counts: [String: Int]

    /// What is planned in one transaction, the first in any case; and the rest.
    func firstPortion(of pushes: [NewPush]) -> (now: [NewPush], later: [NewPush]) {
        var (now, later): ([NewPush], [NewPush]) = ([], [])
        var total = 0
        for push in pushes {
            let count = counts[push.id] ?? 0
            // What is planned page by page costs nothing here.
            let weight = count <= Self.limit ? count : 0
            if total + weight > Self.together {
                later.append(push)
            } else {
                total += weight
                now.append(push)
            }
        }
        return (now, later)
    }
}
