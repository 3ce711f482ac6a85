import Gateway
import PushCore

extension Caller {
    /// Refuses a condition on fields that the caller may not see, and, if the caller may not search, one on
    /// other objects than the named one.
    func requireQueryAllowed(
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

    /// Checks the audience of a push, too: its record shows the number of members.
    func requireQueryAllowed(_ audience: PushRequest.Audience) throws(ObjectError) {
        switch audience {
        case .tokens, .topic: return
        case .installations(let selectors):
            try requireQueryAllowed(selectors.condition, of: "_Installation")
        }
    }
}
