import PushCore
import PushProviders
import PushStorage

/// Slots that a batch was granted and has not used, by platform.
struct MemberSlots {
    var free = Array(repeating: 0, count: Platform.allCases.count)
}

/// The members of one batch that leave the same way. A reference, as it is looked at for each of
/// them.
final class MemberRoute {
    enum Way {
        case client(any ProviderClient, PayloadTemplate)
        case none(Refusal)
    }

    struct Refusal: Error {
        let reason: String
    }

    let platform: Platform
    private let environment: PushEnvironment
    private let apnsTopic: String?
    /// Of the push's languages.
    private let variant: String?
    let way: Way
    /// What all devices get, where they get the same.
    private let shared: RenderedPayload?
    let health: OwnedDelivery.Health
    var positions: [Int] = []
    var notifications: [OutgoingNotification] = []

    /// As many as the batch may have, at once.
    init(
        _ delivery: Delivery,
        _ variant: String?,
        way: Way,
        health: OwnedDelivery.Health,
        room: Int
    ) {
        // Topics that no credential has are as many as devices care to name.
        if case .client = way {
            positions.reserveCapacity(room)
            notifications.reserveCapacity(room)
        }
        platform = delivery.device.provider
        environment = delivery.device.environment
        apnsTopic = delivery.apnsTopic
        self.variant = variant
        self.way = way
        self.health = health
        if case .client(_, let template) = way, !template.isPersonal {
            shared = try? template.payload()
        } else {
            shared = nil
        }
    }

    func payload(of member: ShardMember) -> Result<RenderedPayload, Refusal> {
        if let shared { return .success(shared) }
        switch way {
        case .none(let refusal): return .failure(refusal)
        case .client(_, let template):
            do {
                return .success(
                    try template.payload(
                        values: member.delivery.values,
                        badge: member.delivery.badge
                    )
                )
            } catch {
                return .failure(Refusal(reason: error.description))
            }
        }
    }

    func takes(_ member: ShardMember, _ variant: String?) -> Bool {
        platform == member.delivery.device.provider
            && environment == member.delivery.device.environment
            && apnsTopic == member.delivery.apnsTopic
            && self.variant == variant
    }
}

/// The ways of one batch: as many as there are environments, topics and languages, which are few.
struct MemberRoutes {
    let room: Int
    var all: [MemberRoute] = []
    private var last = 0

    init(room: Int) { self.room = room }

    mutating func index(of member: ShardMember, _ variant: String?) -> Int? {
        if last < all.count, all[last].takes(member, variant) { return last }
        guard let index = all.firstIndex(where: { $0.takes(member, variant) }) else { return nil }
        last = index
        return index
    }

    mutating func add(_ route: MemberRoute) -> Int {
        all.append(route)
        last = all.count - 1
        return last
    }
}
