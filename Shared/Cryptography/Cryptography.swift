internal import COpenSSL

/// The only room that sees keys: digests, the key ring that seals what is secret at rest, JSON Web
/// Tokens (ES256, RS256), and certificates.
///
/// Authority: OpenSSL 3 does the arithmetic; this room decides what is accepted. Values without
/// states; keys are freed, and wiped by OpenSSL, when the last value that holds them dies. No error
/// and no description holds key material, plaintext or a token.
package enum CryptographyError: Error, Equatable, Sendable, CustomStringConvertible {
    /// A key ring's text cannot be used; says which entry, and why.
    case badKeyRing(String)
    /// A sealed value names a key that the ring does not hold.
    case unknownKey(String)
    /// A sealed value is not what was sealed: cut, altered, or sealed for another context.
    case notAuthentic
    /// A PEM text cannot be used; says what was expected.
    case badPEM(String)
    /// A key that reads well but is of the wrong kind; says what it must be.
    case unsupportedKey(String)
    /// A token's form, algorithm or signature is wrong; says which.
    case badToken(String)
    /// A certificate and a private key do not belong together, or one cannot be used.
    case badCertificate(String)
    /// Base64 or hexadecimal text that is not strictly that.
    case badEncoding(String)
    /// OpenSSL refused for a reason of its own: out of memory, or a provider is missing.
    case library(String)

    package var description: String {
        switch self {
        case .badKeyRing(let reason): "key ring: \(reason)"
        case .unknownKey(let id): "sealed with key \"\(id)\", which the key ring does not hold"
        case .notAuthentic: "sealed value is cut, altered, or not of this context"
        case .badPEM(let reason): "PEM: \(reason)"
        case .unsupportedKey(let reason): "key: \(reason)"
        case .badToken(let reason): "token: \(reason)"
        case .badCertificate(let reason): "certificate: \(reason)"
        case .badEncoding(let reason): "encoding: \(reason)"
        case .library(let call): "libcrypto: \(call) failed"
        }
    }
}

/// `count` bytes that nobody can guess.
package func randomBytes(_ count: Int) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    if unsafe RAND_bytes(&bytes, Int32(count)) == 1 { return bytes }
    ERR_clear_error()
    // OpenSSL's generator did not start; the kernel's, which the standard library reads, has.
    var generator = SystemRandomNumberGenerator()
    for index in bytes.indices { bytes[index] = UInt8.random(in: 0...255, using: &generator) }
    return bytes
}

/// Whether both are the same, in a time that tells nothing but whether their lengths are.
package func constantTimeEqual(_ left: [UInt8], _ right: [UInt8]) -> Bool {
    guard left.count == right.count else { return false }
    var difference: UInt8 = 0
    for index in left.indices { difference |= left[index] ^ right[index] }
    return difference == 0
}

/// Whether both texts are the same byte by byte, in a time that tells nothing but their lengths.
package func constantTimeEqual(_ left: String, _ right: String) -> Bool {
    constantTimeEqual(Array(left.utf8), Array(right.utf8))
}

/// The error for a call that failed for OpenSSL's own reasons; empties its queue of errors, so that
/// the next caller does not read ours.
func libraryFailure(_ call: String) -> CryptographyError {
    ERR_clear_error()
    return .library(call)
}
