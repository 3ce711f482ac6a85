package import JSON

/// A `badge` that changes the stored badge of each installation, and sends the result. LeanCloud's
/// `"Increment"`, and Parse's `"increment"` and `{"__op": "Increment", "amount": n}`, raise or
/// lower the stored badge. A push of Parse's that has a number sets it, as `{"__op": "Set",
/// "amount": n}`.
package struct BadgeChange: Hashable, Sendable {
    /// The number to add; negative to lower the badge.
    package var amount: Int
    /// Whether the stored badge is replaced by the amount.
    package var isSetting = false

    private static let maximumAmount = 1_000_000
    private static let highest = 2_147_483_647

    package init(amount: Int) { self.amount = amount }

    /// `nil` if the value is not such a change, for example a plain number.
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

    /// Whether it changes no badge.
    package var isNothing: Bool { !isSetting && amount == 0 }

    /// Returns the new value of a stored badge, from 0 to `highest`.
    package func applied(to badge: Int) -> Int {
        isSetting ? amount : min(max(badge + amount, 0), Self.highest)
    }
}

extension PushRequest {
    /// Returns how the push changes the stored badges of a platform's installations: by the `badge`
    /// of its `data` for that platform. A native payload does not change stored badges.
    package func badgeChange(for platform: Platform) -> BadgeChange? {
        guard let data else { return nil }
        let isNative: Bool
        let own: [String]
        switch platform {
        case .apns: (isNative, own) = (native.apns != nil, ["ios"])
        case .fcm: (isNative, own) = (native.fcm != nil, ["android", "fcm"])
        case .wns: (isNative, own) = (native.wns != nil, ["wp"])
        case .mpns: (isNative, own) = (false, ["wp"])
        case .connection: (isNative, own) = (false, ["android"])
        }
        if isNative { return nil }
        func seen(_ key: String) -> JSONValue? {
            var value = data[key]
            for name in own {
                if let theirs = data[name]?.object?[key] { value = theirs }
            }
            return value?.isNull == false ? value : nil
        }
        // LeanCloud also documents a complete `aps`. A badge beside it wins over the badge in it.
        let badge = seen("badge") ?? (platform == .apns ? seen("aps")?["badge"] : nil)
        return badge.flatMap(BadgeChange.init)
    }

    /// The changes by platform. Platforms without a change are absent.
    package var badgeChanges: [Platform: BadgeChange] {
        var changes: [Platform: BadgeChange] = [:]
        guard data != nil else { return changes }
        for platform in Platform.allCases { changes[platform] = badgeChange(for: platform) }
        return changes
    }
}
