package import JSON

/// JSON Web Tokens in their compact form, signed by ES256 or RS256 and nothing else.
///
/// - SeeAlso: RFC 7515, RFC 7519.
package enum JWT {
    /// The limit beyond which a token is refused unread.
    package static let maximumByteCount = 16 << 10

    /// Signs a token. The header's `alg` is that of the key, whatever the caller set there.
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

    /// Verifies form and signature; the caller validates the claims.
    ///
    /// - Parameters:
    ///   - token: `header.claims.signature`.
    ///   - key: Returns the key for a header, usually by its `kid`; `nil` if it is unknown.
    /// - Returns: Header and claims, as they were signed.
    /// - Throws: `badToken`, which gives the reason and never shows the token.
    package static func verify(
        _ token: String,
        with key: (JSONObject) throws -> VerifyingKey?
    ) throws -> (header: JSONObject, claims: JSONObject) {
        let token = try UnverifiedToken(token)
        guard let key = try key(token.header) else {
            throw CryptographyError.badToken("unknown key")
        }
        guard token.algorithm == key.algorithm else {
            throw CryptographyError.badToken("its algorithm is not \(key.algorithm.rawValue)")
        }
        guard token.isSigned(by: key) else { throw CryptographyError.badToken("wrong signature") }
        return (token.header, token.claims)
    }
}

/// A parsed token whose signature is not verified: anyone might have written it.
package struct UnverifiedToken: Sendable {
    package let header: JSONObject
    package let claims: JSONObject
    /// `nil` for an unsupported algorithm, such as `none` and HS256.
    package let algorithm: JWTAlgorithm?
    private let signed: [UInt8]
    private let signature: [UInt8]

    /// - Throws: `badToken`, which gives the reason and never shows the token.
    package init(_ token: String) throws(CryptographyError) {
        guard token.utf8.count <= JWT.maximumByteCount else {
            throw .badToken("longer than \(JWT.maximumByteCount) bytes")
        }
        let parts = token.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 3 else { throw .badToken("not three parts") }
        header = try Self.object(parts[0], "header")
        claims = try Self.object(parts[1], "claims")
        signature = try Self.bytes(parts[2], "signature")
        signed = Array("\(parts[0]).\(parts[1])".utf8)
        algorithm = header["alg"]?.string.flatMap(JWTAlgorithm.init)
        guard header["crit"] == nil else {
            throw .badToken("its header has critical extensions")
        }
    }

    /// Whether the signature matches this key and its algorithm.
    package func isSigned(by key: VerifyingKey) -> Bool {
        algorithm == key.algorithm && key.isValid(signature, for: signed)
    }

    private static func object(
        _ part: Substring,
        _ name: String
    ) throws(CryptographyError) -> JSONObject {
        let bytes = try bytes(part, name)
        guard let object = (try? JSONValue.parse(bytes))?.object else {
            throw .badToken("its \(name) is not a JSON object in base64url")
        }
        // Other software may read the other value of a duplicate member.
        guard try count(bytes) == object.count else {
            throw .badToken("its \(name) has a member twice")
        }
        return object
    }

    private static func count(_ bytes: [UInt8]) throws(CryptographyError) -> Int {
        do throws(JSONError) {
            return try JSONReader.read(bytes) { reader throws(JSONError) in
                var count = 0
                try reader.object { _, _ in count += 1 }
                return count
            }
        } catch {
            throw .badToken("not JSON")
        }
    }

    private static func bytes(
        _ part: Substring,
        _ name: String
    ) throws(CryptographyError) -> [UInt8] {
        do {
            return try Base64.decodeURL(String(part))
        } catch {
            throw .badToken("its \(name) is not base64url")
        }
    }
}
