/// How fast one push may go: `pace` devices a second, evenly, with a tenth of a second's worth at
/// once. Pure: no clock; its times are those of a steady one, which nobody sets back.
///
/// One process keeps it for all shards of a push. Across replicas it holds because a push with a
/// pace has one shard claimed at a time.
struct PaceBucket: Equatable {
    private static let burstMilliseconds = 100.0

    private var interval = 0.0
    /// When the next one is due, had all before been sent evenly. Milliseconds.
    private var next = -Double.infinity

    /// Slower is as slow as this: one a day.
    private static let slowest = 1.0 / 86_400

    /// - Parameter perSecond: Less than one is one in several seconds.
    init(perSecond: Double) { change(perSecond: perSecond) }

    /// From the next one on.
    mutating func change(perSecond: Double) {
        interval = 1000 / max(Self.slowest, perSecond)
    }

    /// Takes as many as may go now.
    mutating func take(_ count: Int, at now: Int64) -> Int {
        let time = Double(now)
        let free = (time + Self.burstMilliseconds - max(next, time)) / interval
        // At a slow pace the burst is one.
        let taken = min(count, next <= time ? max(1, Int(free)) : max(0, Int(free)))
        guard taken > 0 else { return 0 }
        next = max(next, time) + Double(taken) * interval
        return taken
    }

    /// Gives back what was taken last and not sent.
    mutating func giveBack(_ count: Int) { next -= Double(count) * interval }

    /// Takes the next place there is.
    ///
    /// - Returns: How many milliseconds later it may go; `nil`: now.
    mutating func reserve(at now: Int64) -> Int64? {
        let time = Double(now)
        let place = max(next, time)
        next = place + interval
        guard place - time > Self.burstMilliseconds else { return nil }
        return Int64(min(place - time, 1e15))
    }
}
