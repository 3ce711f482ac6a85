internal import COpenSSL

/// Hybrid public key encryption of one message: base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256,
/// AES-256-GCM. The sender stores nothing that could open the message again.
///
/// Values without states. OpenSSL 3.0 has no HPKE of its own, so it is composed here as in the RFC,
/// and checked against its vectors.
///
/// - SeeAlso: RFC 9180, sections 4.1, 5.1 and 6.1.
package enum HPKE {
    package static let publicKeyBytes = 32
    private static let tagBytes = AESGCM.tagByteCount

    /// Whether a key is usable for sealing: 32 bytes, and not a point of low order. With such a
    /// point, for example all zeros, the shared secret would be all zeros, which anyone knows.
    package static func isUsable(publicKey: [UInt8]) -> Bool {
        guard publicKey.count == publicKeyBytes, let key = try? X25519Key.generate() else {
            return false
        }
        return (try? key.secretShared(with: publicKey)) != nil
    }

    /// Generates a key pair, for tests and examples, as devices make their own.
    package static func generateKeys() throws(CryptographyError) -> (
        privateKey: [UInt8], publicKey: [UInt8]
    ) {
        let key = try X25519Key.generate()
        return (try key.privateBytes(), try key.publicBytes())
    }

    /// Seals to the holder of a private key.
    ///
    /// - Parameters:
    ///   - plaintext: At most 2³⁰ bytes.
    ///   - publicKey: The recipient's key.
    ///   - info: The purpose of the message; the recipient passes the same.
    ///   - aad: The context of the message; the recipient passes the same.
    /// - Returns: The encapsulated key (32 bytes), the ciphertext, the tag (16 bytes).
    /// - Throws: `unsupportedKey` for an unusable key, `library`.
    package static func seal(
        _ plaintext: [UInt8],
        to publicKey: [UInt8],
        info: [UInt8],
        authenticating aad: [UInt8]
    ) throws(CryptographyError) -> [UInt8] {
        try seal(
            plaintext,
            to: publicKey,
            info: info,
            authenticating: aad,
            ephemeral: try X25519Key.generate()
        )
    }

    /// Seals with a given ephemeral key, as in the RFC's vectors; a key that seals twice reveals
    /// both messages.
    static func seal(
        _ plaintext: [UInt8],
        to publicKey: [UInt8],
        info: [UInt8],
        authenticating aad: [UInt8],
        ephemeral: X25519Key
    ) throws(CryptographyError) -> [UInt8] {
        let encapsulated = try ephemeral.publicBytes()
        let secret = sharedSecret(
            try ephemeral.secretShared(with: publicKey),
            encapsulated: encapsulated,
            recipient: publicKey
        )
        let (key, nonce) = schedule(secret, info: info)
        let (ciphertext, tag) = try AESGCM.encrypt(
            plaintext,
            key: key,
            nonce: nonce,
            authenticating: aad
        )
        return encapsulated + ciphertext + tag
    }

    /// Opens a message of `seal`. Carillon never does: it has no device's private key.
    ///
    /// - Throws: `notAuthentic` for everything else.
    package static func open(
        _ sealed: [UInt8],
        with privateKey: [UInt8],
        info: [UInt8],
        authenticating aad: [UInt8]
    ) throws(CryptographyError) -> [UInt8] {
        guard sealed.count >= publicKeyBytes + tagBytes else { throw .notAuthentic }
        let encapsulated = Array(sealed[..<publicKeyBytes])
        let own = try X25519Key(privateBytes: privateKey)
        guard let shared = try? own.secretShared(with: encapsulated) else { throw .notAuthentic }
        let secret = sharedSecret(
            shared,
            encapsulated: encapsulated,
            recipient: try own.publicBytes()
        )
        let (key, nonce) = schedule(secret, info: info)
        return try AESGCM.decrypt(
            Array(sealed[publicKeyBytes..<(sealed.count - tagBytes)]),
            tag: Array(sealed.suffix(tagBytes)),
            key: key,
            nonce: nonce,
            authenticating: aad
        )
    }

    // MARK: The key schedule

    /// `KEM`, DHKEM(X25519, HKDF-SHA256).
    private static let kemSuite = Array("KEM".utf8) + [0x00, 0x20]
    /// `HPKE`, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM.
    private static let suite = Array("HPKE".utf8) + [0x00, 0x20, 0x00, 0x01, 0x00, 0x02]
    private static let version = Array("HPKE-v1".utf8)
    private static let baseMode: UInt8 = 0

    /// Derives the shared secret from the Diffie-Hellman result (section 4.1).
    static func sharedSecret(
        _ shared: [UInt8],
        encapsulated: [UInt8],
        recipient: [UInt8]
    ) -> [UInt8] {
        let key = extract(salt: [], "eae_prk", shared, kemSuite)
        return expand(key, "shared_secret", encapsulated + recipient, 32, kemSuite)
    }

    /// Derives key and nonce (section 5.1), without a pre-shared key.
    private static func schedule(
        _ secret: [UInt8],
        info: [UInt8]
    ) -> (key: [UInt8], nonce: [UInt8]) {
        let context =
            [baseMode] + extract(salt: [], "psk_id_hash", [], suite)
            + extract(salt: [], "info_hash", info, suite)
        let key = extract(salt: secret, "secret", [], suite)
        return (
            expand(key, "key", context, 32, suite),
            expand(key, "base_nonce", context, AESGCM.nonceByteCount, suite)
        )
    }

    private static func extract(
        salt: [UInt8],
        _ label: String,
        _ material: [UInt8],
        _ suite: [UInt8]
    ) -> [UInt8] {
        hmacSHA256(key: salt, version + suite + Array(label.utf8) + material)
    }

    /// Expands to at most the 32 bytes of one HKDF round, which is enough here.
    private static func expand(
        _ key: [UInt8],
        _ label: String,
        _ info: [UInt8],
        _ count: UInt8,
        _ suite: [UInt8]
    ) -> [UInt8] {
        let labeled = [0, count] + version + suite + Array(label.utf8) + info
        return Array(hmacSHA256(key: key, labeled + [1]).prefix(Int(count)))
    }

    private static func expand(
        _ key: [UInt8],
        _ label: String,
        _ info: [UInt8],
        _ count: Int,
        _ suite: [UInt8]
    ) -> [UInt8] {
        expand(key, label, info, UInt8(count), suite)
    }
}

