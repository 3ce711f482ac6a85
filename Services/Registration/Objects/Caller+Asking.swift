import Gateway
import PushCore

extension Caller {
    /// Refuses a condition on fields that the caller may not see. If the caller may not search,
    /// refuses sub-queries on other objects, too.
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

    /// Checks the audience of a push like a query, as the push's record shows how many devices
    /// match.
    func requireQueryAllowed(_ audience: PushRequest.Audience) throws(ObjectError) {
        switch audience {
        case .tokens, .topic: return
        case .installations(let selectors):
            try requireQueryAllowed(selectors.condition, of: "_Installation")
        }
    }
}
