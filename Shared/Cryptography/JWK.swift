internal import COpenSSL
package import JSON

/// The public keys of an issuer: those for ES256 or RS256. Other keys in the set are skipped, each
/// with its reason.
///
/// - SeeAlso: RFC 7517, RFC 7518 section 6.
package struct JWKSet: Sendable {
    package struct Key: Sendable {
        package let kid: String?
        package let key: VerifyingKey
        /// The stored members: the key material, and its name.
        fileprivate let members: JSONObject
    }

    package static let maximumKeys = 100
    private static let maximumNameBytes = 512
    /// The number of keys that are tried, at most, for a token without a `kid`.
    package static let maximumCandidates = 8

    package let keys: [Key]
    /// Why other members of the set are not among the keys.
    package let passedOver: [String]

    /// - Throws: `unsupportedKey` if it is not a set, or has too many keys. A set without a usable
    ///   key is valid.
    package init(_ json: JSONValue) throws(CryptographyError) {
        guard let members = json["keys"]?.array else {
            throw .unsupportedKey("a JWK set is an object with an array \"keys\"")
        }
        guard members.count <= Self.maximumKeys else {
            throw .unsupportedKey("a JWK set of more than \(Self.maximumKeys) keys")
        }
        var keys: [Key] = []
        var passedOver: [String] = []
        for member in members {
            do throws(PassedOver) {
                keys.append(try Self.key(member))
            } catch {
                passedOver.append(error.reason)
            }
        }
        self.keys = keys
        self.passedOver = passedOver
    }

    /// The set with only the usable keys, and only their key material.
    package var json: JSONValue { ["keys": .array(keys.map { .object($0.members) })] }

    /// Returns the keys that may have signed a token, by its header.
    package func candidates(kid: String?, algorithm: JWTAlgorithm) -> [VerifyingKey] {
        let fitting = keys.lazy.filter { candidate in
            guard candidate.key.algorithm == algorithm else { return false }
            guard let kid else { return true }
            guard let name = candidate.kid else { return false }
            return name.utf8.elementsEqual(kid.utf8)
        }
        return fitting.prefix(Self.maximumCandidates).map(\.key)
    }

    // MARK: One key

    private struct PassedOver: Error {
        let reason: String
        init(_ reason: String) { self.reason = reason }
    }

    private static func key(_ json: JSONValue) throws(PassedOver) -> Key {
        guard let members = json.object else { throw PassedOver("it is not an object") }
        if let use = members["use"], use != "sig" {
            throw PassedOver("its use is not for signatures")
        }
        if let operations = members["key_ops"],
            operations.array?.contains("verify") != true
        {
            throw PassedOver("its key_ops do not verify")
        }
        // A published private key is compromised.
        guard members["d"] == nil else { throw PassedOver("it is a private key") }
        let name = members["kid"]
        guard name == nil || (name?.string?.utf8.count).map({ $0 <= maximumNameBytes }) == true
        else { throw PassedOver("its kid is not a string, or too long") }
        let key: VerifyingKey
        let parts: [String]
        switch members["kty"]?.string {
        case "EC":
            parts = ["crv", "x", "y"]
            key = try ellipticKey(members)
        case "RSA":
            parts = ["n", "e"]
            key = try rsaKey(members)
        default: throw PassedOver("it is neither EC nor RSA")
        }
        if let algorithm = members["alg"], algorithm != .string(key.algorithm.rawValue) {
            throw PassedOver("its alg is not \(key.algorithm.rawValue)")
        }
        var kept: JSONObject = ["kty": members["kty"] ?? .null]
        for part in parts { kept[part] = members[part] }
        kept["kid"] = name
        return Key(kid: name?.string, key: key, members: kept)
    }

    private static func ellipticKey(_ members: JSONObject) throws(PassedOver) -> VerifyingKey {
        guard members["crv"] == "P-256" else { throw PassedOver("its curve is not P-256") }
        let (x, y) = (try bytes(members["x"]), try bytes(members["y"]))
        guard x.count == 32, y.count == 32 else {
            throw PassedOver("its coordinates do not have 32 bytes")
        }
        let point = DER.bits([4] + x + y)
        // OpenSSL refuses a point that is not on the curve.
        return try verifyingKey(
            DER.sequence(DER.sequence(DER.ecPublicKey + DER.prime256v1) + point)
        )
    }

    private static func rsaKey(_ members: JSONObject) throws(PassedOver) -> VerifyingKey {
        let modulus = try bytes(members["n"]).drop { $0 == 0 }
        let exponent = try bytes(members["e"]).drop { $0 == 0 }
        // A longer modulus would cost the loop milliseconds for each token, and is not used in
        // practice.
        guard modulus.count <= 1024, let last = modulus.last, last & 1 == 1 else {
            throw PassedOver("its modulus is no RSA modulus of at most 8192 bits")
        }
        guard (1...8).contains(exponent.count), let end = exponent.last, end & 1 == 1,
            exponent.count > 1 || end > 1
        else { throw PassedOver("its exponent is not one of RSA") }
        let numbers = DER.sequence(DER.integer(modulus) + DER.integer(exponent))
        return try verifyingKey(
            DER.sequence(DER.sequence(DER.rsaEncryption + DER.null) + DER.bits(numbers))
        )
    }

    private static func bytes(_ value: JSONValue?) throws(PassedOver) -> [UInt8] {
        guard let text = value?.string, let bytes = try? Base64.decodeURL(text) else {
            throw PassedOver("a number of it is not base64url")
        }
        return bytes
    }

    private static func verifyingKey(_ der: [UInt8]) throws(PassedOver) -> VerifyingKey {
        do throws(CryptographyError) {
            let handle = try KeyHandle.publicKey(der: der)
            return VerifyingKey(algorithm: try handle.algorithm(), handle: handle)
        } catch {
            throw PassedOver(error.description)
        }
    }
}

extension KeyHandle {
    /// Reads a SubjectPublicKeyInfo.
    fileprivate static func publicKey(der: [UInt8]) throws(CryptographyError) -> KeyHandle {
        let key = unsafe der.withUnsafeBufferPointer { buffer in
            var start = buffer.baseAddress
            return unsafe d2i_PUBKEY(nil, &start, buffer.count)
        }
        guard let key = unsafe key else {
            ERR_clear_error()
            throw .unsupportedKey("its numbers make no key")
        }
        return unsafe KeyHandle(adopting: key)
    }
}

/// The part of DER that a SubjectPublicKeyInfo needs.
private enum DER {
    static let ecPublicKey: [UInt8] = [6, 7, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 2, 1]
    static let prime256v1: [UInt8] = [6, 8, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 3, 1, 7]
    static let rsaEncryption: [UInt8] = [6, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 1]
    static let null: [UInt8] = [5, 0]

    static func sequence(_ content: [UInt8]) -> [UInt8] { value(0x30, content) }

    static func bits(_ content: [UInt8]) -> [UInt8] { value(3, [0] + content) }

    /// Encodes a number without sign and leading zeros.
    static func integer(_ number: ArraySlice<UInt8>) -> [UInt8] {
        let isHigh = number.first.map { $0 & 0x80 != 0 } ?? true
        return value(2, (isHigh ? [0] : []) + number)
    }

    /// Encodes a value of at most 65535 bytes.
    private static func value(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] {
        let count = content.count
        let length: [UInt8] =
            switch count {
            case ..<0x80: [UInt8(count)]
            case ..<0x100: [0x81, UInt8(count)]
            default: [0x82, UInt8(truncatingIfNeeded: count >> 8), UInt8(count & 0xFF)]
            }
        return [tag] + length + content
    }
}
