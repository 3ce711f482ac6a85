/// A queue of requests that wait for a stream. Urgent ones go first; the others get every eighth
/// turn, so that they are not starved. In both groups the owners take turns, one request each, so
/// that one owner's flood does not delay another; within one owner first come, first served, and
/// returned requests come before the others.
struct RequestQueue {
    private struct Lane {
        var line: ContiguousArray<Int> = []
        var head = 0
        var back: [Int] = []

        var count: Int { line.count - head + back.count }

        mutating func next() -> Int? {
            if let number = back.popLast() { return number }
            guard head < line.count else { return nil }
            defer {
                head += 1
                if head == line.count {
                    line.removeAll(keepingCapacity: head <= 8192)
                    head = 0
                } else if head > 8192, head * 2 > line.count {
                    line.removeFirst(head)
                    head = 0
                }
            }
            return line[head]
        }

        mutating func removeAll(where isGone: (Int) -> Bool) -> [Int] {
            let gone = back.filter(isGone) + line[head...].filter(isGone)
            back.removeAll(where: isGone)
            line.removeFirst(head)
            line.removeAll(where: isGone)
            head = 0
            return gone
        }
    }

    /// The lanes of all owners, and the owner whose turn it is.
    private struct Owners {
        /// Indexed by the owner's number.
        private var lanes: ContiguousArray<Lane> = []
        /// The owners with waiting requests, in turn.
        private var turns: ContiguousArray<Int> = []
        private var turn = 0
        private(set) var count = 0

        mutating func add(_ number: Int, of owner: Int, comesBack: Bool = false) {
            while lanes.count <= owner { lanes.append(Lane()) }
            if lanes[owner].count == 0 { turns.append(owner) }
            if comesBack {
                lanes[owner].back.append(number)
            } else {
                lanes[owner].line.append(number)
            }
            count += 1
        }

        /// Returns the next request; `mayTake` is called with one owner after the other, until it
        /// is true.
        mutating func next(where mayTake: (Int) -> Bool) -> Int? {
            for _ in 0..<turns.count {
                if turn >= turns.count { turn = 0 }
                let owner = turns[turn]
                guard mayTake(owner), let number = lanes[owner].next() else {
                    turn += 1
                    continue
                }
                count -= 1
                if lanes[owner].count == 0 { turns.remove(at: turn) } else { turn += 1 }
                return number
            }
            return nil
        }

        mutating func removeAll(where isGone: (Int) -> Bool) -> [Int] {
            var gone: [Int] = []
            for owner in turns { gone += lanes[owner].removeAll(where: isGone) }
            turns.removeAll { lanes[$0].count == 0 }
            count -= gone.count
            return gone
        }
    }

    private var urgent = Owners()
    private var others = Owners()
    private var gone = 0
    /// The urgent requests taken since the last non-urgent one.
    private var overtaken = 0
    private var lastTurnWasOthers = false

    private static let urgentInARow = 7

    private var count: Int { urgent.count + others.count }

    /// The queued requests that are still awaited.
    var live: Int { count - gone }

    /// Whether so many abandoned requests are queued that `removeGone` is due.
    var hasManyGone: Bool { gone > 0 && gone * 2 >= count }

    /// Queues a request. An owner is a small number, reused once it has no queued request.
    mutating func add(_ number: Int, of owner: Int, isUrgent: Bool) {
        if isUrgent { urgent.add(number, of: owner) } else { others.add(number, of: owner) }
    }

    mutating func putBack(_ number: Int, of owner: Int, isUrgent: Bool) {
        if isUrgent {
            urgent.add(number, of: owner, comesBack: true)
        } else {
            others.add(number, of: owner, comesBack: true)
        }
    }

    /// Notes that a queued request is not awaited any more; it stays in the queue.
    mutating func left() { gone += 1 }

    /// Notes that the request that `next` returned was not awaited any more; the next request gets
    /// its turn.
    mutating func passed() {
        gone -= 1
        if lastTurnWasOthers { overtaken = Self.urgentInARow }
    }

    /// - Parameter mayTake: Whether an owner may have one more in flight.
    /// - Returns: Nil if no queued request has an owner that may.
    mutating func next(where mayTake: (Int) -> Bool) -> Int? {
        lastTurnWasOthers = overtaken >= Self.urgentInARow && others.count > 0
        if lastTurnWasOthers, let number = others.next(where: mayTake) {
            overtaken = 0
            return number
        }
        lastTurnWasOthers = false
        if let number = urgent.next(where: mayTake) {
            if others.count > 0 { overtaken += 1 }
            return number
        }
        overtaken = 0
        return others.next(where: mayTake)
    }

    /// - Returns: The removed requests.
    mutating func removeGone(where isGone: (Int) -> Bool) -> [Int] {
        gone = 0
        return urgent.removeAll(where: isGone) + others.removeAll(where: isGone)
    }
}
