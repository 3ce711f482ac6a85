internal import EventLoop
internal import HTTP2

/// The requests of a pool, from `send` to their end: each is queued, or in flight on a stream.
/// Pure: times are passed in, and ended requests are returned, for their owner to be notified.
///
/// A number identifies a request in the table. It stays used for as long as a stream or the queue
/// has it, even if the request is not awaited any more.
struct RequestTable {
    /// Requests that were sent together. They stay in memory until the last of them has ended.
    final class Batch {
        let requests: HTTP2.RequestBatch
        let owner: ObjectIdentifier?
        /// The time since which its requests wait for a stream, if that is measured.
        let since: ContinuousClock.Instant?
        private let completion: HTTP2Pool.Completion

        init(
            _ requests: HTTP2.RequestBatch,
            of owner: ObjectIdentifier?,
            since: ContinuousClock.Instant?,
            _ completion: @escaping HTTP2Pool.Completion
        ) {
            self.requests = requests
            self.owner = owner
            self.since = since
            self.completion = completion
        }

        fileprivate func complete(
            _ index: Int,
            _ result: Result<HTTP2Response, HTTPTransportError>
        ) {
            completion(index, result)
        }
    }

    /// An ended request; its result is still to be reported, once.
    struct Ended {
        fileprivate let batch: Batch
        fileprivate let index: Int

        func tell(_ result: Result<HTTP2Response, HTTPTransportError>) {
            batch.complete(index, result)
        }
    }

    struct Place {
        let connection: Int
        let stream: Int32
        let sentAt: Int64
    }

    private struct Entry {
        /// Nil if the request is not awaited any more.
        var batch: Batch?
        var index = 0
        var owner = 0
        /// Negative while it is queued.
        var sentAt: Int64 = -1
        var connection = 0
        var stream: Int32 = 0
        /// The ticks that it has at least from a start on, up to `latest`.
        var leastTicks: Int64 = 0
        /// The last tick at which it may be due.
        var latest: Int64 = 0
        var refusals: Int32 = 0
        var isUrgent = false
        var isWithdrawn = false

        var place: Place? {
            sentAt < 0 ? nil : Place(connection: connection, stream: stream, sentAt: sentAt)
        }
    }

    /// An owner with requests in the table.
    private struct Owner {
        var id: ObjectIdentifier?
        /// The numbers that its requests use, and one for each `enter` without a `leave`.
        var numbers = 0
        /// How many of its requests have a stream.
        var streams = 0
    }

    private var entries: ContiguousArray<Entry> = []
    private var free: [Int] = []
    private var owners: ContiguousArray<Owner> = []
    private var ownerNumbers: [ObjectIdentifier?: Int] = [:]
    private var freeOwners: [Int] = []
    private var line = RequestQueue()
    private var wheel = DeadlineWheel()
    /// The awaited requests in flight, by their connection.
    private var out: [Int: Int] = [:]

    /// Returns the number of awaited requests in flight on a connection.
    func awaited(on connection: Int) -> Int { out[connection] ?? 0 }

    /// Changes the number of awaited requests on a connection; the only place that does.
    private mutating func count(_ change: Int, on connection: Int) {
        let count = awaited(on: connection) + change
        out[connection] = count == 0 ? nil : count
    }

    /// Whether more requests are due by this tick than have been ended.
    func hasDue(by tick: Int64) -> Bool { wheel.count > 0 && wheel.tick < tick }

    /// The awaited requests.
    var count: Int { wheel.count }

    /// The awaited requests that are queued.
    var waiting: Int { line.live }

    // MARK: In and through

    /// Queues a request.
    ///
    /// - Parameters:
    ///   - batch: Its batch.
    ///   - index: Its index in the batch.
    ///   - owner: The number from `enter`.
    ///   - isUrgent: Whether it overtakes queued requests that are not.
    ///   - due: The tick after which it is not awaited any more.
    ///   - leastTicks: The ticks that it has at least once it is started, as much beyond `due`.
    mutating func add(
        _ batch: Batch,
        _ index: Int,
        of owner: Int,
        isUrgent: Bool,
        due: Int64,
        leastTicks: Int64
    ) {
        let entry = Entry(
            batch: batch,
            index: index,
            owner: owner,
            leastTicks: leastTicks,
            latest: due + leastTicks,
            isUrgent: isUrgent
        )
        line.add(insert(entry, due: due), of: owner, isUrgent: isUrgent)
    }

    /// Returns the number by which an owner's requests are added, until `leave`.
    mutating func enter(_ id: ObjectIdentifier?) -> Int {
        let number = ownerNumber(id)
        owners[number].numbers += 1
        return number
    }

    mutating func leave(_ owner: Int) {
        owners[owner].numbers -= 1
        guard owners[owner].numbers == 0 else { return }
        ownerNumbers[owners[owner].id] = nil
        freeOwners.append(owner)
    }

    private mutating func ownerNumber(_ id: ObjectIdentifier?) -> Int {
        if let known = ownerNumbers[id] { return known }
        let number = freeOwners.popLast() ?? owners.count
        if number == owners.count { owners.append(Owner()) }
        owners[number] = Owner(id: id)
        ownerNumbers[id] = number
        return number
    }

    private mutating func insert(_ entry: Entry, due: Int64) -> Int {
        let number = free.popLast() ?? entries.count
        if number == entries.count { entries.append(entry) } else { entries[number] = entry }
        owners[entry.owner].numbers += 1
        wheel.add(number, due: due)
        return number
    }

    /// Frees a number that neither a stream nor the queue has any more.
    private mutating func release(_ number: Int) {
        let owner = entries[number].owner
        if entries[number].sentAt >= 0 { owners[owner].streams -= 1 }
        leave(owner)
        free.append(number)
    }

