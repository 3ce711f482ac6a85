internal import COpenSSL

/// The keys under which secrets are encrypted at rest: the first seals, all open.
///
/// A sealed value is `1 ‖ length of the key's id ‖ id ‖ nonce (12) ‖ ciphertext ‖ tag (16)`,
/// AES-256-GCM. What precedes the nonce, and the caller's context, are authenticated with it: a
/// value that was moved to another row, column or app does not open.
/// Nonces are random, so a key should seal fewer than 2³² values (NIST SP 800-38D, section 8.3).
package struct KeyRing: Sendable {
    private struct Key: Sendable {
        let id: String
        let bytes: [UInt8]
    }

    private static let version: UInt8 = 1
    private static let nonceByteCount = 12
    private static let tagByteCount = 16

    private let keys: [Key]

    /// Reads `id:base64(32 bytes),…`, the form of `CARILLON_MASTER_KEYS`.
    ///
    /// - Throws: `CryptographyError.badKeyRing`, which counts entries from 1 and shows no key.
    package init(_ text: String) throws(CryptographyError) {
        var keys: [Key] = []
        for (index, entry) in text.split(separator: ",", omittingEmptySubsequences: false)
            .enumerated()
        {
            let parts = entry.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.count == 2, Self.isID(parts[0]) else {
                throw .badKeyRing(
                    "entry \(index + 1) is not <id>:<base64>, the id 1 to 32 of A-Z a-z 0-9 . _ -"
                )
            }
            guard let bytes = try? Base64.decode(String(parts[1])), bytes.count == 32 else {
                throw .badKeyRing("entry \(index + 1) does not hold 32 bytes in base64")
            }
            guard !keys.contains(where: { $0.id == parts[0] }) else {
                throw .badKeyRing("entry \(index + 1) repeats an id")
            }
            keys.append(Key(id: String(parts[0]), bytes: bytes))
        }
        self.keys = keys
    }

    /// The key that seals.
    package var primaryKeyID: String { keys[0].id }

    /// Encrypts under the first key.
    ///
    /// - Parameters:
    ///   - plaintext: At most 2³⁰ bytes.
    ///   - context: What the value is and whose, as `credential/shop/apns/com.example.shop`.
    /// - Returns: The sealed value, as this type's comment lays it out.
    /// - Throws: `library`, where OpenSSL itself fails.
    package func seal(_ plaintext: [UInt8], context: String) throws(CryptographyError) -> [UInt8] {
        let key = keys[0]
        let head = [Self.version, UInt8(key.id.utf8.count)] + Array(key.id.utf8)
        let nonce = randomBytes(Self.nonceByteCount)
        let (ciphertext, tag) = try encrypt(
            plaintext,
            key: key.bytes,
            nonce: nonce,
            authenticating: head + Array(context.utf8)
        )
        return head + nonce + ciphertext + tag
    }

    /// Decrypts what `seal` made, with whichever of the keys it names.
    ///
    /// - Throws: `unknownKey`, or `notAuthentic` for everything that was not sealed so.
    package func open(_ sealed: [UInt8], context: String) throws(CryptographyError) -> [UInt8] {
        guard let id = Self.keyID(of: sealed) else { throw .notAuthentic }
        guard let key = keys.first(where: { $0.id == id }) else { throw .unknownKey(id) }
        let headEnd = 2 + Int(sealed[1])
        let nonceEnd = headEnd + Self.nonceByteCount
        let tagStart = sealed.count - Self.tagByteCount
        guard tagStart >= nonceEnd else { throw .notAuthentic }
        return try decrypt(
            Array(sealed[nonceEnd..<tagStart]),
            tag: Array(sealed[tagStart...]),
            key: key.bytes,
            nonce: Array(sealed[headEnd..<nonceEnd]),
            authenticating: sealed[..<headEnd] + Array(context.utf8)
        )
    }

    /// The id of the key that sealed this; `nil` where it is nothing that `seal` made.
    package static func keyID(of sealed: [UInt8]) -> String? {
        guard sealed.count > 2, sealed[0] == version, 1...32 ~= sealed[1],
            sealed.count >= 2 + Int(sealed[1])
        else { return nil }
        let id = String(decoding: sealed[2..<2 + Int(sealed[1])], as: UTF8.self)
        return isID(id[...]) ? id : nil
    }

    private static func isID(_ text: Substring) -> Bool {
        1...32 ~= text.utf8.count
            && text.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "_"),
                    UInt8(ascii: "-"):
                    true
                default: false
                }
            }
    }
}

