package import JSON

/// JSON Web Tokens in their compact form, signed by ES256 or RS256 and nothing else.
///
/// - SeeAlso: RFC 7515, RFC 7519.
package enum JWT {
    /// A longer token is refused unread.
    package static let maximumByteCount = 16 << 10

    /// Signs; the header's `alg` is the key's, whatever the caller wrote there.
    package static func sign(
        header: JSONObject,
        claims: JSONObject,
        with key: SigningKey
    ) throws(CryptographyError) -> String {
        var header = header
        header["alg"] = .string(key.algorithm.rawValue)
        let signed = Base64.encodeURL(header.bytes) + "." + Base64.encodeURL(claims.bytes)
        return signed + "." + Base64.encodeURL(try key.sign(Array(signed.utf8)))
    }

    /// Checks form and signature; what the claims say is the caller's to judge.
    ///
    /// - Parameters:
    ///   - token: `header.claims.signature`.
    ///   - key: The key for a header, by its `kid` as a rule; `nil` where none is known.
    /// - Returns: Header and claims, as they were signed.
    /// - Throws: `badToken`, which says what is wrong and never shows the token.
    package static func verify(
        _ token: String,
        with key: (JSONObject) throws -> VerifyingKey?
    ) throws -> (header: JSONObject, claims: JSONObject) {
        guard token.utf8.count <= maximumByteCount else {
            throw CryptographyError.badToken("longer than \(maximumByteCount) bytes")
        }
        let parts = token.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 3 else { throw CryptographyError.badToken("not three parts") }
        let header = try object(parts[0], "header")
        let claims = try object(parts[1], "claims")
        let signature = try bytes(parts[2], "signature")
        guard header["crit"] == nil else {
            throw CryptographyError.badToken("its header has critical extensions")
        }
        guard let key = try key(header) else { throw CryptographyError.badToken("unknown key") }
        guard header["alg"]?.string == key.algorithm.rawValue else {
            throw CryptographyError.badToken("its algorithm is not \(key.algorithm.rawValue)")
        }
        guard key.isValid(signature, for: Array("\(parts[0]).\(parts[1])".utf8)) else {
            throw CryptographyError.badToken("wrong signature")
        }
        return (header, claims)
    }

    private static func object(_ part: Substring, _ name: String) throws -> JSONObject {
        guard let object = (try? JSONValue.parse(bytes(part, name)))?.object else {
            throw CryptographyError.badToken("its \(name) is not a JSON object in base64url")
        }
        return object
    }

    private static func bytes(_ part: Substring, _ name: String) throws -> [UInt8] {
        do {
            return try Base64.decodeURL(String(part))
        } catch {
            throw CryptographyError.badToken("its \(name) is not base64url")
        }
    }
}
