import PushCore

/// The columns in which the fields of one class are stored.
package enum WhereTable: Sendable {
    case installations, identities
    /// Pushes as clients see them; a sub-query cannot name them.
    case pushRecords

    /// Creates the table of a class that a sub-query may name.
    init?(className: String) {
        switch className {
        case "_Installation": self = .installations
        case "_User": self = .identities
        default: return nil
        }
    }

    var className: String {
        switch self {
        case .installations: "_Installation"
        case .identities: "_User"
        case .pushRecords: "_Notification"
        }
    }

    var name: String {
        switch self {
        case .installations: "installations"
        case .identities: "identities"
        case .pushRecords: "pushes"
        }
    }

    var objectID: String {
        switch self {
        case .installations, .pushRecords: "object_id"
        case .identities: "id"
        }
    }

    /// The column of one field.
    enum Column: Sendable {
        case text(String)
        /// An array; `absentIf` is the column that says whether an empty one stands for an absent
        /// field.
        case textArray(String, absentIf: String)
        /// A number. `absentIf` is the column that says whether a 0 stands for an absent field;
        /// without it the field is always present.
        case integer(String, absentIf: String? = nil)
        case boolean(String)
        case timestamp(String)
        /// A path in `fields`.
        case json
        /// A path into a value that is not an object.
        case nothing
    }

    func column(of path: WherePath) -> Column {
        if case .pushRecords = self {
            return path.segments.count == 1 ? Self.pushColumn(path.segments[0]) : .nothing
        }
        let own: Column? =
            switch (self, path.segments.first ?? "") {
            case (_, "objectId"): .text(objectID)
            case (_, "createdAt"): .timestamp("created_at")
            case (_, "updatedAt"): .timestamp("updated_at")
            case (.installations, "deviceType"): .text("device_type")
            case (.installations, "installationId"): .text("installation_id")
            case (.installations, "timeZone"): .text("time_zone")
            case (.installations, "apnsTopic"): .text("apns_topic")
            case (.installations, "vendor"): .text("vendor")
            case (.installations, "deviceProfile"): .text("device_profile")
            case (.installations, "channels"): .textArray("channels", absentIf: "channels_absent")
            case (.installations, "badge"): .integer("badge", absentIf: "badge_absent")
            case (.installations, "valid"): .boolean("valid")
            case (.installations, "$identity"): .text("identity")
            case (.installations, "$provider"): .text("provider")
            default: nil
            }
        guard let own else { return .json }
        return path.segments.count == 1 ? own : .nothing
    }

    private static func pushColumn(_ name: String) -> Column {
        switch name {
        case "objectId": .text("object_id")
        case "notificationId": .text("notification_id")
        case "status": .text("status_text")
        case "prod": .text("prod")
        case "from-service": .text("from_service")
        case "createdAt": .timestamp("accepted_at")
        case "updatedAt": .timestamp("updated_at")
        case "push-time": .timestamp("push_time")
        case "devices", "subscribers", "targeted": .integer("targeted")
        case "successes", "delivered": .integer("delivered")
        case "errors", "failed": .integer("failed")
        case "invalidTokens": .integer("invalid_tokens")
        case "expired": .integer("expired")
        case "suppressed": .integer("suppressed")
        case "inDoubt": .integer("in_doubt")
        case "pending": .integer("pending")
        default: .nothing
        }
    }
}
