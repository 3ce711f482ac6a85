package import JSON

/// A user as described by an app's backend: LeanCloud's and Parse's `_User`. Installations point to
/// it by `owner` or `user`, and pushes by `identities`. It has no password: Carillon has no login.
package struct Identity: Sendable, Equatable {
    package var app: String
    package var objectID: String
    /// All saved fields: `username`, `location`, and the app's own.
    package var fields: JSONObject
    package var createdAt: Instant
    package var updatedAt: Instant

    package init(
        app: String,
        objectID: String,
        fields: JSONObject,
        createdAt: Instant,
        updatedAt: Instant
    ) {
        self.app = app
        self.objectID = objectID
        self.fields = fields
        self.createdAt = createdAt
        self.updatedAt = updatedAt
    }

    /// Login credentials. They are refused: they must neither be stored in the clear nor dropped
    /// silently.
    private static let credentials = ["password", "authData", "sessionToken"]
    private static let unique = ["username", "email", "mobilePhoneNumber"]

    /// The fields whose values must be unique among an app's identities.
    package var uniqueFields: [(name: String, value: String)] {
        Self.unique.compactMap { name in
            guard let value = fields[name]?.string, !value.isEmpty else { return nil }
            return (name, value)
        }
    }

    /// Returns the error for an identity whose unique field another identity has, with the codes of
    /// LeanCloud and Parse.
    package static func taken(_ field: String) -> InstallationError {
        let code =
            switch field {
            case "username": 202
            case "email": 203
            case "mobilePhoneNumber": 214
            default: 137
            }
        return InstallationError(code: code, "\(field) is already taken by another identity")
    }

    /// Validates the fields after a save that has set the fields `changed`.
    package static func checked(
        _ object: JSONObject,
        changed: ExactStringSet
    ) throws(InstallationError) -> JSONObject {
        let reader = InstallationFields(object)
        for field in credentials where object[field] != nil {
            throw InstallationError(
                code: 1,
                "\(field) is refused: identities are for pushes only; there is no log-in here"
            )
        }
        for field in changed { try reader.check(field) }
        for field in unique { _ = try reader.string(field, maximumBytes: 512) }
        return object
    }
}
