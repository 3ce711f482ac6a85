/// The numbers of requests that wait for a stream. Urgent ones before all others, which get every
/// eighth turn, so that a flood of urgent ones does not end all else. Among either the owners take
/// turns, one request each, so that nobody waits behind another's flood; of one owner first come,
/// first served, and those that come back before those that never left.
struct WaitingLine {
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

    /// The lanes of all owners, and whose turn it is.
    private struct Owners {
        /// By the owner's number.
        private var lanes: ContiguousArray<Lane> = []
        /// Those who have somebody in line, in turn.
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

        /// `mayTake` is asked of one owner after the other, until one may.
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
    /// Since one of the others had its turn.
    private var overtaken = 0
    private var wasOthersTurn = false

    private static let urgentInARow = 7

    private var count: Int { urgent.count + others.count }

    /// Those in line that are still waited for.
    var live: Int { count - gone }

    /// So many that were given up keep their place that it is time for `removeGone`.
    var hasManyGone: Bool { gone > 0 && gone * 2 >= count }

    /// An owner is a small number, given anew once nobody in line has it.
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

    /// One of those in line is not waited for any more; it keeps its place.
    mutating func left() { gone += 1 }

    /// The last one had left before its turn came, which the next one gets.
    mutating func passed() {
        gone -= 1
        if wasOthersTurn { overtaken = Self.urgentInARow }
    }

    /// - Parameter mayTake: Whether an owner may have one more out.
    /// - Returns: Nil where nobody is in line whose owner may.
    mutating func next(where mayTake: (Int) -> Bool) -> Int? {
        wasOthersTurn = overtaken >= Self.urgentInARow && others.count > 0
        if wasOthersTurn, let number = others.next(where: mayTake) {
            overtaken = 0
            return number
        }
        wasOthersTurn = false
        if let number = urgent.next(where: mayTake) {
            if others.count > 0 { overtaken += 1 }
            return number
        }
        overtaken = 0
        return others.next(where: mayTake)
    }

    /// - Returns: Those that had left.
    mutating func removeGone(where isGone: (Int) -> Bool) -> [Int] {
        gone = 0
        return urgent.removeAll(where: isGone) + others.removeAll(where: isGone)
    }
}
