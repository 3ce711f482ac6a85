internal import COpenSSL

package enum JWTAlgorithm: String, Sendable {
    case es256 = "ES256"
    case rs256 = "RS256"
}

/// Sole owner of one `EVP_PKEY`. OpenSSL may use a key from any thread once it is made.
@safe
final class KeyHandle: @unchecked Sendable {
    let pointer: OpaquePointer

    /// Takes ownership of a key.
    init(adopting pointer: OpaquePointer) { unsafe self.pointer = pointer }

    deinit { unsafe EVP_PKEY_free(pointer) }

    /// Reads an unencrypted private key, PKCS#8 or the older forms.
    static func privateKey(pem: String) throws(CryptographyError) -> KeyHandle {
        try unsafe withPEM(pem) { bio throws(CryptographyError) in
            guard let key = unsafe PEM_read_bio_PrivateKey(bio, nil, refusePassphrase, nil) else {
                ERR_clear_error()
                throw .badPEM("expected an unencrypted private key (PKCS#8)")
            }
            return unsafe KeyHandle(adopting: key)
        }
    }

    /// Reads a public key (`-----BEGIN PUBLIC KEY-----`).
    static func publicKey(pem: String) throws(CryptographyError) -> KeyHandle {
        try unsafe withPEM(pem) { bio throws(CryptographyError) in
            guard let key = unsafe PEM_read_bio_PUBKEY(bio, nil, refusePassphrase, nil) else {
                ERR_clear_error()
                throw .badPEM("expected a public key (SubjectPublicKeyInfo)")
            }
            return unsafe KeyHandle(adopting: key)
        }
    }

    /// Returns the only algorithm of this key.
    ///
    /// - Throws: `unsupportedKey` for other curves and kinds, and for RSA below 2048 bits.
    func algorithm() throws(CryptographyError) -> JWTAlgorithm {
        if unsafe EVP_PKEY_is_a(pointer, "EC") == 1 {
            var name = [CChar](repeating: 0, count: 64)
            var length = 0
            guard
                unsafe EVP_PKEY_get_group_name(pointer, &name, name.count, &length) == 1,
                String(decoding: name[..<length].map(UInt8.init(bitPattern:)), as: UTF8.self)
                    == "prime256v1"
            else {
                ERR_clear_error()
                throw .unsupportedKey("its curve is not P-256")
            }
            return .es256
        }
        guard unsafe EVP_PKEY_is_a(pointer, "RSA") == 1 else {
            throw .unsupportedKey("it is neither EC P-256 nor RSA")
        }
        guard unsafe EVP_PKEY_get_bits(pointer) >= 2048 else {
            throw .unsupportedKey("RSA below 2048 bits")
        }
        return .rs256
    }

    func publicKeyPEM() throws(CryptographyError) -> String {
        try unsafe textFromBIO("PEM_write_bio_PUBKEY") { bio in
            unsafe PEM_write_bio_PUBKEY(bio, pointer) == 1
        }
    }

    func privateKeyPEM() throws(CryptographyError) -> String {
        try unsafe textFromBIO("PEM_write_bio_PKCS8PrivateKey") { bio in
            unsafe PEM_write_bio_PKCS8PrivateKey(bio, pointer, nil, nil, 0, nil, nil) == 1
        }
    }
}

/// A private key that signs tokens: EC P-256 (ES256), or RSA of at least 2048 bits (RS256).
package struct SigningKey: Sendable {
    package let algorithm: JWTAlgorithm
    let handle: KeyHandle

    /// Reads an unencrypted private key, as in Apple's `.p8` and Google's `private_key`.
    package init(pem: String) throws(CryptographyError) {
        try self.init(KeyHandle.privateKey(pem: pem))
    }

    private init(_ handle: KeyHandle) throws(CryptographyError) {
        algorithm = try handle.algorithm()
        self.handle = handle
    }

    package static func generateP256() throws(CryptographyError) -> SigningKey {
        guard let key = unsafe carillon_generate_p256() else { throw libraryFailure("EVP_EC_gen") }
        return try SigningKey(unsafe KeyHandle(adopting: key))
    }

    /// Makes an RSA key of at least 2048 bits, which takes some 100 ms.
    package static func generateRSA(bits: Int = 2048) throws(CryptographyError) -> SigningKey {
        guard let key = unsafe carillon_generate_rsa(UInt32(bits)) else {
            throw libraryFailure("EVP_RSA_gen")
        }
        return try SigningKey(unsafe KeyHandle(adopting: key))
    }

    package var isP256: Bool { algorithm == .es256 }

    package var verifyingKey: VerifyingKey { VerifyingKey(algorithm: algorithm, handle: handle) }

    package func publicKeyPEM() throws(CryptographyError) -> String { try handle.publicKeyPEM() }

    /// Returns the key itself, as PKCS#8: for files of mode 0600 and sealed columns only.
    package func privateKeyPEM() throws(CryptographyError) -> String { try handle.privateKeyPEM() }

    /// Signs in JOSE's form: r ‖ s of 32 bytes each (ES256), or PKCS#1 v1.5 (RS256).
    package func sign(_ message: [UInt8]) throws(CryptographyError) -> [UInt8] {
        guard let context = unsafe EVP_MD_CTX_new() else { throw libraryFailure("EVP_MD_CTX_new") }
        defer { unsafe EVP_MD_CTX_free(context) }
        var count = 0
        guard
            unsafe EVP_DigestSignInit(context, nil, EVP_sha256(), nil, handle.pointer) == 1,
            unsafe EVP_DigestSign(context, nil, &count, message, message.count) == 1
        else { throw libraryFailure("EVP_DigestSignInit") }
        var signature = [UInt8](repeating: 0, count: count)
        guard unsafe EVP_DigestSign(context, &signature, &count, message, message.count) == 1 else {
            throw libraryFailure("EVP_DigestSign")
        }
        signature.removeLast(signature.count - count)
        switch algorithm {
        case .es256: return try ECDSASignature.raw(fromDER: signature)
        case .rs256: return signature
        }
    }
}

