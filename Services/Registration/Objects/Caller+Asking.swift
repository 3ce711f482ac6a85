import Door
import PushCore

extension Caller {
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
        case .tokens, .topic: return
        case .installations(let selectors):
            try requireAskable(selectors.condition, of: "_Installation")
        }
    }
}
