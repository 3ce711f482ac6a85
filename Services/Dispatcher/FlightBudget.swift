/// Which queue a delivery belongs to. Raw values are those of the schema.
enum Lane: Int, CaseIterable, Sendable {
    /// Named one by one: tokens, installations, identities.
    case direct = 0
    /// Of an audience that was planned page by page.
    case broadcast = 1
}

/// How many deliveries this process may own at once: read, waiting, sent or being recorded.
///
/// Promises 7 and 8 in one place: the sum is bounded, a broadcast leaves room for single devices,
/// single devices leave some for broadcasts, and one provider of one app cannot fill it all.
struct FlightBudget {
    /// Whose deliveries compete with each other for one provider client.
    struct Client: Hashable, Sendable {
        var app: String
        var provider: String
    }

    let total: Int
    private let laneLimits: [Int]
    private let directPerClient: Int
    private var inLane = [0, 0]
    private var directOfClient: [Client: Int] = [:]

    /// - Parameter total: `DISPATCH_IN_FLIGHT`, 1 or more.
    init(total: Int) {
        self.total = max(1, total)
        laneLimits = [max(1, self.total * 7 / 8), max(1, self.total / 4)]
        directPerClient = max(1, self.total / 2)
    }

    var owned: Int { inLane[0] + inLane[1] }

    func owned(in lane: Lane) -> Int { inLane[lane.rawValue] }

    /// How many more of a lane may be claimed now.
    func room(in lane: Lane) -> Int {
        // One slot of the total is never the broadcast's, however small the total.
        let reserved = lane == .broadcast && total > 1 ? 1 : 0
        return max(
            0,
            min(laneLimits[lane.rawValue] - inLane[lane.rawValue], total - reserved - owned)
        )
    }

    /// Takes a slot.
    ///
    /// - Returns: `false` when there is none: the delivery goes back, uncounted.
    mutating func admit(_ lane: Lane, _ client: Client) -> Bool {
        guard room(in: lane) > 0 else { return false }
        if lane == .direct {
            let used = directOfClient[client, default: 0]
            guard used < directPerClient else { return false }
            directOfClient[client] = used + 1
        }
        inLane[lane.rawValue] += 1
        return true
    }

    /// Gives back the slot that `admit` took.
    mutating func release(_ lane: Lane, _ client: Client) {
        inLane[lane.rawValue] = max(0, inLane[lane.rawValue] - 1)
        guard lane == .direct, let used = directOfClient[client] else { return }
        directOfClient[client] = used > 1 ? used - 1 : nil
    }
}
