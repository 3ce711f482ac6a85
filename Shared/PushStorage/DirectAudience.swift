import PushCore

/// What the pushes of one batch name one by one, within bounds.
struct DirectAudience {
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
    /// How many deliveries each of the direct ones comes to where all that it names is there once.
    private(set) var expected: [String: Int] = [:]
    /// What the direct ones do to badges, by push.
    private(set) var badgeChanges: [String: [Platform: BadgeChange]] = [:]

    var isEmpty: Bool { direct.isEmpty }

    init(_ pushes: [NewPush], limit: Int, identityLimit: Int) {
        for push in pushes {
            let total = installations.count + identities.count + tokens.count
            if add(push, room: limit - total, identityRoom: identityLimit - identities.count) {
                direct.insert(push.id)
                expected[push.id] = installations.count + identities.count + tokens.count - total
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
    }

    private mutating func add(_ push: NewPush, room: Int, identityRoom: Int) -> Bool {
        // Counted by the planner, and never a delivery.
        if push.request.isDryRun { return false }
        let template = TemplateValues.joined(push.request)
        func named(_ name: String) -> Named {
            Named(pushID: push.id, name: name, templateFields: template)
        }
        switch push.request.audience {
        case .tokens(let list):
            guard list.count <= room else { return false }
            tokens += list.map { Token(pushID: push.id, token: $0) }
            return true
        case .installations(let selectors):
            if selectors.selectsNobody { return true }
            // What narrows another selector goes through the pages' general condition.
            guard selectors.channels == nil, selectors.condition == nil else { return false }
            switch (selectors.installations, selectors.identities) {
            case (let names?, nil):
                guard names.count <= room else { return false }
                installations += names.map(named)
            case (nil, let names?):
                guard names.count <= min(room, identityRoom) else { return false }
                identities += names.map(named)
            case (nil, nil), (.some, .some): return false
            }
            return true
        }
    }
}