/// One X25519 key pair.
struct X25519Key {
    private let handle: KeyHandle

    static func generate() throws(CryptographyError) -> X25519Key {
        try X25519Key(privateBytes: randomBytes(HPKE.publicKeyBytes))
    }

    /// Makes a key from any 32 bytes, as all of them are valid.
    init(privateBytes: [UInt8]) throws(CryptographyError) {
        guard privateBytes.count == HPKE.publicKeyBytes else {
            throw .unsupportedKey("an X25519 key has 32 bytes")
        }
        guard
            let key = unsafe EVP_PKEY_new_raw_private_key(
                EVP_PKEY_X25519,
                nil,
                privateBytes,
                privateBytes.count
            )
        else { throw libraryFailure("EVP_PKEY_new_raw_private_key") }
        handle = unsafe KeyHandle(adopting: key)
    }

    func publicBytes() throws(CryptographyError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: HPKE.publicKeyBytes)
        var count = bytes.count
        guard unsafe EVP_PKEY_get_raw_public_key(handle.pointer, &bytes, &count) == 1 else {
            throw libraryFailure("EVP_PKEY_get_raw_public_key")
        }
        return bytes
    }

    func privateBytes() throws(CryptographyError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: HPKE.publicKeyBytes)
        var count = bytes.count
        guard unsafe EVP_PKEY_get_raw_private_key(handle.pointer, &bytes, &count) == 1 else {
            throw libraryFailure("EVP_PKEY_get_raw_private_key")
        }
        return bytes
    }

    /// - Throws: `unsupportedKey` if the peer's key is unusable.
    func secretShared(with publicKey: [UInt8]) throws(CryptographyError) -> [UInt8] {
        guard publicKey.count == HPKE.publicKeyBytes,
            let raw = unsafe EVP_PKEY_new_raw_public_key(
                EVP_PKEY_X25519,
                nil,
                publicKey,
                publicKey.count
            )
        else {
            ERR_clear_error()
            throw .unsupportedKey("an X25519 key has 32 bytes")
        }
        let peer = unsafe KeyHandle(adopting: raw)
        guard let context = unsafe EVP_PKEY_CTX_new(handle.pointer, nil) else {
            throw libraryFailure("EVP_PKEY_CTX_new")
        }
        defer { unsafe EVP_PKEY_CTX_free(context) }
        var secret = [UInt8](repeating: 0, count: 32)
        var count = secret.count
        guard unsafe EVP_PKEY_derive_init(context) == 1,
            unsafe EVP_PKEY_derive_set_peer(context, peer.pointer) == 1,
            unsafe EVP_PKEY_derive(context, &secret, &count) == 1,
            count == 32, secret.contains(where: { $0 != 0 })
        else {
            ERR_clear_error()
            throw .unsupportedKey("the X25519 key is a point of low order")
        }
        return secret
    }
}
