import Cryptography
import Gateway
import HTTPServer
import JSON
import PushCore

/// The credentials of a request, neither verified nor looked up.
struct SecureCredentials: Sendable {
    enum Shown: Sendable {
        case nothing
        /// A header that cannot be parsed, or that is there twice.
        case malformed
        /// An app key, or a signature made with it.
        case key(LeanCloudCredential)
        case bearer(String)
        /// The secret of a device, as its SHA-256.
        case device(installation: String, digest: [UInt8])
        /// An app with its master key, or an identity with its secret.
        case basic(user: String, password: [UInt8])
    }

    let shown: Shown
    /// The app in the path, or else in a header.
    let app: String?
    /// Whether path and header name different apps.
    let namesTwoApps: Bool

    init(_ request: HTTPServerRequest) {
        let inPath = request.pathParameters["app"]
        let inHeader =
            request.header("x-lc-id") ?? request.header("x-avoscloud-application-id")
        app = inPath ?? inHeader
        namesTwoApps = inPath != nil && inHeader != nil && !inPath.isSame(as: inHeader)
        shown = Self.shown(request.headers)
    }

    private static func shown(_ headers: HTTPHeaders) -> Shown {
        let lines = headers.all("authorization")
        guard lines.count < 2 else { return .malformed }
        guard let line = lines.first else {
            let names = [
                "x-lc-key", "x-lc-sign", "x-avoscloud-application-key",
                "x-avoscloud-request-sign", "x-avoscloud-master-key",
            ]
            guard names.contains(where: headers.contains) else { return .nothing }
            do throws(Refusal) {
                return .key(try LeanCloudCredential(headers: headers))
            } catch {
                return .malformed
            }
        }
        let parts = line.split(separator: " ", maxSplits: 1).map(String.init)
        guard parts.count == 2 else { return .malformed }
        switch parts[0].lowercased() {
        case "bearer": return .bearer(parts[1])
        case "basic": return basic(parts[1])
        default: return .malformed
        }
    }

    private static func basic(_ text: String) -> Shown {
        guard let bytes = try? Base64.decode(text),
            let colon = bytes.firstIndex(of: UInt8(ascii: ":")),
            let user = String(validating: bytes[..<colon], as: UTF8.self)
        else { return .malformed }
        let password = Array(bytes[(colon + 1)...])
        if let digest = DeviceSecret.digest(of: password) {
            return .device(installation: user, digest: digest)
        }
        return .basic(user: user, password: password)
    }
}

/// The secret by which a device authenticates as a reader: random, made here, and stored as its SHA-256.
enum DeviceSecret {
    /// The prefix of device secrets, and of no others.
    static let beginning = "cds_"
    private static let randomByteCount = 32

    static func make() -> (secret: String, digest: [UInt8]) {
        let secret = beginning + Base64.encodeURL(randomBytes(randomByteCount))
        return (secret, sha256(Array(secret.utf8)))
    }

    /// Returns the digest of a device secret; `nil` if it is not one.
    static func digest(of password: [UInt8]) -> [UInt8]? {
        guard password.starts(with: beginning.utf8) else { return nil }
        return sha256(password)
    }
}

/// The secret by which an identity authenticates, if its backend set one.
enum IdentitySecret {
    static let byteCounts = 8...1024
    private static let randomByteCount = 32

    /// Returns what is wrong with a secret that a backend sets; `nil` if it is valid.
    static func problem(_ secret: [UInt8]) -> String? {
        guard byteCounts.contains(secret.count) else {
            return "secret must have \(byteCounts.lowerBound) to \(byteCounts.upperBound) bytes"
        }
        guard !secret.starts(with: DeviceSecret.beginning.utf8) else {
            return "secret must not begin with \(DeviceSecret.beginning), as those of devices do"
        }
        return nil
    }

    static func make() -> String { Base64.encodeURL(randomBytes(randomByteCount)) }
}
