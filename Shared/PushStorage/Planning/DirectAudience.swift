import PushCore

/// What the pushes of one batch name one by one, within bounds.
struct DirectAudience {
    /// Devices of one batch that are planned at once; what is more is planned page by page.
    static let limit = 10_000

    struct Named {
        let pushID: String
        let name: String
        /// What the push has placeholders for, as `TemplateValues.joined` has it.
        let templateFields: String?
    }

    struct Token {
        let pushID: String
        let token: PushRequest.DirectToken
    }

    private(set) var installations: [Named] = []
    private(set) var identities: [Named] = []
    private(set) var tokens: [Token] = []
    /// The pushes that are planned at once, even where they name nobody.
    private(set) var direct: Set<String> = []
    /// The pushes that are planned page by page.
    private(set) var paged: Set<String> = []
    /// Those of them that are broadcasts, however they name their devices: they are too many.
    private(set) var large: Set<String> = []
    /// How many deliveries each of the direct ones comes to where all that it names is there once.
    private(set) var expected: [String: Int] = [:]
    /// What the direct ones do to badges, by push.
    private(set) var badgeChanges: [String: [Platform: BadgeChange]] = [:]

    var isEmpty: Bool { direct.isEmpty }

    /// `members` are those behind the identities; `nil`: all pushes are planned page by page.
    init(_ pushes: [NewPush], _ members: MemberCounts?) {
        var total = 0
        for push in pushes {
            guard let members else {
                paged.insert(push.id)
                if !push.request.isDryRun { large.insert(push.id) }
                continue
            }
            let count = Self.devices(of: push.request, members.counts[push.id])
            if count ?? .max > Self.limit, !push.request.isDryRun { large.insert(push.id) }
            if let count, count <= Self.limit - total,
                add(push, identityRoom: MemberCounts.identityLimit - identities.count)
            {
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

    /// Drops the others.
    mutating func keep(only pushIDs: Set<String>) {
        guard !direct.union(paged).isSubset(of: pushIDs) else { return }
        installations.removeAll { !pushIDs.contains($0.pushID) }
        identities.removeAll { !pushIDs.contains($0.pushID) }
        tokens.removeAll { !pushIDs.contains($0.pushID) }
        direct.formIntersection(pushIDs)
        paged.formIntersection(pushIDs)
        large.formIntersection(pushIDs)
    }

    /// How many devices a push names, or are behind the identities that it names; `nil`: more than
    /// are planned at once.
    private static func devices(of request: PushRequest, _ members: Int?) -> Int? {
        switch request.audience {
        case .tokens(let list): return list.count
        case .topic: return 0
        case .installations(let selectors):
            if selectors.selectsNobody { return 0 }
            guard selectors.identities != nil else { return selectors.installations?.count ?? 0 }
            return members.flatMap { $0 <= MemberCounts.limit ? $0 : nil }
        }
    }

    private mutating func add(_ push: NewPush, identityRoom: Int) -> Bool {
        // Counted by the planner, and never a delivery.
        if push.request.isDryRun { return false }
        // Laid over its time page by page.
        if push.request.spreadMilliseconds != nil { return false }
        let template = TemplateValues.joined(push.request)
        func named(_ name: String) -> Named {
            Named(pushID: push.id, name: name, templateFields: template)
        }
        switch push.request.audience {
        case .tokens(let list):
            tokens += list.map { Token(pushID: push.id, token: $0) }
            return true
        // Its subscribers are one delivery, and the others a broadcast.
        case .topic: return false
        case .installations(let selectors):
            if selectors.selectsNobody { return true }
            // What narrows another selector goes through the pages' general condition.
            guard selectors.channels == nil, selectors.condition == nil else { return false }
            switch (selectors.installations, selectors.identities) {
            case (let names?, nil):
                installations += names.map(named)
            case (nil, let names?):
                guard names.count <= identityRoom else { return false }
                identities += names.map(named)
            case (nil, nil), (.some, .some): return false
            }
            return true
        }
    }
}
