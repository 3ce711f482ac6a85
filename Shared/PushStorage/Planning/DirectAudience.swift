import PushCore
import Storage

/// The devices and identities that the pushes of one batch name one by one, within bounds.
struct DirectAudience {
    /// The most devices of one batch that are planned at once. The rest is planned page by page.
    static let limit = 10_000

    struct Named {
        let pushID: String
        let name: String
        /// The fields of the push's placeholders, as `TemplateValues.joined` returns them.
        let templateFields: String?
    }

    struct Token {
        let pushID: String
        let token: PushRequest.DirectToken
    }

    private(set) var installations: [Named] = []
    private(set) var identities: [Named] = []
    private(set) var tokens: [Token] = []
    /// The installations of pushes that name so many devices that these become a shard
    /// (`NamedShards`).
    private(set) var chosenInstallations: [Named] = []
    private(set) var chosenIdentities: [Named] = []
    /// The pushes whose devices become a shard.
    private(set) var chosen: Set<String> = []
    /// The pushes whose devices become rows at once, even if they name no device.
    private(set) var direct: Set<String> = []
    /// The pushes that are planned page by page.
    private(set) var paged: Set<String> = []
    /// The pushes that name too many devices, in whatever way, and so become broadcasts.
    private(set) var large: Set<String> = []
    /// The number of deliveries of each direct push if every name that it lists exists exactly once.
    private(set) var expected: [String: Int] = [:]
    /// The badge changes of the direct pushes, by push.
    private(set) var badgeChanges: [String: [Platform: BadgeChange]] = [:]

    var isEmpty: Bool { direct.isEmpty && chosen.isEmpty }

    /// Divides the pushes by how they are planned.
    ///
    /// - Parameters:
    ///   - pushes: The batch.
    ///   - members: The devices of the identities; `nil` if all pushes are planned page by page.
    ///   - areZoned: Whether the devices are due by their zones; then they always become rows.
    init(_ pushes: [NewPush], _ members: MemberCounts?, areZoned: Bool = false) {
        var total = 0
        for push in pushes {
            guard let members else {
                paged.insert(push.id)
                if !push.request.isDryRun { large.insert(push.id) }
                continue
            }
            let count = Self.devices(of: push.request, members.counts[push.id])
            if count ?? .max > Self.limit, !push.request.isDryRun { large.insert(push.id) }
            let identities = identities.count + chosenIdentities.count
            if let count, count <= Self.limit - total,
                !areZoned, push.prefersShard || count > NewPush.fewDevices,
                choose(push, identities)
            {
                chosen.insert(push.id)
                total += count
            } else if let count, count <= Self.limit - total, add(push, identities) {
                direct.insert(push.id)
                expected[push.id] = count
                total += count
                let changes = push.request.badgeChanges
                if !changes.isEmpty { badgeChanges[push.id] = changes }
            } else {
                paged.insert(push.id)
            }
        }
    }

    /// Drops all pushes except `pushIDs`.
    mutating func keep(only pushIDs: Set<String>) {
        guard !direct.union(paged).union(chosen).isSubset(of: pushIDs) else { return }
        installations.removeAll { !pushIDs.contains($0.pushID) }
        identities.removeAll { !pushIDs.contains($0.pushID) }
        tokens.removeAll { !pushIDs.contains($0.pushID) }
        chosenInstallations.removeAll { !pushIDs.contains($0.pushID) }
        chosenIdentities.removeAll { !pushIDs.contains($0.pushID) }
        chosen.formIntersection(pushIDs)
        direct.formIntersection(pushIDs)
        paged.formIntersection(pushIDs)
        large.formIntersection(pushIDs)
    }

    /// Returns the number of devices that a push names, directly or by identities; `nil` if they
    /// are too many to be planned at once.
    private static func devices(of request: PushRequest, _ members: Int?) -> Int? {
        switch request.audience {
        case .tokens(let list): return list.count
        case .topic: return 0
        case .installations(let selectors):
            if selectors.selectsNothing { return 0 }
            guard selectors.identities != nil else { return selectors.installations?.count ?? 0 }
            return members.flatMap { $0 <= MemberCounts.limit ? $0 : nil }
        }
    }

    private enum Names {
        case installations([Named])
        case identities([Named])
    }

    /// Returns the names of a push that has only one selector. If a second selector narrows the
    /// first, the push is planned page by page with a general condition.
    ///
    /// - Parameters:
    ///   - push: The push.
    ///   - count: The number of identities that the batch has already.
    /// - Returns: `nil` if it has another selector, or too many identities.
    private static func names(of push: NewPush, beside count: Int) -> Names? {
        guard case .installations(let selectors) = push.request.audience,
            selectors.channels == nil, selectors.condition == nil
        else { return nil }
        let template = TemplateValues.joined(push.request)
        func named(_ name: String) -> Named {
            Named(pushID: push.id, name: name, templateFields: template)
        }
        switch (selectors.installations, selectors.identities) {
        case (let names?, nil): return .installations(names.map(named))
        case (nil, let names?) where names.count <= MemberCounts.identityLimit - count:
            return .identities(names.map(named))
        default: return nil
        }
    }

    /// Adds the devices of a push as a shard, if they can be one.
    private mutating func choose(_ push: NewPush, _ identities: Int) -> Bool {
        guard push.canBeShard, let names = Self.names(of: push, beside: identities) else {
            return false
        }
        switch names {
        case .installations(let names): chosenInstallations += names
        case .identities(let names): chosenIdentities += names
        }
        return true
    }

    /// Adds the devices of a push as rows.
    private mutating func add(_ push: NewPush, _ identities: Int) -> Bool {
        // The planner only counts the audience of a dry run, which has no deliveries.
        if push.request.isDryRun { return false }
        // The due times of a spread push are set page by page.
        if push.request.spreadMilliseconds != nil { return false }
        switch push.request.audience {
        case .tokens(let list):
            tokens += list.map { Token(pushID: push.id, token: $0) }
            return true
        // The topic's subscribers are one delivery, and the other devices are a broadcast.
        case .topic: return false
        case .installations(let selectors):
            if selectors.selectsNothing { return true }
            switch Self.names(of: push, beside: identities) {
            case .installations(let names): installations += names
            case .identities(let names): self.identities += names
            case nil: return false
            }
            return true
        }
    }
}