// MARK: - AES-256-GCM

private let maximumByteCount = 1 << 30

/// Sole owner of one `EVP_CIPHER_CTX`, which is wiped and freed when the value dies.
@safe
private struct CipherContext: ~Copyable {
    let pointer: OpaquePointer

    init() throws(CryptographyError) {
        guard let pointer = unsafe EVP_CIPHER_CTX_new() else {
            throw libraryFailure("EVP_CIPHER_CTX_new")
        }
        unsafe self.pointer = pointer
    }

    deinit { unsafe EVP_CIPHER_CTX_free(pointer) }

    /// Starts AES-256-GCM and feeds what is authenticated only.
    func start(
        key: [UInt8],
        nonce: [UInt8],
        authenticating data: [UInt8],
        encrypts: Bool
    ) throws(CryptographyError) {
        var count: Int32 = 0
        guard
            unsafe EVP_CipherInit_ex(
                pointer,
                EVP_aes_256_gcm(),
                nil,
                key,
                nonce,
                encrypts ? 1 : 0
            ) == 1,
            unsafe EVP_CipherUpdate(pointer, nil, &count, data, Int32(data.count)) == 1
        else { throw libraryFailure("EVP_CipherInit_ex") }
    }

    /// Encrypts or decrypts; the last block is the caller's to finish.
    func update(_ input: [UInt8]) throws(CryptographyError) -> [UInt8] {
        guard !input.isEmpty else { return [] }
        var output = [UInt8](repeating: 0, count: input.count)
        var count: Int32 = 0
        guard
            unsafe EVP_CipherUpdate(pointer, &output, &count, input, Int32(input.count)) == 1,
            Int(count) == input.count
        else { throw libraryFailure("EVP_CipherUpdate") }
        return output
    }

    /// Whether the end is right: always when encrypting, only for a true tag when decrypting.
    func finish() -> Bool {
        var rest = [UInt8](repeating: 0, count: 16)
        var count: Int32 = 0
        let isRight = unsafe EVP_CipherFinal_ex(pointer, &rest, &count) == 1
        if !isRight { ERR_clear_error() }
        return isRight
    }
}

private func encrypt(
    _ plaintext: [UInt8],
    key: [UInt8],
    nonce: [UInt8],
    authenticating data: [UInt8]
) throws(CryptographyError) -> (ciphertext: [UInt8], tag: [UInt8]) {
    guard plaintext.count <= maximumByteCount else { throw .library("sealing over 2^30 bytes") }
    let context = try CipherContext()
    try context.start(key: key, nonce: nonce, authenticating: data, encrypts: true)
    let ciphertext = try context.update(plaintext)
    var tag = [UInt8](repeating: 0, count: 16)
    guard context.finish(),
        unsafe EVP_CIPHER_CTX_ctrl(context.pointer, EVP_CTRL_AEAD_GET_TAG, 16, &tag) == 1
    else { throw libraryFailure("EVP_CipherFinal_ex") }
    return (ciphertext, tag)
}

private func decrypt(
    _ ciphertext: [UInt8],
    tag: [UInt8],
    key: [UInt8],
    nonce: [UInt8],
    authenticating data: [UInt8]
) throws(CryptographyError) -> [UInt8] {
    guard ciphertext.count <= maximumByteCount else { throw .notAuthentic }
    let context = try CipherContext()
    try context.start(key: key, nonce: nonce, authenticating: data, encrypts: false)
    let plaintext = try context.update(ciphertext)
    var tag = tag
    guard unsafe EVP_CIPHER_CTX_ctrl(context.pointer, EVP_CTRL_AEAD_SET_TAG, 16, &tag) == 1 else {
        throw libraryFailure("EVP_CIPHER_CTX_ctrl")
    }
    guard context.finish() else { throw .notAuthentic }
    return plaintext
}
