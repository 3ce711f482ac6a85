/// A timer wheel: the deadlines of many numbers, in ticks of one timer; adding and removing cost
/// the same however many there are. Pure: the caller passes the time, and runs a timer while the
/// wheel is not empty. A task that waits uses `EventLoop.sleep`.
///
/// The owner chooses the numbers; each is at most once in the wheel. The memory grows with the
/// highest number so far.
package struct DeadlineWheel: Sendable {
    private struct Entry {
        var next: Int32 = -1
        var previous: Int32 = -1
        /// Negative: not in the wheel.
        var due: Int64 = -1
    }

    private var entries: ContiguousArray<Entry> = []
    private var heads: ContiguousArray<Int32>
    package private(set) var count = 0
    /// The tick up to which all due numbers were returned.
    package private(set) var tick: Int64 = 0

    /// - Parameter buckets: 1 or more. A number that is due more ticks ahead than there are buckets
    ///   is visited once in each round.
    package init(buckets: Int = 256) {
        heads = ContiguousArray(repeating: -1, count: max(1, buckets))
    }

    /// Adds a number that is not in the wheel.
    ///
    /// - Parameters:
    ///   - number: 0 or more.
    ///   - due: A tick; a past tick counts as the next tick.
    package mutating func add(_ number: Int, due: Int64) {
        while entries.count <= number { entries.append(Entry()) }
        let due = max(due, tick + 1)
        let bucket = Int(due % Int64(heads.count))
        let next = heads[bucket]
        entries[number] = Entry(next: next, previous: -1, due: due)
        if next >= 0 { entries[Int(next)].previous = Int32(number) }
        heads[bucket] = Int32(number)
        count += 1
    }

    /// - Returns: When it was due, if it was in the wheel.
    @discardableResult
    package mutating func remove(_ number: Int) -> Int64? {
        guard number < entries.count, entries[number].due >= 0 else { return nil }
        let entry = entries[number]
        if entry.previous >= 0 {
            entries[Int(entry.previous)].next = entry.next
        } else {
            heads[Int(entry.due % Int64(heads.count))] = entry.next
        }
        if entry.next >= 0 { entries[Int(entry.next)].previous = entry.previous }
        entries[number] = Entry()
        count -= 1
        return entry.due
    }

    /// Makes a number due at this tick if it is in the wheel and due earlier.
    package mutating func putOff(_ number: Int, until due: Int64) {
        guard number < entries.count, entries[number].due >= 0, entries[number].due < due else {
            return
        }
        remove(number)
        add(number, due: due)
    }

    /// Removes the numbers that are due, or a part of them.
    ///
    /// - Parameters:
    ///   - now: A tick.
    ///   - limit: The most numbers to remove, 1 or more; `tick` then shows whether these were all.
    /// - Returns: The due numbers, tick by tick unless the caller slept for a whole round.
    package mutating func advance(to now: Int64, atMost limit: Int = .max) -> [Int] {
        guard now > tick else { return [] }
        var due: [Int] = []
        // After a long sleep each bucket is visited once.
        let first = max(tick + 1, now - Int64(heads.count) + 1)
        for passed in first...now {
            var number = heads[Int(passed % Int64(heads.count))]
            while number >= 0 {
                let entry = entries[Int(number)]
                if entry.due <= now {
                    guard due.count < limit else {
                        // The rest of this bucket is visited again.
                        tick = max(tick, passed - 1)
                        return due
                    }
                    due.append(Int(number))
                    remove(Int(number))
                }
                number = entry.next
            }
        }
        tick = now
        return due
    }
}
