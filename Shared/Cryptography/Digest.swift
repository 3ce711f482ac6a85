internal import COpenSSL

package func sha256(_ message: [UInt8]) -> [UInt8] { HashFunction.sha256.hash(message) }

package func sha1(_ message: [UInt8]) -> [UInt8] { HashFunction.sha1.hash(message) }

/// Hashes with MD5, only for protocols that require it (LeanCloud's `X-LC-Sign`).
package func md5(_ message: [UInt8]) -> [UInt8] { HashFunction.md5.hash(message) }

package func hmacSHA256(key: [UInt8], _ message: [UInt8]) -> [UInt8] {
    var result = [UInt8](repeating: 0, count: 32)
    var count: UInt32 = 0
    // An empty key is legal, but an empty array may have no address.
    let padded = key.isEmpty ? [0] : key
    let answer = unsafe HMAC(
        EVP_sha256(),
        padded,
        Int32(key.count),
        message,
        message.count,
        &result,
        &count
    )
    guard unsafe answer != nil, count == 32 else { fatalError("libcrypto has no HMAC-SHA256") }
    return result
}

/// SHA-256 of many short messages, one after the other: it reuses the memory that OpenSSL would
/// allocate for each. Confined to its owner.
@safe
package final class SHA256Hasher: @unchecked Sendable {
    private let context: OpaquePointer

    package init() {
        guard let context = unsafe EVP_MD_CTX_new() else { fatalError("out of memory") }
        unsafe self.context = context
    }

    deinit { unsafe EVP_MD_CTX_free(context) }

    /// Writes the message's 32 bytes into `digest`.
    package func hash(_ message: [UInt8], into digest: inout [UInt8]) {
        unsafe HashFunction.sha256.hash(message, in: context, into: &digest)
    }
}

/// One digest algorithm, fetched once: OpenSSL 3 otherwise looks it up for each use.
@safe
private struct HashFunction: @unchecked Sendable {
    static let sha256 = HashFunction("SHA256", bytes: 32)
    static let sha1 = HashFunction("SHA1", bytes: 20)
    static let md5 = HashFunction("MD5", bytes: 16)

    private let algorithm: OpaquePointer
    private let byteCount: Int

    /// Fetches a name that every OpenSSL's default provider has.
    private init(_ name: String, bytes: Int) {
        guard let algorithm = unsafe EVP_MD_fetch(nil, name, nil) else {
            fatalError("libcrypto has no \(name)")
        }
        unsafe self.algorithm = algorithm
        byteCount = bytes
    }

    func hash(_ message: [UInt8]) -> [UInt8] {
        var result = [UInt8](repeating: 0, count: byteCount)
        guard
            unsafe EVP_Digest(message, message.count, &result, nil, algorithm, nil) == 1
        else { fatalError("libcrypto cannot hash") }
        return result
    }

    func hash(_ message: [UInt8], in context: OpaquePointer, into result: inout [UInt8]) {
        if result.count != byteCount { result = Array(repeating: 0, count: byteCount) }
        guard unsafe EVP_DigestInit_ex2(context, algorithm, nil) == 1,
            unsafe EVP_DigestUpdate(context, message, message.count) == 1,
            unsafe EVP_DigestFinal_ex(context, &result, nil) == 1
        else { fatalError("libcrypto cannot hash") }
    }
}
