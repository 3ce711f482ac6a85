/// The numbers of requests that wait for a stream. First come, first served, and those that come
/// back before all others.
struct WaitingLine {
    private var line: ContiguousArray<Int> = []
    private var head = 0
    private var back: [Int] = []
    private var gone = 0

    /// Those in line, with those that have run out of time there.
    var count: Int { line.count - head + back.count }
    var live: Int { count - gone }

    mutating func add(_ number: Int) { line.append(number) }

    mutating func putBack(_ number: Int) { back.append(number) }

    /// One of those in line is not waited for any more; it keeps its place.
    mutating func left() { gone += 1 }

    /// One that had left came to its turn.
    mutating func passed() { gone -= 1 }

    var first: Int? { back.last ?? (head < line.count ? line[head] : nil) }

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

    mutating func takeAll() -> [Int] {
        defer { self = WaitingLine() }
        return back.reversed() + line[head...]
    }
}
