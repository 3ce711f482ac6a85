import JSON

/// The difference between two templates of remote config, in the form in which they are stored.
///
/// Conditions, parameters and groups are compared by name. The order of conditions is their priority,
/// so it counts; that of parameters does not.
struct ConfigDifference: Equatable {
    enum Kind: Equatable { case added, removed, changed }

    /// One property of an item that is different; nil: it has none on that side.
    struct Change: Equatable {
        /// The member of the item; a conditional value is `conditionalValues/<condition>`.
        let property: String
        let old: JSONValue?
        let new: JSONValue?
    }

    struct Item: Equatable {
        let kind: Kind
        let name: String
        let changes: [Change]
    }

    let conditions: [Item]
    let parameters: [Item]
    let groups: [Item]
    /// Whether conditions that both have come in another order.
    let isReordered: Bool

    static let conditionalPrefix = "conditionalValues/"

    init(from old: JSONObject, to new: JSONObject) {
        let (oldConditions, newConditions) = (Self.conditions(of: old), Self.conditions(of: new))
        conditions = Self.compare(oldConditions, newConditions)
        parameters = Self.compare(Self.parameters(of: old), Self.parameters(of: new))
        groups = Self.compare(Self.groups(of: old), Self.groups(of: new))
        let stayed = oldConditions.keys.filter { newConditions[$0] != nil }
        let came = newConditions.keys.filter { oldConditions[$0] != nil }
        isReordered = zip(stayed, came).contains { !JSONValue.string($0).isSame(as: $1) }
    }

    var isEmpty: Bool { items.isEmpty && !isReordered }

    var items: [Item] { conditions + parameters + groups }

    func count(_ kind: Kind) -> Int { items.count { $0.kind == kind } }

    // MARK: Comparing

    private static func compare(_ old: JSONObject, _ new: JSONObject) -> [Item] {
        var items: [Item] = []
        for (name, value) in old where new[name] == nil {
            items.append(
                Item(kind: .removed, name: name, changes: changes(value.object ?? [:], [:]))
            )
        }
        for (name, value) in new {
            guard let before = old[name] else {
                let added = changes([:], value.object ?? [:])
                items.append(Item(kind: .added, name: name, changes: added))
                continue
            }
            let changed = changes(before.object ?? [:], value.object ?? [:])
            if !changed.isEmpty {
                items.append(Item(kind: .changed, name: name, changes: changed))
            }
        }
        return items
    }

    private static func changes(_ old: JSONObject, _ new: JSONObject) -> [Change] {
        var changes: [Change] = []
        for (property, value) in old where new[property] != value {
            changes.append(Change(property: property, old: value, new: new[property]))
        }
        for (property, value) in new where old[property] == nil {
            changes.append(Change(property: property, old: nil, new: value))
        }
        return changes
    }

    // MARK: Reading

    private static func conditions(of template: JSONObject) -> JSONObject {
        var found = JSONObject()
        for condition in template["conditions"]?.array ?? [] {
            guard var members = condition.object, let name = members["name"]?.string else {
                continue
            }
            members.removeValue(forKey: "name")
            found[name] = .object(members)
        }
        return found
    }

    /// Returns all parameters, those of groups last, with each conditional value as a member.
    static func parameters(of template: JSONObject) -> JSONObject {
        var found = JSONObject()
        func add(_ parameters: JSONValue?, group: String?) {
            for (name, value) in parameters?.object ?? [:] {
                var members = JSONObject()
                if let group { members["group"] = .string(group) }
                for (member, value) in value.object ?? [:] {
                    guard member == "conditionalValues" else {
                        members[member] = value
                        continue
                    }
                    for (condition, value) in value.object ?? [:] {
                        members[conditionalPrefix + condition] = value
                    }
                }
                found[name] = .object(members)
            }
        }
        add(template["parameters"], group: nil)
        for (name, group) in template["parameterGroups"]?.object ?? [:] {
            add(group["parameters"], group: name)
        }
        return found
    }

    private static func groups(of template: JSONObject) -> JSONObject {
        var found = JSONObject()
        for (name, group) in template["parameterGroups"]?.object ?? [:] {
            var members = group.object ?? [:]
            members.removeValue(forKey: "parameters")
            found[name] = .object(members)
        }
        return found
    }
}

extension JSONValue {
    /// Whether it is this string, compared by bytes.
    fileprivate func isSame(as text: String) -> Bool { self == .string(text) }
}

/// The parts of two texts that a page shows side by side: cut, but never before their first difference.
struct ExcerptPair: Equatable {
    let old: String?
    let new: String?

    /// The most characters of each.
    static let maximum = 300
    /// The equal characters that stay before the difference.
    private static let context = 40

    init(_ old: String?, _ new: String?) {
        var start = 0
        if let old, let new, max(old.count, new.count) > Self.maximum {
            let equal = zip(old, new).prefix { $0 == $1 }.count
            start = equal > 2 * Self.context ? equal - Self.context : 0
        }
        self.old = old.map { Self.cut($0, from: start) }
        self.new = new.map { Self.cut($0, from: start) }
    }

    private static func cut(_ text: String, from start: Int) -> String {
        let rest = text.dropFirst(start)
        let isLonger = rest.count > maximum
        return (start > 0 ? "…" : "") + rest.prefix(maximum) + (isLonger ? "…" : "")
    }
}
