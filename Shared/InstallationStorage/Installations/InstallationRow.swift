import JSON
package import Postgres
package import PushCore
import Storage

/// Reads a row of `installations` as a value.
package enum InstallationRow {
    package static let columns = """
        app, object_id, device_type, provider, token, environment, identity, channels,
        installation_id, badge, time_zone, locale, apns_topic, vendor, device_profile, fields,
        valid, invalid_reason, token_updated_at, created_at, updated_at, channels_absent,
        badge_absent, template_only
        """

    package static func read(_ row: PostgresRow) throws -> Installation {
        var installation = Installation(
            app: try row.text("app"),
            objectID: try row.text("object_id"),
            at: try row.instant("created_at")
        )
        installation.deviceType = try row.text("device_type")
        installation.platform = try row.textOrNil("provider").flatMap(Platform.init(rawValue:))
        installation.token = try row.textOrNil("token")
        installation.environment =
            PushEnvironment(rawValue: try row.text("environment")) ?? .none
        installation.identity = try row.textOrNil("identity")
        installation.channels = try row.textArray("channels")
        // A mark such as `channels_absent` counts only if the column has the value of an absent
        // field. So the previous version, and the statements that raise a badge, need not write
        // marks.
        installation.hasChannels =
            try !installation.channels.isEmpty || !row.boolean("channels_absent")
        installation.installationID = try row.textOrNil("installation_id")
        installation.badge = try row.integer("badge")
        installation.hasBadge = try installation.badge != 0 || !row.boolean("badge_absent")
        installation.timeZone = try row.textOrNil("time_zone")
        installation.locale = try row.textOrNil("locale")
        installation.apnsTopic = try row.textOrNil("apns_topic")
        installation.vendor = try row.textOrNil("vendor")
        installation.deviceProfile = try row.textOrNil("device_profile")
        installation.fields = try row.json("fields").object ?? [:]
        installation.isValid = try row.boolean("valid")
        installation.invalidReason = try row.textOrNil("invalid_reason")
        installation.tokenUpdatedAt = try row.instantOrNil("token_updated_at")
        installation.updatedAt = try row.instant("updated_at")
        installation.isTemplateOnly = try row.boolean("template_only")
        return installation
    }
}
