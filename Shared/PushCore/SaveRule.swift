package import JSON

/// The rule by which a save finds its installation; each surface has its own. Pure: it decides
/// among candidate installations.
///
/// A token belongs to only one installation: no two installations of an app have the same token of
/// one provider in one environment. An environment that is not named counts as equal to any.
package enum SaveRule: Sendable, Equatable {
    /// A save without an object id finds the installation with its `installationId` or its token.
    /// An installation that loses its token or `installationId` to a save is deleted, as a token is
    /// one device.
    case leanCloud
    /// The rule of Parse Server. Each call has the caller's id, which replaces a missing
    /// `installationId` unless the master key was sent. That id is used only for finding and is
    /// never stored, as a device may save other installations.
    case parse(callerInstallationID: String?, isMaster: Bool)
    /// Azure's installations are found only by their id. A channel belongs to the installation that
    /// named it last.
    case azure
}

/// The names in a save, before any lookup of existing installations.
package struct SaveRequest: Sendable, Equatable {
    package var rule: SaveRule
    /// The object id that the save names; `nil` if it names none.
    package var objectID: String?
    /// The keys in the body.
    package var keys: Installation.Keys

    package init(rule: SaveRule, objectID: String? = nil, keys: Installation.Keys) {
        self.rule = rule
        self.objectID = objectID
        self.keys = keys
        guard case .parse = rule else { return }
        self.keys.installationID = keys.installationID?.lowercased()
        self.keys.deviceToken = keys.deviceToken.map(Installation.Keys.parseToken)
    }
}

/// The installation that a save changes, and the installations that it replaces.
package struct SaveDecision: Sendable, Equatable {
    package enum Target: Sendable, Equatable {
        case create
        case update(objectID: String)
        /// The named object does not exist.
        case unknown
    }

    package var target: Target
    /// The object ids of the installations that it replaces: they are deleted.
    package var replaced: [String] = []
}

/// The fate of an installation that lost its token or `installationId` to another.
package enum Displacement: Sendable, Equatable {
    case deleted
    /// The installation stays without a route until its device sends a token again.
    case withoutRoute
}

extension SaveRequest {
    /// The `installationId` by which the save finds its installation. The stored one is that of the
    /// body.
    package var effectiveInstallationID: String? {
        if let id = keys.installationID { return id }
        guard case .parse(let caller?, isMaster: false) = rule, !caller.isEmpty else { return nil }
        return caller.lowercased()
    }

    /// - Parameter known: Installations of the app. Installations that have none of the keys are
    ///   ignored.
    /// - Returns: The installation to save, and the installations that it replaces.
    /// - Throws: `InstallationError` for a save that the rule forbids.
    package func decide(
        among known: [Installation]
    ) throws(InstallationError) -> SaveDecision {
        switch rule {
        case .leanCloud:
            if let objectID { return named(objectID, among: known) }
            return SaveDecision(target: leanCloudTarget(among: known))
        case .parse: return try decideAsParse(among: known)
        case .azure:
            if let objectID { return named(objectID, among: known) }
            let holder = known.first {
                $0.installationID != nil && $0.installationID.isSame(as: keys.installationID)
            }
            return SaveDecision(target: holder.map { .update(objectID: $0.objectID) } ?? .create)
        }
    }

    /// Returns the other installations that must be deleted or lose their route, given the
    /// installation that is saved.
    package func displaced(
        by kept: Installation,
        among known: [Installation]
    ) -> [(objectID: String, Displacement)] {
        known.compactMap { other in
            guard other.app == kept.app, other.objectID != kept.objectID else { return nil }
            if other.installationID != nil, other.installationID.isSame(as: kept.installationID) {
                return (other.objectID, .deleted)
            }
            guard other.token != nil, !other.isTemplateOnly, !kept.isTemplateOnly,
                other.sharesRoute(with: kept)
            else { return nil }
            switch rule {
            case .leanCloud: return (other.objectID, .deleted)
            case .parse: return (other.objectID, .withoutRoute)
            case .azure:
                // An installation without an id was identified only by its channel.
                return (other.objectID, other.installationID == nil ? .deleted : .withoutRoute)
            }
        }
    }

    private func named(_ objectID: String, among known: [Installation]) -> SaveDecision {
        let isKnown = known.contains { $0.objectID == objectID }
        return SaveDecision(target: isKnown ? .update(objectID: objectID) : .unknown)
    }

    /// Finds the installation by its `installationId`, else by its token. A record that has the
    /// token and no `installationId` is the older record of the same device, and is kept.
    private func leanCloudTarget(among known: [Installation]) -> SaveDecision.Target {
        let byID = known.first {
            $0.installationID != nil && $0.installationID.isSame(as: keys.installationID)
        }
        let byToken = known.filter { $0.holds(keys) }
        if let byID {
            let others = byToken.filter { $0.objectID != byID.objectID }
            if byID.token == nil, others.count == 1, others[0].installationID == nil {
                return .update(objectID: others[0].objectID)
            }
            return .update(objectID: byID.objectID)
        }
        // If the save names no environment, two installations may have the token. The one in
        // production comes first.
        let holder =
            byToken.first { $0.environment == keys.environment }
            ?? byToken.first { $0.environment == .production } ?? byToken.first
        guard let holder else { return .create }
        // The holder has another `installationId`, so the token has moved to another device: the
        // old installation is deleted.
        let isSame = holder.installationID == nil || keys.installationID == nil
        return isSame ? .update(objectID: holder.objectID) : .create
    }
}

