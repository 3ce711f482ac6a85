/// The numbers of requests that wait for a stream. Urgent ones before all others, which get every
/// eighth turn, so that a flood of urgent ones does not end all else; among either first come, first
/// served, and those that come back before those that never left.
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
                    line.removeAll(keepingCapacity: head <= 65_536)
                    head = 0
                } else if head > 65_536 {
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

    private var urgent = Lane()
    private var others = Lane()
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

    mutating func add(_ number: Int, isUrgent: Bool) {
        if isUrgent { urgent.line.append(number) } else { others.line.append(number) }
    }

    mutating func putBack(_ number: Int, isUrgent: Bool) {
        if isUrgent { urgent.back.append(number) } else { others.back.append(number) }
    }

    /// One of those in line is not waited for any more; it keeps its place.
    mutating func left() { gone += 1 }

    /// The last one had left before its turn came, which the next one gets.
    mutating func passed() {
        gone -= 1
        if wasOthersTurn { overtaken = Self.urgentInARow }
    }

    mutating func next() -> Int? {
        wasOthersTurn = overtaken >= Self.urgentInARow && others.count > 0
        if !wasOthersTurn, let number = urgent.next() {
            if others.count > 0 { overtaken += 1 }
            return number
        }
        overtaken = 0
        return others.next()
    }

    /// - Returns: Those that had left.
    mutating func removeGone(where isGone: (Int) -> Bool) -> [Int] {
        gone = 0
        return urgent.removeAll(where: isGone) + others.removeAll(where: isGone)
    }
}
