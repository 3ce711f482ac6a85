import Apps
import Cryptography
package import HTTPServer
import Storage

extension Proof {
    /// Makes a proof of an app key alone. The key belongs to one app, so it also names the app.
    package init(appKey key: String) {
        let digest = Hex.encode(sha256(Array(key.utf8)))
        self.init(.keyDigest(digest), rights: .client) { app, minimumKeyBytes in
            app.accepts(.app, ofBytes: minimumKeyBytes) { constantTimeEqual(key, $0) } ? .key : nil
        }
    }

    /// Reads the credentials of clients that identify an app by its key: Basic with the app key as
    /// user and no password, else the credentials of Carillon's own routes.
    ///
    /// - Throws: `Refusal.unauthorized` if there are no readable credentials.
    package init(keyOrHeaders headers: HTTPHeaders) throws(Refusal) {
        if let key = Self.loneKey(headers["authorization"]) {
            self.init(appKey: key)
        } else {
            self = try Proof(headers: headers)
        }
    }

    /// Returns the user of Basic credentials without a password.
    private static func loneKey(_ header: String?) -> String? {
        let parts = header?.split(separator: " ", maxSplits: 1) ?? []
        guard parts.count == 2, parts[0].lowercased() == "basic",
            let bytes = try? Base64.decode(String(parts[1])),
            let text = String(validating: bytes, as: UTF8.self), !text.isEmpty
        else { return nil }
        guard let colon = text.utf8.firstIndex(of: UInt8(ascii: ":")) else { return text }
        let key = text[..<colon]
        return text.utf8.index(after: colon) == text.utf8.endIndex && !key.isEmpty
            ? String(key) : nil
    }
}
