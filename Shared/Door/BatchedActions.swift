package import JSON

/// What the items of a batch asked for, done or not, as the audit tells it: how many went each route.
package struct BatchedActions: Sendable {
    /// Of routes; there are fewer.
    package static let maximumActions = 100
    package static let others = "others"

    private var counts: [String: Int] = [:]

    package init() {}

    package mutating func add(_ action: String) {
        let isKept = counts[action] != nil || counts.count < Self.maximumActions
        counts[isKept ? action : Self.others, default: 0] += 1
    }

    /// Empty where there were none.
    package var json: JSONObject {
        guard !counts.isEmpty else { return [:] }
        let sorted = counts.sorted { $0.key < $1.key }
        return ["items": .object(JSONObject(sorted.map { ($0.key, JSONValue($0.value)) }))]
    }
}
