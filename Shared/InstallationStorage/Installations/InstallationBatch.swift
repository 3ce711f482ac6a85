import JSON
import Postgres
import PushCore
import Storage

/// Applies saves, in their order, to installations in memory, and collects the rows to write. The
/// installations are all that the saves may concern. No I/O.
struct InstallationBatch {
    struct RowID: Hashable {
        var app: String
        var objectID: String
    }

    /// The size at which a batch accepts no more saves, as all that it writes is in memory at once.
    private static let maximumBytes = 4 << 20

    /// The rows before the batch.
    private let before: [RowID: Installation]
    private let versions: [RowID: String]
    var current: [RowID: Installation]
    var changed: Set<RowID> = []
    var deleted: Set<RowID> = []
    private var bytes = 0
    /// The rows that had a key at any time in this batch. It serves the search only: `current` says
    /// whether a row still has the key.
    private var holders: [Key: [RowID]] = [:]

    struct Key: Hashable {
        enum Kind { case installationID, token }

        var app: String
        var kind: Kind
        var text: ExactString
    }

    /// - Parameters:
    ///   - rows: The rows that the saves may concern.
    ///   - versions: The versions of rows that are not locked.
    init(_ rows: [Installation], versions: [(RowID, String)] = []) {
        before = Dictionary(rows.map { ($0.rowID, $0) }, uniquingKeysWith: { first, _ in first })
        self.versions = Dictionary(versions, uniquingKeysWith: { first, _ in first })
        current = before
        for row in rows { remember(row) }
    }

    mutating func remember(_ installation: Installation) {
        for key in Self.keys(of: installation) {
            holders[key, default: []].append(installation.rowID)
        }
    }

    static func keys(of installation: Installation) -> Set<Key> {
        var keys: Set<Key> = []
        let app = installation.app
        if let id = installation.installationID {
            keys.insert(Key(app: app, kind: .installationID, text: ExactString(id)))
        }
        guard !installation.isTemplateOnly else { return keys }
        if let token = installation.token {
            keys.insert(Key(app: app, kind: .token, text: ExactString(token)))
        }
        if let token = installation.deviceToken {
            let token = ExactString(Installation.Keys.parseToken(token))
            keys.insert(Key(app: app, kind: .token, text: token))
        }
        return keys
    }

    /// Returns all installations with one of the keys, in the order of their ids.
    func installations(holding keys: Set<Key>) -> [Installation] {
        Set(keys.flatMap { holders[$0] ?? [] }).sorted().compactMap { current[$0] }
    }

    var isFull: Bool { bytes >= Self.maximumBytes }

    enum Step {
        case done(RowID, created: Bool)
        case unknownObject
        case again(DeviceKeys)
    }

    /// Decides which row a save changes, or that it creates a row.
    func decide(_ save: InstallationSave) throws(InstallationError) -> SaveDecision {
        let (app, request) = (save.app, save.request)
        var keys: Set<Key> = []
        if let id = request.effectiveInstallationID {
            keys.insert(Key(app: app, kind: .installationID, text: ExactString(id)))
        }
        for token in [request.keys.token, request.keys.deviceToken].compactMap(\.self) {
            keys.insert(Key(app: app, kind: .token, text: ExactString(token)))
        }
        var known = installations(holding: keys)
        if let objectID = request.objectID, !known.contains(where: { $0.objectID == objectID }),
            let named = current[RowID(app: app, objectID: objectID)]
        {
            known.append(named)
        }
        return try request.decide(among: known)
    }

    /// Applies one save. If it throws, nothing has changed.
    mutating func apply(_ save: InstallationSave) throws -> Step {
        let decision = try decide(save)
        var existing: Installation?
        switch decision.target {
        case .unknown: return .unknownObject
        case .create: break
        case .update(let objectID):
            existing = current[RowID(app: save.app, objectID: objectID)]
        }
        var kept = try save.change(existing)
        kept.app = save.app
        if let existing { kept.objectID = existing.objectID }
        let keys = Self.keys(of: kept, changedFrom: existing)
        guard save.keys.isSuperset(of: keys) else { return .again(keys) }

        for objectID in decision.replaced where objectID != kept.objectID {
            delete(RowID(app: save.app, objectID: objectID))
        }
        // An installation without new keys does not take a key from another.
        if !keys.isEmpty || !kept.deviceToken.isSame(as: existing?.deviceToken) {
            displace(by: kept, save.request)
            remember(kept)
        }
        let row = RowID(app: save.app, objectID: kept.objectID)
        current[row] = kept
        changed.insert(row)
        bytes += 1024 + kept.fields.approximateBytes
        return .done(row, created: existing == nil)
    }

    /// Takes the keys of an installation from others.
    mutating func displace(by kept: Installation, _ request: SaveRequest) {
        let others = installations(holding: Self.keys(of: kept))
        for (objectID, displacement) in request.displaced(by: kept, among: others) {
            let row = RowID(app: kept.app, objectID: objectID)
            switch displacement {
            case .deleted: delete(row)
            case .withoutRoute:
                current[row]?.platform = nil
                current[row]?.token = nil
                current[row]?.tokenUpdatedAt = nil
                changed.insert(row)
            }
        }
    }

    mutating func delete(_ row: RowID) {
        current[row] = nil
        changed.remove(row)
        if before[row] != nil { deleted.insert(row) }
    }

    /// Returns the keys that the save gives the installation.
    private static func keys(
        of kept: Installation,
        changedFrom existing: Installation?
    ) -> DeviceKeys {
        var keys = DeviceKeys()
        if let id = kept.installationID, !(existing?.installationID).isSame(as: id) {
            keys.installationIDs.insert(id)
        }
        let hasNewRoute =
            kept.token != existing?.token || kept.platform != existing?.platform
            || kept.environment != existing?.environment
            || existing?.isTemplateOnly == true
        if hasNewRoute, !kept.isTemplateOnly, let platform = kept.platform, let token = kept.token {
            keys.routes.insert(DeviceKeys.Route(platform: platform, token: token))
        }
        return keys
    }

    subscript(row: RowID) -> Installation? { current[row] }

    func was(_ row: RowID) -> Installation? { before[row] }
    func isNew(_ row: RowID) -> Bool { before[row] == nil }
    /// Returns the version that a row must still have when it is written; `nil` if it is locked, or
    /// new.
    func version(_ row: RowID) -> String? { versions[row] }

    /// The rows that give up unique keys, which another row may get in the same statement.
    var vacated: [RowID] {
        changed.filter { row in
            guard let before = before[row], let now = current[row] else { return false }
            return !before.installationID.isSame(as: now.installationID)
                || before.token != now.token
                || before.platform != now.platform || before.environment != now.environment
                || before.isTemplateOnly != now.isTemplateOnly
        }
    }
}

extension Installation {
    var rowID: InstallationBatch.RowID { .init(app: app, objectID: objectID) }
}
