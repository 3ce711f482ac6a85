import Cryptography
package import HTTPServer

extension Proof {
    package init(_ credential: LeanCloudCredential) {
        self.init(
            app: credential.app,
            rights: credential.rights,
            isTooOld: credential.isTooOld(maximumSeconds:at:),
            isProved: credential.isProved(by:)
        )
    }

    /// Reads the credentials of Carillon's own routes: `X-LC-Id` with `X-LC-Key` or `X-LC-Sign`, or
    /// Basic `<app>:<master key>`.
    ///
    /// - Throws: `Refusal.unauthorized` if there are no readable credentials.
    package init(headers: HTTPHeaders) throws(Refusal) {
        guard let header = headers["authorization"] else {
            self.init(try LeanCloudCredential(headers: headers))
            return
        }
        let parts = header.split(separator: " ", maxSplits: 1)
        guard parts.count == 2, parts[0].lowercased() == "basic",
            let bytes = try? Base64.decode(String(parts[1])),
            let text = String(validating: bytes, as: UTF8.self),
            let colon = text.firstIndex(of: ":")
        else { throw .unauthorized }
        let key = String(text[text.index(after: colon)...])
        self.init(app: String(text[..<colon]), rights: .master) { constantTimeEqual(key, $0) }
    }
}
