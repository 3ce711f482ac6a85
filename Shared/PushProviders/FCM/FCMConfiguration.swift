internal import Cryptography
internal import HTTPTransport
package import JSON
internal import PushCore

/// A validated service account that may send through FCM.
package struct FCMCredential: Sendable {
    package let projectID: String
    package let clientEmail: String
    package let tokenURI: String
    let key: SigningKey
    private let keyID: String?
    private let pem: String

    /// - Parameters:
    ///   - account: The object of the service account file, or the opened secret, which has the
    ///     same form.
    ///   - tokenHosts: `FCM_TOKEN_HOSTS`: the allowed hosts of `token_uri`.
    /// - Throws: `CredentialError`, naming the field of the file.
    package init(
        validating account: JSONObject,
        tokenHosts: [String]
    ) throws(CredentialError) {
        let fields = CredentialFields(object: account)
        guard try fields.text("type") == "service_account" else {
            throw CredentialError("type", "must be service_account")
        }
        projectID = try fields.text("project_id")
        let isProject =
            projectID.utf8.count <= 100
            && projectID.utf8.allSatisfy {
                ASCII.isAlphanumeric($0) || "-.:_".utf8.contains($0)
            }
        guard isProject else { throw CredentialError("project_id", "is not a project's id") }
        clientEmail = try fields.text("client_email")
        guard clientEmail.contains("@"), isPrintable(clientEmail) else {
            throw CredentialError("client_email", "is not an address")
        }
        pem = try fields.text("private_key")
        do {
            key = try SigningKey(pem: pem)
        } catch {
            throw CredentialError("private_key", "is not a private key in PEM form")
        }
        guard !key.isP256 else { throw CredentialError("private_key", "must be an RSA key") }
        keyID = try fields.optionalText("private_key_id")
        tokenURI = try fields.text("token_uri")
        guard tokenURI.hasPrefix("https://") else {
            throw CredentialError("token_uri", "must be an https URL")
        }
        guard (try? HostPolicy(tokenHosts))?.permits(tokenURI) == true else {
            throw CredentialError("token_uri", "names a host that FCM_TOKEN_HOSTS does not")
        }
    }

    /// Reads the secret in the form that is stored sealed.
    package init(secret: JSONObject, tokenHosts: [String]) throws(CredentialError) {
        try self.init(validating: secret, tokenHosts: tokenHosts)
    }

    /// The object that is stored sealed: a service account with only the used fields.
    package var secret: JSONObject {
        var object: JSONObject = [
            "type": "service_account", "project_id": .string(projectID),
            "private_key": .string(pem), "client_email": .string(clientEmail),
            "token_uri": .string(tokenURI),
        ]
        object["private_key_id"] = keyID.map { .string($0) }
        return object
    }

    /// The object that lists show. It has no secrets.
    package var summary: JSONObject {
        var object: JSONObject = [
            "projectID": .string(projectID), "clientEmail": .string(clientEmail),
        ]
        object["keyID"] = keyID.map { .string($0) }
        return object
    }

    /// Returns the request for an access token, with the signed grant of RFC 7523.
    func tokenRequest(at now: Instant, timeout: Duration) throws -> HTTPRequest {
        var header: JSONObject = ["typ": "JWT"]
        header["kid"] = keyID.map { .string($0) }
        let assertion = try JWT.sign(
            header: header,
            claims: [
                "iss": .string(clientEmail),
                "scope": "https://www.googleapis.com/auth/firebase.messaging",
                "aud": .string(tokenURI), "iat": .integer(now.seconds),
                "exp": .integer(now.seconds + 3600),
            ],
            with: key
        )
        return HTTPRequest(
            url: tokenURI,
            headers: [
                HTTPField("content-type", "application/x-www-form-urlencoded"),
                HTTPField("accept", "application/json"),
            ],
            body: formBody([
                ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
                ("assertion", assertion),
            ]),
            timeout: timeout
        )
    }
}
