package import JSON

/// A user as an app's backend describes him: LeanCloud's and Parse's `_User`. Installations point to
/// it by `owner` or `user`, and pushes by `identities`. It has no password: nobody logs in here.
package struct Identity: Sendable, Equatable {
    package var app: String
    package var objectID: String
    /// All that was saved: `username`, `location`, and whatever the app adds.
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

    /// What would let somebody log in: it is refused, never kept in the clear nor dropped in silence.
    private static let credentials = ["password", "authData", "sessionToken"]
    private static let unique = ["username", "email", "mobilePhoneNumber"]

    /// Fields of which no two identities of an app may hold the same.
    package var uniqueFields: [(name: String, value: String)] {
        Self.unique.compactMap { name in
            guard let value = fields[name]?.string, !value.isEmpty else { return nil }
            return (name, value)
        }
    }

    /// The error of a second identity with the same unique field: LeanCloud's and Parse's codes.
    package static func taken(_ field: String) -> InstallationError {
        let code =
            switch field {
            case "username": 202
            case "email": 203
            case "mobilePhoneNumber": 214
            default: 137
            }
        return InstallationError(code: code, "\(field) is another identity's already")
    }

    /// The fields as they are after a save that named those of `changed`, checked.
    package static func checked(
        _ object: JSONObject,
        changed: TextSet
    ) throws(InstallationError) -> JSONObject {
        let reader = InstallationFields(object)
        for field in credentials where object[field] != nil {
            throw InstallationError(
                code: 1,
                "\(field) is refused: identities are kept for pushes, and nobody logs in here"
            )
        }
        for field in changed { try reader.check(field) }
        for field in unique { _ = try reader.string(field, maximumBytes: 512) }
        return object
    }
}
