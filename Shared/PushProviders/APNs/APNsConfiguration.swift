internal import Cryptography
internal import HTTPTransport
package import JSON
internal import PushCore

/// A validated APNs credential: a signing key, or a certificate.
///
/// The CLI creates one to validate its input, stores `secret` sealed, and lists `summary`. The
/// dispatcher creates one from the opened secret.
package struct APNsCredential: Sendable {
    enum Method: Sendable {
        case token(key: SigningKey, pem: String, keyID: String, teamID: String)
        case certificate(certificatePEM: String, privateKeyPEM: String, notAfter: Instant)
    }

    /// The bundle id; also the credential's name.
    package let topic: String
    let method: Method

    /// - Throws: `CredentialError`, naming `topic`, `key`, `keyID` or `teamID`.
    package init(
        validatingKey pem: String,
        keyID: String,
        teamID: String,
        topic: String
    ) throws(CredentialError) {
        self.topic = try Self.checked(topic: topic)
        let key: SigningKey
        do {
            key = try SigningKey(pem: pem)
        } catch {
            throw CredentialError("key", "is not a private key in PEM form")
        }
        guard key.isP256 else {
            throw CredentialError("key", "must be an elliptic-curve key on P-256, as in a .p8 file")
        }
        for (field, value) in [("keyID", keyID), ("teamID", teamID)] {
            let isTen =
                value.utf8.count == 10
                && value.utf8.allSatisfy { byte in
                    (48...57).contains(byte) || (65...90).contains(byte)
                        || (97...122).contains(byte)
                }
            guard isTen else { throw CredentialError(field, "must be 10 letters and digits") }
        }
        method = .token(key: key, pem: pem, keyID: keyID, teamID: teamID)
    }

    /// - Throws: `CredentialError`, naming `topic`, `certificate` or `privateKey`.
    package init(
        validatingCertificate certificatePEM: String,
        privateKey privateKeyPEM: String,
        topic: String
    ) throws(CredentialError) {
        self.topic = try Self.checked(topic: topic)
        let summary: CertificateSummary
        do {
            summary = try checkCertificatePair(
                certificatePEM: certificatePEM,
                privateKeyPEM: privateKeyPEM
            )
        } catch {
            throw CredentialError(
                "certificate",
                "is no PEM certificate that its private key belongs to"
            )
        }
        guard summary.topics.isEmpty || summary.topics.contains(topic) else {
            throw CredentialError("topic", "is not covered by the certificate")
        }
        method = .certificate(
            certificatePEM: certificatePEM,
            privateKeyPEM: privateKeyPEM,
            notAfter: Instant(seconds: summary.notAfter)
        )
    }

    /// Reads the secret in the form that is stored sealed.
    package init(secret: JSONObject) throws(CredentialError) {
        let fields = CredentialFields(object: secret)
        if secret["certificate"] != nil {
            try self.init(
                validatingCertificate: try fields.text("certificate"),
                privateKey: try fields.text("privateKey"),
                topic: try fields.text("topic")
            )
        } else {
            try self.init(
                validatingKey: try fields.text("key"),
                keyID: try fields.text("keyID"),
                teamID: try fields.text("teamID"),
                topic: try fields.text("topic")
            )
        }
    }

    /// The object that is stored sealed.
    package var secret: JSONObject {
        switch method {
        case .token(_, let pem, let keyID, let teamID):
            [
                "key": .string(pem), "keyID": .string(keyID), "teamID": .string(teamID),
                "topic": .string(topic),
            ]
        case .certificate(let certificatePEM, let privateKeyPEM, _):
            [
                "certificate": .string(certificatePEM), "privateKey": .string(privateKeyPEM),
                "topic": .string(topic),
            ]
        }
    }

    /// The object that lists show. It has no secrets.
    package var summary: JSONObject {
        switch method {
        case .token(_, _, let keyID, let teamID):
            [
                "method": "token", "keyID": .string(keyID), "teamID": .string(teamID),
                "topic": .string(topic),
            ]
        case .certificate(_, _, let notAfter):
            [
                "method": "certificate", "notAfter": .string(notAfter.iso8601),
                "topic": .string(topic),
            ]
        }
    }

    var clientCertificate: HTTPTransportConfiguration.ClientCertificate? {
        switch method {
        case .token: nil
        case .certificate(let certificatePEM, let privateKeyPEM, _):
            .init(certificatePEM: certificatePEM, privateKeyPEM: privateKeyPEM)
        }
    }

    private static func checked(topic: String) throws(CredentialError) -> String {
        guard (1...255).contains(topic.utf8.count), isPrintable(topic) else {
            throw CredentialError("topic", "must be a bundle id")
        }
        return topic
    }
}
