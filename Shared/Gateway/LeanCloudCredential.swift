import Cryptography
package import HTTPServer
package import PushCore

/// The credentials of a request: the app's id, and a proof that the sender has its key.
///
/// `X-LC-Key` carries the key itself, with `,master` appended for the master key. `X-LC-Sign`
/// carries `md5hex(timestamp + key),timestamp[,master]`; the hex digits must be lower case. The app
/// sets the maximum age of signatures, as no limit is known that all shipped clients meet. The
/// header names of the AVOSCloud era mean the same.
package struct LeanCloudCredential: Equatable, Sendable {
    package enum Evidence: Equatable, Sendable {
        case key(String)
        case signature(digest: String, timestamp: String)
    }

    package let app: String
    package let evidence: Evidence
    package let rights: CallerRights

    /// - Throws: `Refusal.unauthorized` if the id or the proof is missing or malformed.
    package init(headers: HTTPHeaders) throws(Refusal) {
        guard let app = headers["x-lc-id"] ?? headers["x-avoscloud-application-id"],
            AppID.isWellFormed(app)
        else { throw .unauthorized }
        self.app = app
        let signature = headers["x-lc-sign"] ?? headers["x-avoscloud-request-sign"]
        let key = headers["x-lc-key"] ?? headers["x-avoscloud-application-key"]
        if let signature {
            let parts = signature.split(separator: ",", omittingEmptySubsequences: false)
            guard parts.count == 2 || (parts.count == 3 && parts[2] == "master"),
                parts[0].utf8.count == 32,
                (1...20).contains(parts[1].utf8.count),
                parts[1].utf8.allSatisfy({ (48...57).contains($0) })
            else { throw .unauthorized }
            evidence = .signature(digest: String(parts[0]), timestamp: String(parts[1]))
            rights = parts.count == 3 ? .master : .client
        } else if let key {
            if key.hasSuffix(",master") {
                evidence = .key(String(key.dropLast(",master".count)))
                rights = .master
            } else {
                evidence = .key(key)
                rights = .client
            }
        } else if let master = headers["x-avoscloud-master-key"] {
            evidence = .key(master)
            rights = .master
        } else {
            throw .unauthorized
        }
    }

    /// Makes credentials of a key, whatever name the key was sent under.
    package init(app: String, key: String, rights: CallerRights) {
        self.app = app
        evidence = .key(key)
        self.rights = rights
    }

    /// Whether it is a signature from more than `maximumSeconds` ago, or as far in the future; 0:
    /// any age is accepted. A key has no age.
    package func isTooOld(maximumSeconds: Int, at now: Instant) -> Bool {
        guard maximumSeconds > 0, case .signature(_, let timestamp) = evidence else { return false }
        guard let milliseconds = Int64(timestamp) else { return true }
        let (age, isFar) = now.milliseconds.subtractingReportingOverflow(milliseconds)
        return isFar || age.magnitude > UInt64(maximumSeconds) * 1000
    }

    /// Whether the sender has `key`. Constant time for keys of one length.
    package func isProved(by key: String) -> Bool {
        switch evidence {
        case .key(let presented):
            constantTimeEqual(Array(presented.utf8), Array(key.utf8))
        case .signature(let digest, let timestamp):
            constantTimeEqual(
                Array(digest.utf8),
                Array(Hex.encode(md5(Array((timestamp + key).utf8))).utf8)
            )
        }
    }
}
