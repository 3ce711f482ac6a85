/// The pace of one push: `pace` devices a second, evenly, in bursts of a tenth of a second. Pure:
/// no clock; its times are those of a steady clock, which is never set back.
///
/// One process applies one bucket to all shards of a push. The pace holds across replicas too, as a
/// push with a pace has only one claimed shard at a time.
struct PaceBucket: Equatable {
    private static let burstMilliseconds = 100.0

    private var interval = 0.0
    /// The time at which the next device is due if all before it had been sent evenly, in
    /// milliseconds.
    private var next = -Double.infinity

    /// The slowest pace: one device a day.
    private static let slowest = 1.0 / 86_400

    /// - Parameter perSecond: The devices a second; below 1 it is one device in several seconds.
    init(perSecond: Double) { change(perSecond: perSecond) }

    /// Changes the pace from the next device on.
    mutating func change(perSecond: Double) {
        interval = 1000 / max(Self.slowest, perSecond)
    }

    /// Takes as many devices as may be sent now.
    mutating func take(_ count: Int, at now: Int64) -> Int {
        let time = Double(now)
        let free = (time + Self.burstMilliseconds - max(next, time)) / interval
        // At a slow pace the burst is one device.
        let taken = min(count, next <= time ? max(1, Int(free)) : max(0, Int(free)))
        guard taken > 0 else { return 0 }
        next = max(next, time) + Double(taken) * interval
        return taken
    }

    /// Gives back places of devices that were taken last and not sent.
    mutating func giveBack(_ count: Int) { next -= Double(count) * interval }

    /// Reserves the place of the next device.
    ///
    /// - Returns: The milliseconds until the device may be sent to; `nil` for now.
    mutating func reserve(at now: Int64) -> Int64? {
        let time = Double(now)
        let place = max(next, time)
        next = place + interval
        guard place - time > Self.burstMilliseconds else { return nil }
        return Int64(min(place - time, 1e15))
    }
}
