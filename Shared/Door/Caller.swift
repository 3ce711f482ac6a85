package import Apps
import PushCore

/// Who called: an app, and what its key lets the caller do.
package struct Caller: Sendable {
    package let app: AppAccess
    package let rights: CallerRights
    /// The request that the caller came by.
    package var visit: Visit?

    package init(app: AppAccess, rights: CallerRights, visit: Visit? = nil) {
        self.app = app
        self.rights = rights
        self.visit = visit
    }

    package var isMaster: Bool { rights == .master }

    package var mayFind: Bool { isMaster || app.settings.clientsMayFind }
    package var mayDelete: Bool { isMaster || app.settings.clientsMayDelete }
    package var mayPush: Bool { isMaster || app.settings.clientsMayPush }
}
