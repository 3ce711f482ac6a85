internal import HTTPTransport
package import JSON

/// A validated WNS credential. With a tenant it is an app registration of Entra ID, without a
/// tenant a Store package. The two are not interchangeable.
package struct WNSCredential: Sendable {
    package let clientID: String
    package let tenant: String?
    private let clientSecret: String

    /// - Throws: `CredentialError`, naming `clientID`, `clientSecret` or `tenant`.
    package init(
        validatingClientID clientID: String,
        clientSecret: String,
        tenant: String? = nil
    ) throws(CredentialError) {
        guard (1...512).contains(clientID.utf8.count), isPrintable(clientID) else {
            throw CredentialError("clientID", "must be an app's id, or ms-app://<package SID>")
        }
        guard (1...4096).contains(clientSecret.utf8.count), isPrintable(clientSecret) else {
            throw CredentialError("clientSecret", "must be a line of printable characters")
        }
        if let tenant {
            // The tenant becomes a segment of the token endpoint's path.
            let isTenant =
                (1...255).contains(tenant.utf8.count)
                && tenant.utf8.allSatisfy { byte in
                    (48...57).contains(byte) || (65...90).contains(byte)
                        || (97...122).contains(byte) || byte == 45 || byte == 46
                } && !tenant.hasPrefix(".")
            guard isTenant else {
                throw CredentialError("tenant", "must be a tenant's id or domain")
            }
        }
        self.clientID = clientID
        self.clientSecret = clientSecret
        self.tenant = tenant
    }

    /// Reads the secret in the form that is stored sealed.
    package init(secret: JSONObject) throws(CredentialError) {
        let fields = CredentialFields(object: secret)
        try self.init(
            validatingClientID: try fields.text("clientID"),
            clientSecret: try fields.text("clientSecret"),
            tenant: try fields.optionalText("tenant")
        )
    }

    /// The object that is stored sealed.
    package var secret: JSONObject {
        var object = summary
        object["clientSecret"] = .string(clientSecret)
        return object
    }

    /// The object that lists show. It has no secrets.
    package var summary: JSONObject {
        var object: JSONObject = ["clientID": .string(clientID)]
        object["tenant"] = tenant.map { .string($0) }
        return object
    }

    func tokenRequest(_ configuration: ProviderConfiguration) -> HTTPRequest {
        let live = ProviderConfiguration.origin(configuration.wnsLiveTokenURL)
        let entra = ProviderConfiguration.origin(configuration.wnsEntraTokenURL)
        let url = tenant.map { "\(entra)/\($0)/oauth2/v2.0/token" } ?? "\(live)/accesstoken.srf"
        let scope = tenant == nil ? "notify.windows.com" : "https://wns.windows.com/.default"
        return HTTPRequest(
            url: url,
            headers: [
                HTTPField("content-type", "application/x-www-form-urlencoded"),
                HTTPField("accept", "application/json"),
            ],
            body: formBody([
                ("grant_type", "client_credentials"), ("client_id", clientID),
                ("client_secret", clientSecret), ("scope", scope),
            ]),
            timeout: configuration.requestTimeout
        )
    }
}
