import Cryptography

/// The access tokens that one token endpoint issued, each with its holder.
struct OAuthTokens: Sendable {
    private struct Grant: Sendable {
        let holder: String
        let expiresAt: Int64
    }

    /// The limit of valid tokens; beyond it the oldest become unknown, as if they had expired.
    private static let limit = 10_000

    private var grants: [String: Grant] = [:]
    private var order: [String] = []

    /// - Returns: A token of `holder` that is valid until `now + lifetime`, in seconds.
    mutating func issue(
        to holder: String,
        prefix: String,
        now: Int64,
        lifetime: Int64
    ) -> String {
        let token = prefix + Base64.encodeURL(randomBytes(48))
        grants[token] = Grant(holder: holder, expiresAt: now + lifetime)
        order.append(token)
        if order.count > Self.limit {
            for old in order.prefix(Self.limit / 10) { grants[old] = nil }
            order.removeFirst(Self.limit / 10)
        }
        return token
    }

    /// Returns the holder of a valid `Authorization: Bearer …`.
    func holder(ofAuthorization header: String?, now: Int64) -> String? {
        guard let header else { return nil }
        let parts = header.split(separator: " ", maxSplits: 1)
        guard parts.count == 2, parts[0].lowercased() == "bearer" else { return nil }
        guard let grant = grants[String(parts[1])], now < grant.expiresAt else { return nil }
        return grant.holder
    }

    /// Revokes all tokens at once, as a provider's outage or an operator's script does.
    mutating func revokeAll() {
        grants = [:]
        order = []
    }
}

/// Parses the fields of an `application/x-www-form-urlencoded` body; `nil` if it is invalid.
func formFields(_ body: [UInt8]) -> [String: String]? {
    var fields: [String: String] = [:]
    for pair in body.split(separator: UInt8(ascii: "&")) {
        let parts = pair.split(
            separator: UInt8(ascii: "="),
            maxSplits: 1,
            omittingEmptySubsequences: false
        )
        guard let name = decodeForm(parts[0]), fields[name] == nil,
            let value = parts.count == 2 ? decodeForm(parts[1]) : ""
        else { return nil }
        fields[name] = value
    }
    return fields
}

private func decodeForm(_ bytes: ArraySlice<UInt8>) -> String? {
    var decoded: [UInt8] = []
    var index = bytes.startIndex
    while index < bytes.endIndex {
        switch bytes[index] {
        case UInt8(ascii: "+"): decoded.append(UInt8(ascii: " "))
        case UInt8(ascii: "%"):
            guard bytes.endIndex - index > 2,
                let byte = UInt8(
                    String(decoding: bytes[index + 1...index + 2], as: UTF8.self),
                    radix: 16
                )
            else { return nil }
            decoded.append(byte)
            index += 2
        default: decoded.append(bytes[index])
        }
        index += 1
    }
    return String(validating: decoded, as: UTF8.self)
}
