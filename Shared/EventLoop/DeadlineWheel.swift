/// The deadlines of many, in ticks of one timer: to add and to take away cost the same however many
/// there are. Pure: the caller brings the time, and has a timer as long as there is something in
/// here. For what waits in a task of its own there is `EventLoop.sleep`.
///
/// What has a deadline is a number of its owner's, each at most once in here; memory is for the
/// highest number that was.
package struct DeadlineWheel: Sendable {
    private struct Entry {
        var next: Int32 = -1
        var previous: Int32 = -1
        /// Negative: not in here.
        var due: Int64 = -1
    }

    private var entries: ContiguousArray<Entry> = []
    private var heads: ContiguousArray<Int32>
    package private(set) var count = 0
    /// All that was due at this tick or before has been told.
    package private(set) var tick: Int64 = 0

    /// - Parameter buckets: 1 or more. What is due further ahead than so many ticks is looked at
    ///   once in each round.
    package init(buckets: Int = 256) {
        heads = ContiguousArray(repeating: -1, count: max(1, buckets))
    }

    /// Adds a number that is not in here.
    ///
    /// - Parameters:
    ///   - number: 0 or more.
    ///   - due: A tick; one that is over counts as the next one.
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

    /// - Returns: When it was due, where it was in here.
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

    /// Takes out what is due by then, or a part of it.
    ///
    /// - Parameters:
    ///   - now: A tick.
    ///   - limit: At most so many, 1 or more; `tick` says whether that was all.
    /// - Returns: Those that are due, tick by tick where the caller did not sleep for a round.
    package mutating func advance(to now: Int64, atMost limit: Int = .max) -> [Int] {
        guard now > tick else { return [] }
        var due: [Int] = []
        // After a long sleep each bucket is looked at once.
        let first = max(tick + 1, now - Int64(heads.count) + 1)
        for passed in first...now {
            var number = heads[Int(passed % Int64(heads.count))]
            while number >= 0 {
                let entry = entries[Int(number)]
                if entry.due <= now {
                    guard due.count < limit else {
                        // What is left in here is looked at again.
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