// MARK: Parse

extension SaveRequest {
    /// The most installations with one `deviceToken` that no provider reaches: a phone does not
    /// create more.
    package static let maximumHolders = 100

    private func decideAsParse(
        among known: [Installation]
    ) throws(InstallationError) -> SaveDecision {
        let id = effectiveInstallationID
        var match: Installation?
        if let objectID {
            guard let named = known.first(where: { $0.objectID == objectID }) else {
                return SaveDecision(target: .unknown)
            }
            try refuseChangesOfIdentity(of: named)
            match = named
        } else if keys.deviceToken == nil, id == nil {
            throw InstallationError(code: 135, "deviceToken or installationId must be given")
        }
        if let id, let own = known.first(where: { $0.installationID.isSame(as: id) }) {
            match = own
        }
        let holders = known.filter { $0.names(keys) }
        guard holders.count <= Self.maximumHolders else {
            throw InstallationError(code: 132, "too many installations have the deviceToken")
        }
        if let match { return merged(match, with: holders) }
        return try placed(among: holders, id)
    }

    private func refuseChangesOfIdentity(of named: Installation) throws(InstallationError) {
        let (id, ownID) = (keys.installationID, named.installationID)
        if let id, let ownID, !id.isSame(as: ownID) {
            throw InstallationError(code: 136, "installationId may not be changed")
        }
        if let token = keys.deviceToken, let own = named.deviceToken, id == nil, ownID == nil,
            !token.isSame(as: Installation.Keys.parseToken(own))
        {
            throw InstallationError(code: 136, "deviceToken may not be changed")
        }
        if let type = keys.deviceType, !type.isSame(as: named.deviceType) {
            throw InstallationError(code: 136, "deviceType may not be changed")
        }
    }

    /// Decides if there is an installation with the id.
    private func merged(_ match: Installation, with holders: [Installation]) -> SaveDecision {
        let others = holders.filter { $0.objectID != match.objectID }
        if holders.count == 1, others.count == 1, others[0].installationID == nil {
            return SaveDecision(
                target: .update(objectID: others[0].objectID),
                replaced: [match.objectID]
            )
        }
        // Only a client that sends the id in the body may replace its older installations.
        guard keys.installationID != nil, !match.deviceToken.isSame(as: keys.deviceToken) else {
            return SaveDecision(target: .update(objectID: match.objectID))
        }
        return SaveDecision(
            target: .update(objectID: match.objectID),
            replaced: others.filter(isOfSameApp).map(\.objectID)
        )
    }

    /// Decides if no installation has the id, or the save has none.
    private func placed(
        among holders: [Installation],
        _ id: String?
    ) throws(InstallationError) -> SaveDecision {
        guard let first = holders.first else {
            guard keys.deviceType != nil else {
                throw InstallationError(code: 135, "deviceType must be given")
            }
            return SaveDecision(target: .create)
        }
        if holders.count == 1, first.installationID == nil || id == nil {
            return SaveDecision(target: .update(objectID: first.objectID))
        }
        guard keys.installationID != nil else {
            throw InstallationError(
                code: 132,
                "installationId must be given where several installations have the deviceToken"
            )
        }
        guard keys.deviceType != nil else {
            throw InstallationError(code: 135, "deviceType must be given")
        }
        return SaveDecision(
            target: .create,
            replaced: holders.filter(isOfSameApp).map(\.objectID)
        )
    }

    private func isOfSameApp(_ other: Installation) -> Bool {
        keys.appIdentifier == nil
            || other.fields["appIdentifier"]?.string.isSame(as: keys.appIdentifier) ?? false
    }
}

extension Installation {
    /// The token as the client sent it, even if none of our providers reaches the device.
    package var deviceToken: String? { fields["deviceToken"]?.string }

    /// Whether it has exactly the route of these keys.
    func holds(_ keys: Keys) -> Bool {
        !isTemplateOnly && token != nil && token == keys.token && platform == keys.platform
            && environment.canEqual(keys.environment)
    }

    /// Whether it has the token of these keys, as a route or only as a field.
    fileprivate func names(_ keys: Keys) -> Bool {
        if holds(keys) { return true }
        guard !isTemplateOnly, let wanted = keys.deviceToken, let own = deviceToken else {
            return false
        }
        return Keys.parseToken(own).isSame(as: wanted) && environment.canEqual(keys.environment)
    }

    fileprivate func sharesRoute(with other: Installation) -> Bool {
        token == other.token && platform == other.platform
            && environment.canEqual(other.environment)
    }
}

extension Installation.Keys {
    package static let none = Installation.Keys()

    private init() { environment = .none }

    /// Returns the token, in lower case if it has 64 characters: then it is a hexadecimal token of
    /// Apple's.
    package static func parseToken(_ token: String) -> String {
        token.utf8.count == 64 ? token.lowercased() : token
    }
}

extension PushEnvironment {
    /// Whether the environments can be the same: one that is not named may be any.
    package func canEqual(_ other: PushEnvironment) -> Bool {
        self == other || self == .none || other == .none
    }
}

extension SaveRule {
    /// Returns a body in Parse's form: `installationId` is in lower case, and a `deviceToken` of 64
    /// characters is too.
    package static func parseNormalized(_ body: JSONObject) -> JSONObject {
        var body = body
        if let id = body["installationId"]?.string {
            body["installationId"] = .string(id.lowercased())
        }
        if let token = body["deviceToken"]?.string {
            body["deviceToken"] = .string(Installation.Keys.parseToken(token))
        }
        return body
    }
}
