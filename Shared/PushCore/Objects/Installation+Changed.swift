package import JSON

extension SaveRule {
    /// Returns the body of a new installation. AVOSCloud's clients save `{"installationId", "channels"}`;
    /// an `installationId` or a `registrationId` means Android.
    package func withDeviceType(_ body: JSONObject) -> JSONObject {
        guard self == .leanCloud, body["deviceType"] == nil, body["deviceToken"] == nil,
            ["installationId", "registrationId"].contains(where: { body[$0]?.string != nil })
        else { return body }
        var body = body
        body["deviceType"] = "android"
        return body
    }
}

extension Installation {
    /// Returns the installation as a save changes it.
    ///
    /// - Parameters:
    ///   - body: The fields of the save, with values or operations.
    ///   - now: The time of the save.
    ///   - rule: The rule of the surface, which decides the channels' names.
    /// - Returns: The installation after the save.
    /// - Throws: `ObjectError`, `InstallationError`.
    package func changed(
        by body: JSONObject,
        now: Instant,
        _ rule: SaveRule
    ) throws -> Installation {
        try changed(by: FieldChanges(body, to: object), now: now, rule)
    }

    /// Returns the installation with changes that were made from its fields.
    package func changed(
        by changes: FieldChanges,
        now: Instant,
        _ rule: SaveRule
    ) throws -> Installation {
        var installation = self
        try installation.take(
            changes.object,
            changed: changes.changed,
            now: now,
            isChannel: rule == .leanCloud ? ChannelName.isValid : ChannelName.isStorable
        )
        try ObjectSize.check(installation.fields)
        return installation
    }
}

/// The limit of a stored object's JSON.
package enum ObjectSize {
    private static let maximumBytes = 256 * 1024

    /// - Throws: `ObjectError` 116 if the object is larger.
    package static func check(_ object: JSONObject) throws(ObjectError) {
        guard JSONValue.object(object).keptByteCount <= maximumBytes else {
            throw ObjectError(code: 116, "The object is too large: at most 256 KiB.")
        }
    }
}
