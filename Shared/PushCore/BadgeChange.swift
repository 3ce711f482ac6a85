package import JSON

/// A `badge` that changes each installation's own, and sends what it came to: LeanCloud's
/// `"Increment"`, Parse's `"increment"` and `{"__op": "Increment", "amount": n}` raise or lower it; a
/// push of Parse's that names a number sets it, as `{"__op": "Set", "amount": n}`.
package struct BadgeChange: Hashable, Sendable {
    /// By how much; negative to lower it.
    package var amount: Int
    /// Whether the stored badge becomes the amount, whatever it was.
    package var isSetting = false

    private static let maximumAmount = 1_000_000
    private static let highest = 2_147_483_647

    package init(amount: Int) { self.amount = amount }

    /// `nil` for what is no such change, a plain number above all.
    package init?(_ value: JSONValue) {
        if let name = value.string {
            guard name.lowercased() == "increment" else { return nil }
            amount = 1
            return
        }
        guard let object = value.object,
            object.keys.allSatisfy({ $0 == "__op" || $0 == "amount" })
        else { return nil }
        let given = object["amount"] ?? 1
        if object["__op"]?.string == "Set" {
            guard let number = given.integer, (0...Self.highest).contains(number) else {
                return nil
            }
            amount = number
            isSetting = true
            return
        }
        let amounts = -Self.maximumAmount...Self.maximumAmount
        guard let number = given.integer, amounts.contains(number) else { return nil }
        switch object["__op"]?.string {
        case "Increment"?: amount = number
        case "Decrement"?: amount = -number
        case _: return nil
        }
    }

    /// Whether it leaves every badge as it is.
    package var isNothing: Bool { !isSetting && amount == 0 }

    /// What a stored badge becomes: never less than nothing, and no more than is kept.
    package func applied(to badge: Int) -> Int {
        isSetting ? amount : min(max(badge + amount, 0), Self.highest)
    }
}

extension PushRequest {
    /// What the push does to the stored badges of a platform's installations: its `data`'s `badge` as
    /// that platform sees it. A native payload does nothing to them.
    package func badgeChange(for platform: Platform) -> BadgeChange? {
        guard let data else { return nil }
        let isNative: Bool
        let own: [String]
        switch platform {
        case .apns: (isNative, own) = (native.apns != nil, ["ios"])
        case .fcm: (isNative, own) = (native.fcm != nil, ["android", "fcm"])
        case .wns: (isNative, own) = (native.wns != nil, ["wp"])
        case .mpns: (isNative, own) = (false, ["wp"])
        }
        if isNative { return nil }
        func seen(_ key: String) -> JSONValue? {
            var value = data[key]
            for name in own {
                if let theirs = data[name]?.object?[key] { value = theirs }
            }
            return value?.isNull == false ? value : nil
        }
        // A ready `aps` is what LeanCloud documents, too; a badge beside it goes before its own.
        let badge = seen("badge") ?? (platform == .apns ? seen("aps")?["badge"] : nil)
        return badge.flatMap(BadgeChange.init)
    }

    /// By platform; those that it leaves alone are not there.
    package var badgeChanges: [Platform: BadgeChange] {
        var changes: [Platform: BadgeChange] = [:]
        guard data != nil else { return changes }
        for platform in Platform.allCases { changes[platform] = badgeChange(for: platform) }
        return changes
    }
}
