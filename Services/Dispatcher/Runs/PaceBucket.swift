/// The pace of one push: `pace` devices a second, evenly, with a tenth of a second's worth at once.
/// Pure: no clock; its times are those of a steady one, which is never set back.
///
/// One process keeps the pace for all shards of a push. Across replicas it holds because a push with a
/// pace has only one shard claimed at a time.
struct PaceBucket: Equatable {
    private static let burstMilliseconds = 100.0

    private var interval = 0.0
    /// The time at which the next one is due, as if all before had been sent evenly. Milliseconds.
    private var next = -Double.infinity

    /// The slowest pace: one a day.
    private static let slowest = 1.0 / 86_400

    /// - Parameter perSecond: Less than one is one in several seconds.
    init(perSecond: Double) { change(perSecond: perSecond) }

    /// Changes the pace from the next device on.
    mutating func change(perSecond: Double) {
        interval = 1000 / max(Self.slowest, perSecond)
    }

    /// Takes as many devices as may be sent now.
    mutating func take(_ count: Int, at now: Int64) -> Int {
        let time = Double(now)
        let free = (time + Self.burstMilliseconds - max(next, time)) / interval
        // At a slow pace the burst is one.
        let taken = min(count, next <= time ? max(1, Int(free)) : max(0, Int(free)))
        guard taken > 0 else { return 0 }
        next = max(next, time) + Double(taken) * interval
        return taken
    }

    /// Gives back devices that were taken last and not sent.
    mutating func giveBack(_ count: Int) { next -= Double(count) * interval }

    /// Reserves the next free place.
    ///
    /// - Returns: The milliseconds until it may be sent; `nil` for now.
    mutating func reserve(at now: Int64) -> Int64? {
        let time = Double(now)
        let place = max(next, time)
        next = place + interval
        guard place - time > Self.burstMilliseconds else { return nil }
        return Int64(min(place - time, 1e15))
    }
}
