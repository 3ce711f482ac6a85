import PushCore

/// What a caller may do.
package enum CallerRights: Equatable, Sendable {
    case client
    case master
}

/// Who called: an app, and what its key lets the caller do.
struct Caller: Sendable {
    let app: AppAccess
    let rights: CallerRights
    /// The request that the caller came by.
    var visit: Visit?

    var isMaster: Bool { rights == .master }

    var mayFind: Bool { isMaster || app.settings.clientsMayFind }
    var mayDelete: Bool { isMaster || app.settings.clientsMayDelete }
    var mayPush: Bool { isMaster || app.settings.clientsMayPush }
}
