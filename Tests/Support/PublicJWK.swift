package import Cryptography
package import JSON

/// Returns the JWK of a key, by the positions of its numbers in a SubjectPublicKeyInfo: for P-256
/// the last 64 bytes are the point; for RSA the exponent comes last, 65537 in three bytes, after a
/// header of two.
package func publicJWK(_ key: SigningKey, _ kid: String?) throws -> JSONValue {
    let base64 = try key.publicKeyPEM().split(separator: "\n").dropFirst().dropLast().joined()
    let der = try Base64.decode(base64)
    var members: JSONObject
    switch key.algorithm {
    case .es256:
        members = ["kty": "EC", "crv": "P-256"]
        members["x"] = .string(Base64.encodeURL(Array(der.suffix(64).prefix(32))))
        members["y"] = .string(Base64.encodeURL(Array(der.suffix(32))))
    case .rs256:
        members = ["kty": "RSA", "e": "AQAB"]
        members["n"] = .string(Base64.encodeURL(Array(der.dropLast(5).suffix(256))))
    }
    members["kid"] = kid.map { .string($0) }
    return .object(members)
}