/// A public key that verifies tokens.
package struct VerifyingKey: Sendable {
    package let algorithm: JWTAlgorithm
    let handle: KeyHandle

    init(algorithm: JWTAlgorithm, handle: KeyHandle) {
        self.algorithm = algorithm
        self.handle = handle
    }

    /// Reads `-----BEGIN PUBLIC KEY-----`.
    package init(pem: String) throws(CryptographyError) {
        let handle = try KeyHandle.publicKey(pem: pem)
        try self.init(algorithm: handle.algorithm(), handle: handle)
    }

    /// Whether the signature, in JOSE's form, was made for the message by this key.
    package func isValid(_ signature: [UInt8], for message: [UInt8]) -> Bool {
        guard let context = unsafe EVP_MD_CTX_new() else { return false }
        defer { unsafe EVP_MD_CTX_free(context) }
        var signature = signature
        if algorithm == .es256 {
            guard let der = try? ECDSASignature.der(fromRaw: signature) else { return false }
            signature = der
        }
        guard
            unsafe EVP_DigestVerifyInit(context, nil, EVP_sha256(), nil, handle.pointer) == 1,
            unsafe EVP_DigestVerify(
                context,
                signature,
                signature.count,
                message,
                message.count
            ) == 1
        else {
            ERR_clear_error()
            return false
        }
        return true
    }
}

/// Converts ECDSA signatures. OpenSSL encodes them in DER; JOSE concatenates the two numbers.
///
/// - SeeAlso: RFC 7518 section 3.4.
private enum ECDSASignature {
    static func raw(fromDER der: [UInt8]) throws(CryptographyError) -> [UInt8] {
        let raw: [UInt8]? = unsafe der.withUnsafeBufferPointer { buffer in
            var start = buffer.baseAddress
            guard let signature = unsafe d2i_ECDSA_SIG(nil, &start, buffer.count) else {
                return nil
            }
            defer { unsafe ECDSA_SIG_free(signature) }
            var (r, s) = ([UInt8](repeating: 0, count: 32), [UInt8](repeating: 0, count: 32))
            guard
                unsafe BN_bn2binpad(ECDSA_SIG_get0_r(signature), &r, 32) == 32,
                unsafe BN_bn2binpad(ECDSA_SIG_get0_s(signature), &s, 32) == 32
            else { return nil }
            return r + s
        }
        guard let raw else { throw libraryFailure("d2i_ECDSA_SIG") }
        return raw
    }

    static func der(fromRaw raw: [UInt8]) throws(CryptographyError) -> [UInt8] {
        guard raw.count == 64 else { throw .badToken("its signature is not 64 bytes") }
        guard let signature = unsafe ECDSA_SIG_new() else { throw libraryFailure("ECDSA_SIG_new") }
        defer { unsafe ECDSA_SIG_free(signature) }
        let r = unsafe BN_bin2bn(Array(raw[..<32]), 32, nil)
        let s = unsafe BN_bin2bn(Array(raw[32...]), 32, nil)
        guard unsafe ECDSA_SIG_set0(signature, r, s) == 1 else {
            unsafe BN_free(r)
            unsafe BN_free(s)
            throw libraryFailure("ECDSA_SIG_set0")
        }
        // The signature owns r and s from here on.
        var start: UnsafeMutablePointer<UInt8>?
        let count = unsafe i2d_ECDSA_SIG(signature, &start)
        guard count > 0, let start = unsafe start else { throw libraryFailure("i2d_ECDSA_SIG") }
        defer { unsafe carillon_free(start) }
        return unsafe Array(UnsafeBufferPointer(start: start, count: Int(count)))
    }
}
