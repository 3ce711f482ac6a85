package import PushCore
import Storage

extension NewPush {
    /// The most devices that a push on the fast path may name one by one.
    package static let fewDevices = 256
    /// A push that names more devices is large: on the fast path it comes after the others.
    package static let largeFrom = 32
    /// The most identities, or values of a field, that a push on the fast path may name. Also the
    /// most devices that all of these may have.
    package static let fewNames = 16

    /// The number of devices that it may reach on the fast path.
    var fastPathLimit: Int {
        switch request.audience {
        case .topic, .tokens: Self.fewDevices
        case .installations(let selectors):
            selectors.identities != nil || namesByField ? Self.fewNames : Self.fewDevices
        }
    }

    /// Whether it takes the fast path (`FewDevicesStore`): it names few devices one by one, and
    /// nothing must be stored first. A push needs rows first if it changes badges, waits for its
    /// time, has a pace, narrows one selector by another, or is a dry run.
    package var isForFewDevices: Bool {
        // A string that Postgres refuses must fail before anything is sent.
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

    /// Whether the devices that it names can be a shard. A push with a pace or with placeholders
    /// needs rows, as the values of placeholders are fixed at planning. A push that narrows one
    /// selector by another is planned page by page.
    package var canBeShard: Bool {
        guard case .installations(let selectors) = request.audience, selectors.channels == nil,
            selectors.condition == nil,
            (selectors.installations == nil) != (selectors.identities == nil)
        else { return false }
        return !request.isDryRun && !request.isPaced && request.templateFields.isEmpty
    }

    /// The few devices that its condition names; `nil` if it has another selector too.
    var namedDevices: NamedDevices? {
        guard case .installations(let selectors) = request.audience, selectors.channels == nil,
            selectors.identities == nil, selectors.installations == nil, !selectors.isOfTemplate
        else { return nil }
        return selectors.condition?.namedDevices
    }

    /// Whether its condition names devices by a field, not by an id.
    package var namesByField: Bool {
        switch namedDevices?.field {
        case .deviceToken, .owner, .user: true
        case .objectID, .installationID, nil: false
        }
    }

    /// The number of devices and users that its request names.
    package var namedCount: Int {
        switch request.audience {
        case .topic: 0
        case .tokens(let tokens): tokens.count
        case .installations(let selectors):
            (selectors.installations?.count ?? 0) + (selectors.identities?.count ?? 0)
                + (selectors.condition?.namedDevices?.names.count ?? 0)
        }
    }

    /// The names of devices and users in its request.
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

extension PushRequest {
    /// Whether it may be for more devices than the fast path takes. Such a push has figures of its
    /// own (`PushFigureStore`). Pushes for few devices have none, as there may be thousands a
    /// second.
    package var isForMany: Bool {
        switch audience {
        case .topic: return false
        case .tokens(let tokens): return tokens.count > NewPush.fewDevices
        case .installations(let selectors):
            let lists = [selectors.installations, selectors.identities]
            let named = lists.compactMap(\.self).map(\.count).min()
            let condition = selectors.condition?.namedDevices?.values.count
            guard let count = [named, condition].compactMap(\.self).min() else { return true }
            return count > NewPush.fewDevices
        }
    }
}

/// The result of looking up a push for few devices, before it is sent.
package enum LookedUpPush: Sendable {
    /// The push exists already, or was cancelled before it was sent.
    case known
    /// It must be planned as rows: its identities or its condition select too many devices, or its
    /// row says that it waits for its time.
    case many
    /// The push is new. Its deliveries have no rows yet.
    ///
    /// - Parameters:
    ///   - deliveries: Deliveries to the devices that can be sent to, and to those that are
    ///     reported as suppressed.
    ///   - at: Postgres' time. The age of the deliveries is counted from it.
    ///   - hasRow: Whether HTTP accepted the push, so that its row exists.
    case new(_ deliveries: [Delivery], at: Instant, hasRow: Bool)
}

/// A push for few devices that was sent and is to be stored. A class, because it is sorted and
/// filtered on the way to the database, and each copy would retain a dozen strings.
package final class SentPush: Sendable {
    package let push: NewPush
    /// The time of its look-up.
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

/// The result of writing pushes.
package struct WrittenPushes: Sendable {
    /// The pushes that this write has stored.
    package var ids: Set<String> = []
    /// The pushes that name subjects which were erased meanwhile. Nothing of them is stored.
    package var erased: Set<String> = []
}
