import Apps
import Cryptography
package import HTTPServer
import PushCore
import Storage

/// Proofs for paths that name the app by its id, or by a Firebase project that is linked to it.
extension Proof {
    /// Makes a proof of a token that publishes remote config, or only reads it; `digest` is its
    /// SHA-256.
    package init(project: String, configToken digest: [UInt8]) {
        self.init(.project(project), rights: .client) { app, _ in
            // All tokens are compared, so that the time reveals nothing. No minimum length applies,
            // as all tokens are long.
            let found = app.configTokens.reduce(nil as StoredConfigToken?) { found, token in
                constantTimeEqual(token.digest, digest) ? token : found
            }
            return found.map { .configToken(name: $0.name, isReadOnly: $0.isReadOnly) }
        }
    }

    /// Makes a proof of the app key, or of a client key of another platform that is linked to the
    /// app.
    package init(project: String, clientKey key: String) {
        self.init(.project(project), rights: .client) { app, minimumKeyBytes in
            let isAppKey = app.accepts(.app, ofBytes: minimumKeyBytes) {
                constantTimeEqual(key, $0)
            }
            if isAppKey { return .key }
            let linked = app.links.filter { $0.kind == .firebaseAPIKey }
            guard !linked.isEmpty, key.utf8.count >= minimumKeyBytes else { return nil }
            let digest = Hex.encode(sha256(Array(key.utf8)))
            let isLinked = linked.reduce(false) { known, link in
                constantTimeEqual(link.name, digest) || known
            }
            return isLinked ? .linkedKey : nil
        }
    }

    /// Makes a proof of an identity pool's name only, if its app accepts such calls.
    package init(unsignedFor pool: String) {
        self.init(.pool(pool), rights: .client) { app, _ in
            app.settings.takesUnsignedSync ? .key : nil
        }
    }

    /// Reads the credentials of Carillon's own routes, for a caller whose headers and path name the
    /// same app.
    ///
    /// - Throws: `Refusal.unauthorized` if there are no readable credentials.
    package init(project: String, headers: HTTPHeaders) throws(Refusal) {
        self = try Proof(headers: headers).about(project: project)
    }
}
