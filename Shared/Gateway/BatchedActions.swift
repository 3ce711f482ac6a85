package import JSON

/// The number of a batch's items by route, for the audit, whether they succeeded or not.
package struct BatchedActions: Sendable {
    /// The limit of distinct routes; items of further routes count as `others`.
    package static let maximumActions = 100
    package static let others = "others"

    private var counts: [String: Int] = [:]

    package init() {}

    package mutating func add(_ action: String) {
        let isKept = counts[action] != nil || counts.count < Self.maximumActions
        counts[isKept ? action : Self.others, default: 0] += 1
    }

    /// The counts by route; empty if there are none.
    package var json: JSONObject {
        guard !counts.isEmpty else { return [:] }
        let sorted = counts.sorted { $0.key < $1.key }
        return ["items": .object(JSONObject(sorted.map { ($0.key, JSONValue($0.value)) }))]
    }
}
