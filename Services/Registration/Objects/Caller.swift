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

    /// What a caller may not see he may not ask for either, and whoever may not look for objects may
    /// only ask about the one that he names.
    func requireAskable(
        _ condition: Where?,
        order: [SortKey] = [],
        of className: String
    ) throws(ObjectError) {
        guard !isMaster, let condition else { return }
        if !mayFind, HiddenFields.hasSubquery(condition) {
            throw .masterKeyNeeded(for: "A sub-query")
        }
        if let path = HiddenFields.first(in: condition, order: order, of: className) {
            throw .masterKeyNeeded(for: "A question for \(path.segments[0])")
        }
    }

    /// Whom a push is for is asked, too: its record says how many they were.
    func requireAskable(_ audience: PushRequest.Audience) throws(ObjectError) {
        switch audience {
        case .tokens: return
        case .installations(let selectors):
            try requireAskable(selectors.condition, of: "_Installation")
        }
    }
}
