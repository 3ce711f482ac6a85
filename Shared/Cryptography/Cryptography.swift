internal import COpenSSL

/// The only module that handles keys: digests, the key ring that seals secrets at rest, JSON Web
/// Tokens (ES256, RS256), and certificates.
///
/// Authority: OpenSSL 3 does the arithmetic; this module decides what is accepted. Values without
/// states; keys are freed, and wiped by OpenSSL, when the last value that holds them dies. No error
/// and no description contains key material, plaintext or a token.
package enum CryptographyError: Error, Equatable, Sendable, CustomStringConvertible {
    /// A key ring's string is invalid; names the entry and the reason.
    case badKeyRing(String)
    /// A sealed value names a key that is not in the ring.
    case unknownKey(String)
    /// A sealed value is not authentic: cut, altered, or sealed for another context.
    case notAuthentic
    /// A PEM string is invalid; says what was expected.
    case badPEM(String)
    /// A valid key of the wrong kind; says what it must be.
    case unsupportedKey(String)
    /// A token's form, algorithm or signature is invalid; says which.
    case badToken(String)
    /// A certificate and a private key do not match, or one is invalid.
    case badCertificate(String)
    /// Invalid Base64 or hexadecimal text.
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

/// Returns `count` unpredictable bytes.
package func randomBytes(_ count: Int) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    if unsafe RAND_bytes(&bytes, Int32(count)) == 1 { return bytes }
    ERR_clear_error()
    // OpenSSL's generator did not start. The standard library uses the kernel's, which did.
    var generator = SystemRandomNumberGenerator()
    for index in bytes.indices { bytes[index] = UInt8.random(in: 0...255, using: &generator) }
    return bytes
}

/// Whether both are equal, in a time that reveals only whether their lengths are equal.
package func constantTimeEqual(_ left: [UInt8], _ right: [UInt8]) -> Bool {
    guard left.count == right.count else { return false }
    var difference: UInt8 = 0
    for index in left.indices { difference |= left[index] ^ right[index] }
    return difference == 0
}

/// Whether both strings are equal byte by byte, in a time that reveals only their lengths.
package func constantTimeEqual(_ left: String, _ right: String) -> Bool {
    constantTimeEqual(Array(left.utf8), Array(right.utf8))
}

/// Returns the error of a call that failed for OpenSSL's own reasons; empties its error queue, so
/// that the next caller does not read this error.
func libraryFailure(_ call: String) -> CryptographyError {
    ERR_clear_error()
    return .library(call)
}
