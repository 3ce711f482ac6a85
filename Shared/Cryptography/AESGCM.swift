internal import COpenSSL

/// AES-256-GCM with a nonce of 12 bytes and a tag of 16: the cipher of the key ring and of HPKE.
enum AESGCM {
    static let nonceByteCount = 12
    static let tagByteCount = 16
    private static let maximumByteCount = 1 << 30

    static func encrypt(
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

    static func decrypt(
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
        guard unsafe EVP_CIPHER_CTX_ctrl(context.pointer, EVP_CTRL_AEAD_SET_TAG, 16, &tag) == 1
        else {
            throw libraryFailure("EVP_CIPHER_CTX_ctrl")
        }
        guard context.finish() else { throw .notAuthentic }
        return plaintext
    }
}

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

    /// Starts AES-256-GCM and adds the data that is only authenticated.
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

    /// Encrypts or decrypts; the caller finishes the last block.
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

    /// Whether the end is valid: always when encrypting, only with a valid tag when decrypting.
    func finish() -> Bool {
        var rest = [UInt8](repeating: 0, count: 16)
        var count: Int32 = 0
        let isRight = unsafe EVP_CipherFinal_ex(pointer, &rest, &count) == 1
        if !isRight { ERR_clear_error() }
        return isRight
    }
}
