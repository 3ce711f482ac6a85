package import PushCore

extension NewPush {
    /// Devices that a push on the fast path names one by one, at most.
    package static let fewDevices = 256
    /// Identities that it names, or values of a field, and the devices behind all of them, at most.
    package static let fewNames = 16

    /// The number of devices that it may reach on the fast path.
    var fastPathLimit: Int {
        switch request.audience {
        case .topic, .tokens: Self.fewDevices
        case .installations(let selectors):
            selectors.identities != nil || namesByField ? Self.fewNames : Self.fewDevices
        }
    }

    /// Whether it names so few devices, one by one, and needs nothing prepared: then it is looked up, sent,
    /// and written down as it ended (`FewDevicesStore`). What changes badges, waits for its time, keeps a
    /// pace, narrows one selector by another or is only counted needs its rows first.
    package var isForFewDevices: Bool {
        // A text that Postgres refuses shows itself before anything is sent.
        guard !eventID.utf8.contains(0), !eventSource.utf8.contains(0),
            releaseAt == nil, !request.isDryRun, request.pace == nil,
            request.spreadMilliseconds == nil, request.notificationLabel == nil,
            request.badgeChanges.isEmpty
        else { return false }
        switch request.audience {
        case .topic: return false
        case .tokens(let tokens): return tokens.count <= fastPathLimit
        case .installations(let selectors):
            guard selectors.channels == nil, !selectors.exceptFCM, selectors.configBelow == nil
            else { return false }
            if selectors.condition != nil {
                guard let named = namedDevices else { return false }
                return named.values.count <= fastPathLimit
            }
            switch (selectors.installations, selectors.identities) {
            case (let names?, nil), (nil, let names?): return names.count <= fastPathLimit
            case (nil, nil), (.some, .some): return false
            }
        }
    }

    /// The few that its condition names, where it selects by nothing else.
    var namedDevices: NamedDevices? {
        guard case .installations(let selectors) = request.audience, selectors.channels == nil,
            selectors.identities == nil, selectors.installations == nil, !selectors.isOfTemplate
        else { return nil }
        return selectors.condition?.namedDevices
    }

    /// Whether its condition names devices by a field, not by an id.
    var namesByField: Bool {
        switch namedDevices?.field {
        case .deviceToken, .owner, .user: true
        case .objectID, .installationID, nil: false
        }
    }

    /// The names of devices and users that its request holds.
    var names: [String] {
        switch request.audience {
        case .topic: []
        case .tokens(let tokens): tokens.map(\.token)
        case .installations(let selectors):
            (selectors.installations ?? []) + (selectors.identities ?? [])
                + (selectors.condition?.namedDevices?.names ?? [])
        }
    }
}

/// What was found of a push for few devices, before it is sent.
package enum LookedUpPush: Sendable {
    /// It is a push already, or was cancelled before it began.
    case known
    /// There are too many devices behind its identities or its condition, or its row says that it waits for
    /// its time: it is planned as rows.
    case many
    /// It is new. Its deliveries are nobody's rows yet.
    ///
    /// - Parameters:
    ///   - deliveries: To the devices that can be sent to, or are told why not.
    ///   - at: Postgres' time: what the age of the deliveries is counted from.
    ///   - hasRow: Whether HTTP accepted it, so that its row is there.
    case new(_ deliveries: [Delivery], at: Instant, hasRow: Bool)
}

/// A push for few devices, to be written down. A reference: it is sorted and sifted on its way, and a copy
/// would count a dozen texts.
package final class SentPush: Sendable {
    package let push: NewPush
    /// As it was looked up.
    package let createdAt: Instant
    package let hasRow: Bool
    package let deliveries: [DeliveryRecord]

    package init(
        push: NewPush,
        createdAt: Instant,
        hasRow: Bool,
        deliveries: [DeliveryRecord]
    ) {
        self.push = push
        self.createdAt = createdAt
        self.hasRow = hasRow
        self.deliveries = deliveries
    }
}

/// What became of pushes that were to be written down.
package struct WrittenPushes: Sendable {
    /// Those that are on the books by this.
    package var ids: Set<String> = []
    /// Those of subjects that were erased meanwhile: nothing of them is kept.
    package var erased: Set<String> = []
}
