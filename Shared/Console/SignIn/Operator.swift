import JSON
import Logins
import PushCore
import Storage

/// A person whom an issuer has authenticated: the name for the audit, and the role, if the token
/// gives one.
struct Operator: Sendable, Equatable {
    /// `oidc:` and the person's name.
    let actor: String
    let role: Role?

    /// The longest name in bytes.
    private static let nameBytes = 128

    /// Reads the claims of a verified ID token.
    ///
    /// - Returns: `nil` if no claim names the person.
    init?(_ claims: JSONObject, by login: StoredConsoleLogin) {
        guard let name = Self.name(in: claims, by: login) else { return nil }
        actor = "oidc:" + name
        role = Self.role(in: claims, by: login)
    }

    // MARK: Name

    private static func name(in claims: JSONObject, by login: StoredConsoleLogin) -> String? {
        let claim = login.nameClaim ?? "email"
        // An address that the issuer did not verify could be another person's.
        let isUsable = claim != "email" || isTrue(claims["email_verified"])
        let named = isUsable ? usable(value(of: claim, in: claims)?.string) : nil
        return named ?? usable(claims["sub"]?.string)
    }

    /// Some issuers send booleans as strings.
    private static func isTrue(_ value: JSONValue?) -> Bool {
        value == .bool(true) || value?.string?.lowercased() == "true"
    }

    private static func usable(_ name: String?) -> String? {
        name.flatMap { LoginLimits.isUsable($0, 1...nameBytes) ? $0 : nil }
    }

    // MARK: Role

    /// Returns the highest role that a value of the claim gives.
    private static func role(in claims: JSONObject, by login: StoredConsoleLogin) -> Role? {
        let values: [String] =
            switch value(of: login.roleClaim, in: claims) {
            case .string(let text): [text]
            case .array(let items): items.compactMap(\.string)
            case .null, .bool, .integer, .double, .number, .object, nil: []
            }
        return values.compactMap { value in
            login.roles.first { $0.key.isSame(as: value) }.map { Role($0.value) }
        }.max()
    }

    /// Returns the claim of a name, or, if there is none, the member that the name's dots lead to:
    /// `realm_access.roles`.
    private static func value(of claim: String, in claims: JSONObject) -> JSONValue? {
        if let value = claims[claim] { return value }
        let parts = claim.split(separator: ".", omittingEmptySubsequences: false).map(String.init)
        guard parts.count > 1 else { return nil }
        return parts.reduce(JSONValue.object(claims)) { value, name in value?[name] }
    }
}
