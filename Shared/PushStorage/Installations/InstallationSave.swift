import JSON
package import PushCore

/// An installation as a save left it.
package struct SavedInstallation: Sendable {
    package let installation: Installation
    /// False where an installation that was there already took the save.
    package let created: Bool
}

/// One save on its way into the database.
struct InstallationSave: Sendable {
    let app: String
    let request: SaveRequest
    /// Asked of the database, which may take long: such a save is a batch of its own, and stands in
    /// a line of its own.
    var condition: Where?
    /// What it is the first to use, of the app's own fields.
    let fields: NewFields?
    /// Gets the installation that is meant, or `nil`; returns the one to keep. May be called again.
    let change: @Sendable (Installation?) throws -> Installation
    /// Somebody holds a row that it needs: it waits for him where it keeps nobody else waiting.
    var hasToWait = false
    /// Keys that the change turned out to set although the body did not name them.
    var furtherKeys = DeviceKeys()

    init(
        app: String,
        request: SaveRequest,
        condition: Where? = nil,
        fields: NewFields? = nil,
        change: @escaping @Sendable (Installation?) throws -> Installation
    ) {
        self.app = app
        self.request = request
        self.condition = condition
        self.fields = fields
        self.change = change
    }

    /// What it may find an installation by, or take from another.
    var keys: DeviceKeys {
        var keys = furtherKeys
        if let id = request.effectiveInstallationID { keys.installationIDs.insert(id) }
        if let platform = request.keys.platform, let token = request.keys.token {
            keys.routes.insert(DeviceKeys.Route(platform: platform, token: token))
        }
        if case .parse = request.rule, let token = request.keys.deviceToken {
            keys.unroutedTokens.insert(token)
        }
        return keys
    }
}

/// What became of a save in its batch.
enum SaveOutcome: Sendable {
    case saved(SavedInstallation)
    case unknownObject
    case failed(any Error)
    /// It needs more keys than it held.
    case again(DeviceKeys)
    /// The batch was full before its turn came.
    case postponed
}
