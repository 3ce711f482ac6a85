internal import Cryptography
internal import HTTPTransport
package import JSON
internal import PushCore

/// A validated credential for MPNS' authenticated channels: the certificate whose common name an
/// app's phones stated when they opened the channels. Unauthenticated channels need no credential.
package struct MPNSCredential: Sendable {
    private let certificatePEM: String
    private let privateKeyPEM: String
    private let subject: String
    private let notAfter: Instant

    /// - Throws: `CredentialError`, naming `certificate`.
    package init(
        validatingCertificate certificatePEM: String,
        privateKey privateKeyPEM: String
    ) throws(CredentialError) {
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
        self.certificatePEM = certificatePEM
        self.privateKeyPEM = privateKeyPEM
        subject = summary.subject
        notAfter = Instant(seconds: summary.notAfter)
    }

    /// Reads the secret in the form that is stored sealed.
    package init(secret: JSONObject) throws(CredentialError) {
        let fields = CredentialFields(object: secret)
        try self.init(
            validatingCertificate: try fields.text("certificate"),
            privateKey: try fields.text("privateKey")
        )
    }

    /// The object that is stored sealed.
    package var secret: JSONObject {
        ["certificate": .string(certificatePEM), "privateKey": .string(privateKeyPEM)]
    }

    /// The object that lists show. It has no secrets.
    package var summary: JSONObject {
        ["subject": .string(subject), "notAfter": .string(notAfter.iso8601)]
    }

    var clientCertificate: HTTPTransportConfiguration.ClientCertificate {
        .init(certificatePEM: certificatePEM, privateKeyPEM: privateKeyPEM)
    }
}
