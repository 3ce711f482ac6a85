import EventLoop
import PushStorage
import ServiceKit

/// Who is woken when there is something new: rung from any thread.
struct Bells: Sendable {
    private let loop: EventLoop
    let direct: Bell
    let broadcast: Bell
    let shards: Bell
    let schedules: Bell
    let planning: [AudienceKind: Bell]

    init(on loop: EventLoop) {
        self.loop = loop
        (direct, broadcast) = (Bell(on: loop), Bell(on: loop))
        (shards, schedules) = (Bell(on: loop), Bell(on: loop))
        planning = [.plain: Bell(on: loop), .conditional: Bell(on: loop)]
    }

    /// There may be deliveries or shards to claim.
    func ringForDeliveries() { ring([direct, broadcast, shards]) }

    /// There may be audiences to plan.
    func ringForPlanning() { ring(Array(planning.values)) }

    /// Pushes were released: their devices' rows are due, their audiences are to be planned.
    func ringForReleased() { ring([direct] + planning.values) }

    /// What another replica had may be anybody's now.
    func ringForHandedBack() { ring([direct, broadcast, shards] + planning.values) }

    func ringForShards() { ring([shards]) }

    func ringForSchedules() { ring([schedules]) }

    private func ring(_ bells: [Bell]) {
        loop.execute { for bell in bells { bell.ring() } }
    }
}
