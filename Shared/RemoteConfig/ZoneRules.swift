internal import PushCore

/// The clock changes of one time zone: an instant's offset, and the instant of a local time.
///
/// Reads the second form of TZif (RFC 8536): the list of changes, and the rule for all times after
/// the last of them.
struct ZoneRules: Sendable {
    static let gmt = ZoneRules(changes: [], first: 0, rule: .init(standard: 0, summer: nil))

    /// The changes in seconds since 1970, ascending, with the offset from then on.
    private let changes: [(at: Int64, offset: Int64)]
    /// The offset before the first change.
    private let first: Int64
    /// The rule after the last change.
    private let rule: YearlyRule?

    private init(changes: [(at: Int64, offset: Int64)], first: Int64, rule: YearlyRule?) {
        self.changes = changes
        self.first = first
        self.rule = rule
    }

    /// - Returns: `nil` if it is not such a file.
    init?(_ file: [UInt8]) {
        var reader = BytesReader(file)
        guard let old = reader.zoneHeader(),
            // The first form, with numbers of 32 bits, is skipped.
            reader.skip(old.bytes(ofTime: 4)), let header = reader.zoneHeader()
        else { return nil }
        var times: [Int64] = []
        for _ in 0..<header.changes {
            guard let time = reader.integer(8) else { return nil }
            times.append(time)
        }
        guard let kinds = reader.bytes(header.changes) else { return nil }
        var offsets: [Int64] = []
        for _ in 0..<header.kinds {
            guard let offset = reader.integer(4), abs(offset) < 100_000, reader.skip(2) else {
                return nil
            }
            offsets.append(offset)
        }
        guard reader.skip(header.names + header.leaps * 12 + header.standards + header.universals),
            let earliest = offsets.first
        else { return nil }
        var changes: [(at: Int64, offset: Int64)] = []
        for (time, kind) in zip(times, kinds) {
            guard offsets.indices.contains(Int(kind)) else { return nil }
            changes.append((time, offsets[Int(kind)]))
        }
        self.changes = changes
        first = earliest
        rule = YearlyRule(reader.footer())
    }

    /// Returns the seconds east of Greenwich at this number of seconds since 1970.
    func offset(at time: Int64) -> Int64 {
        guard let last = changes.last else { return rule?.offset(at: time) ?? first }
        if time >= last.at { return rule?.offset(at: time) ?? last.offset }
        var low = 0
        var high = changes.count
        while low < high {
            let middle = (low + high) / 2
            if changes[middle].at <= time { low = middle + 1 } else { high = middle }
        }
        return low == 0 ? first : changes[low - 1].offset
    }

    /// Returns the instant at which the clocks of this zone show a time. If they show it twice,
    /// returns the first instant. A time that they skip is computed with the offset before the
    /// change.
    func instant(of time: LocalDateTime) -> Instant {
        let shown = time.inUTC.seconds
        let day: Int64 = 86_400
        let before = offset(at: shown - day)
        let after = offset(at: shown + day)
        let offset =
            offset(at: shown - before) != before && offset(at: shown - after) == after
            ? after : before
        return time.inUTC.adding(milliseconds: -offset * 1000)
    }
}

private struct ZoneHeader {
    let universals: Int
    let standards: Int
    let leaps: Int
    let changes: Int
    let kinds: Int
    let names: Int

    func bytes(ofTime size: Int) -> Int {
        changes * (size + 1) + kinds * 6 + names + leaps * (size + 4) + standards + universals
    }
}

private struct BytesReader {
    private let source: [UInt8]
    private var place = 0

    init(_ source: [UInt8]) { self.source = source }

    mutating func skip(_ count: Int) -> Bool {
        guard count <= source.count - place else { return false }
        place += count
        return true
    }

    mutating func bytes(_ count: Int) -> ArraySlice<UInt8>? {
        guard skip(count) else { return nil }
        return source[place - count..<place]
    }

    /// Reads an integer of 4 or 8 bytes in network order.
    mutating func integer(_ count: Int) -> Int64? {
        guard let bytes = bytes(count) else { return nil }
        let value = bytes.reduce(0 as UInt64) { $0 << 8 | UInt64($1) }
        return count == 4 ? Int64(Int32(truncatingIfNeeded: value)) : Int64(bitPattern: value)
    }

    mutating func zoneHeader() -> ZoneHeader? {
        guard let mark = bytes(4), mark.elementsEqual("TZif".utf8), skip(16) else { return nil }
        var counts: [Int] = []
        for _ in 0..<6 {
            guard let count = integer(4), (0...100_000).contains(count) else { return nil }
            counts.append(Int(count))
        }
        return ZoneHeader(
            universals: counts[0],
            standards: counts[1],
            leaps: counts[2],
            changes: counts[3],
            kinds: counts[4],
            names: counts[5]
        )
    }

    /// Returns the text between the last two line ends.
    func footer() -> ArraySlice<UInt8> {
        source[place...].dropFirst().prefix { $0 != UInt8(ascii: "\n") }
    }
}
