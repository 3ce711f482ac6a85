import EventLoop
import PushCore
import PushStorage
import ServiceKit

/// The wake-ups of the claiming parts. They can be signalled from any thread.
struct WakeUps: Sendable {
    private let loop: EventLoop
    let direct: WakeUp
    let broadcast: WakeUp
    let shards: [Lane: WakeUp]
    let schedules: WakeUp
    let planning: [AudienceKind: WakeUp]

    init(on loop: EventLoop) {
        self.loop = loop
        (direct, broadcast) = (WakeUp(on: loop), WakeUp(on: loop))
        shards = [.direct: WakeUp(on: loop), .broadcast: WakeUp(on: loop)]
        schedules = WakeUp(on: loop)
        planning = [.plain: WakeUp(on: loop), .conditional: WakeUp(on: loop)]
    }

    /// Wakes the parts that claim deliveries and shards.
    func wakeForDeliveries() { signal([direct, broadcast] + shards.values) }

    /// Wakes the planners.
    func wakeForPlanning() { signal(Array(planning.values)) }

    /// Wakes the sweeper and the planners after scheduled pushes were released: rows are due, and
    /// audiences must be planned.
    func wakeForReleased() { signal([direct] + planning.values) }

    /// Wakes all claiming parts: another replica released rows, shards and plans.
    func wakeForReleasedClaims() { signal([direct, broadcast] + shards.values + planning.values) }

    func wakeForShards() { signal(Array(shards.values)) }

    func wakeForSchedules() { signal([schedules]) }

    private func signal(_ wakeUps: [WakeUp]) {
        loop.execute { for wakeUp in wakeUps { wakeUp.signal() } }
    }
}
