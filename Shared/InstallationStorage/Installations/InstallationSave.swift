import JSON
package import PushCore
import Storage

/// An installation as a save left it.
package struct SavedInstallation: Sendable {
    package let installation: Installation
    /// False if the save changed an existing installation.
    package let created: Bool
}

/// One save that is to be written.
struct InstallationSave: Sendable {
    let app: String
    let request: SaveRequest
    /// A condition that the database tests. As that may take long, such a save is a batch by
    /// itself, in the slow queue.
    var condition: Where?
    /// The app's own fields that this save is the first to use.
    let fields: NewFields?
    /// Gets the existing installation, or `nil`; returns the one to store. May be called again.
    let change: @Sendable (Installation?) throws -> Installation
    /// Whether another transaction has locked a row that the save needs. Then the save waits in the
    /// slow queue, where no plain save waits behind it.
    var hasToWait = false
    /// Keys that the change sets although the body does not name them.
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

    /// The keys by which the save may find an installation, or that it may take from another.
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

/// The outcome of a save in its batch.
enum SaveOutcome: Sendable {
    case saved(SavedInstallation)
    case unknownObject
    case failed(any Error)
    /// The save has not locked these keys, which it needs, too.
    case again(DeviceKeys)
    /// The batch was full before this save.
    case postponed
}
