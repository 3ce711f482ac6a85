import PushCore
import PushProviders
import PushStorage

/// Why a batch of members was not sent whole.
enum MembersStop: Equatable {
    /// The flight budget, or its provider's share of it, is used up.
    case noRoom
    /// The provider is ill: not before then.
    case ill(until: Instant)
    /// The app's credentials must be read again.
    case unready
}

/// What became of a batch of members in the turn in which it was to be sent.
struct MembersSent {
    /// One that ended without being sent.
    struct Ended {
        let position: Int
        let platform: Platform
        let end: DeliveryEnd
    }

    /// How many need not be offered again.
    var count = 0
    /// Why not all were sent.
    var stop: MembersStop?
    private(set) var ended: [Ended] = []

    init(stop: MembersStop? = nil) { self.stop = stop }

    mutating func end(
        _ member: ShardMember,
        at position: Int,
        _ end: DeliveryEnd
    ) {
        ended.append(
            Ended(position: position, platform: member.delivery.device.provider, end: end)
        )
    }
}

/// Whose members are sent: what they share, and who hears how they end. Confined to the loop.
protocol MemberSource: AnyObject, Sendable {
    var app: String { get }
    var session: Int { get }
    var context: PushContext { get }
    /// The session is lost: nobody cares any more.
    var isDropped: Bool { get }
    func health(of platform: Platform) -> OwnedDelivery.Health
    /// The first member of another platform or environment that was read behind a position.
    func other(than device: DeviceTarget, behind position: Int) -> Int?
    /// `nil` where it has left the window.
    func member(at position: Int) -> ShardMember?
    func ended(_ position: Int, _ end: DeliveryEnd, at platform: Platform)
}