    /// Takes the next request out of the queue, for `started`, `putBack` or `end`.
    ///
    /// - Parameter freeStreams: The number of free streams; an owner gets its fair share of them.
    ///   Requests without an owner are not limited.
    /// - Returns: Nil if no request waits that may be sent.
    mutating func next(freeStreams: Int) -> Int? {
        while let number = line.next(where: { [owners] owner in
            owners[owner].id == nil
                || FairShare.admits(holding: owners[owner].streams, free: freeStreams)
        }) {
            if entries[number].batch != nil { return number }
            line.passed()
            release(number)
        }
        return nil
    }

    /// Whether the request is awaited.
    func isAwaited(_ number: Int) -> Bool { entries[number].batch != nil }

    /// Whether the request was in flight when its owner withdrew, so that it must not be sent
    /// again.
    func isWithdrawn(_ number: Int) -> Bool { entries[number].isWithdrawn }

    /// Returns the batch and index of an awaited request.
    func batch(of number: Int) -> (Batch, index: Int)? {
        entries[number].batch.map { ($0, entries[number].index) }
    }

    /// Notes that a request has a stream. If it has waited long for it, it is due later: a slow answer
    /// would come too late, and its owner would send the request twice.
    mutating func started(
        _ number: Int,
        connection: Int,
        stream: Int32,
        at now: Int64,
        tick: Int64
    ) {
        if entries[number].sentAt < 0 { owners[entries[number].owner].streams += 1 }
        let least = tick + entries[number].leastTicks
        wheel.putOff(number, until: min(least, entries[number].latest))
        count(1, on: connection)
        entries[number].connection = connection
        entries[number].stream = stream
        entries[number].sentAt = now
    }

    /// Notes that the peer refused the stream without processing it.
    ///
    /// - Returns: How often that has happened to the request.
    mutating func refused(_ number: Int) -> Int {
        entries[number].refusals += 1
        return Int(entries[number].refusals)
    }

    mutating func putBack(_ number: Int) {
        let entry = entries[number]
        if entry.sentAt >= 0 {
            owners[entry.owner].streams -= 1
            count(-1, on: entry.connection)
        }
        entries[number].sentAt = -1
        line.putBack(number, of: entry.owner, isUrgent: entry.isUrgent)
    }

    // MARK: Ends

    /// Ends a request that neither a stream nor the queue has any more.
    ///
    /// - Returns: Nil if it was not awaited.
    mutating func end(_ number: Int) -> Ended? {
        defer { release(number) }
        return forget(number)
    }

    /// Stops awaiting a request; its number stays used.
    private mutating func forget(_ number: Int) -> Ended? {
        guard let batch = entries[number].batch.take() else { return nil }
        wheel.remove(number)
        if let place = entries[number].place { count(-1, on: place.connection) }
        return Ended(batch: batch, index: entries[number].index)
    }

    /// Ends the queued requests.
    mutating func endWaiting() -> [Ended] {
        var ended: [Ended] = []
        while let number = next(freeStreams: .max / 4) {
            if let one = end(number) { ended.append(one) }
        }
        return ended
    }

    /// Ends the requests that are due by this tick, at most `limit`, and returns their streams.
    mutating func expire(to tick: Int64, atMost limit: Int) -> [(ended: Ended, place: Place?)] {
        var expired: [(ended: Ended, place: Place?)] = []
        for number in wheel.advance(to: tick, atMost: limit) {
            let place = entries[number].place
            guard let ended = forget(number) else { continue }
            if place == nil { line.left() }
            expired.append((ended, place))
        }
        sweep()
        return expired
    }

    /// Ends the queued requests, and the requests in flight that can be recalled.
    ///
    /// - Parameters:
    ///   - owner: Their owner; nil for all.
    ///   - recall: Whether a request in flight will certainly never be sent.
    /// - Returns: The ended requests.
    mutating func withdraw(of owner: ObjectIdentifier?, recall: (Place) -> Bool) -> [Ended] {
        var withdrawn: [Ended] = []
        for number in entries.indices {
            guard let batch = entries[number].batch, owner == nil || batch.owner == owner else {
                continue
            }
            if let place = entries[number].place {
                guard recall(place) else {
                    entries[number].isWithdrawn = true
                    continue
                }
            } else {
                line.left()
            }
            if let ended = forget(number) { withdrawn.append(ended) }
        }
        sweep()
        return withdrawn
    }

    /// Moves the requests of a connection that can be recalled back to the queue. Each request gets
    /// a new number, as its stream has the old number until the stream ends.
    ///
    /// - Returns: How many.
    mutating func putBackAll(from connection: Int, recall: (Place) -> Bool) -> Int {
        var moved = 0
        // The last request is put back first, so that their order is preserved.
        let numbers = entries.indices.filter {
            entries[$0].batch != nil && entries[$0].place?.connection == connection
        }
        for number in numbers.sorted(by: { entries[$0].stream > entries[$1].stream }) {
            var entry = entries[number]
            guard let place = entry.place, recall(place), let due = wheel.remove(number)
            else { continue }
            entries[number].batch = nil
            count(-1, on: connection)
            entry.sentAt = -1
            line.putBack(insert(entry, due: due), of: entry.owner, isUrgent: entry.isUrgent)
            moved += 1
        }
        return moved
    }

    /// Removes abandoned requests, so that they do not fill a queue that does not move.
    private mutating func sweep() {
        guard line.hasManyGone else { return }
        for number in line.removeGone(where: { entries[$0].batch == nil }) { release(number) }
    }
}
