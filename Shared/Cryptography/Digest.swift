internal import COpenSSL

package func sha256(_ message: [UInt8]) -> [UInt8] { Digest.sha256.hash(message) }

package func sha1(_ message: [UInt8]) -> [UInt8] { Digest.sha1.hash(message) }

/// For protocols that fix it (LeanCloud's `X-LC-Sign`), never for new ones.
package func md5(_ message: [UInt8]) -> [UInt8] { Digest.md5.hash(message) }

package func hmacSHA256(key: [UInt8], _ message: [UInt8]) -> [UInt8] {
    var result = [UInt8](repeating: 0, count: 32)
    var count: UInt32 = 0
    // An empty key is legal, but an empty array may have no address to give.
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

/// One digest algorithm, fetched once: OpenSSL 3 looks it up anew for each use otherwise.
@safe
private struct Digest: @unchecked Sendable {
    static let sha256 = Digest("SHA256", bytes: 32)
    static let sha1 = Digest("SHA1", bytes: 20)
    static let md5 = Digest("MD5", bytes: 16)

    private let algorithm: OpaquePointer
    private let byteCount: Int

    /// Takes a name that every OpenSSL's default provider has.
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
}
