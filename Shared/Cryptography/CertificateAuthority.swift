internal import COpenSSL

/// A certificate authority for one process: the simulator's and the tests'. Keys are P-256.
package struct CertificateAuthority: Sendable {
    package let certificatePEM: String

    private let certificate: Certificate
    private let key: SigningKey
    private static let validDays = 397

    package static func make(commonName: String) throws(CryptographyError) -> CertificateAuthority {
        let key = try SigningKey.generateP256()
        let template = try CertificateTemplate(days: validDays, key: key, issuer: nil)
        try template.name([("CN", commonName)])
        try template.add(NID_basic_constraints, "critical,CA:TRUE")
        try template.add(NID_key_usage, "critical,keyCertSign,cRLSign")
        try template.add(NID_subject_key_identifier, "hash")
        return try CertificateAuthority(template.signed(by: key), key)
    }

    private init(_ certificate: Certificate, _ key: SigningKey) throws(CryptographyError) {
        self.certificate = certificate
        self.key = key
        certificatePEM = try certificate.pem()
    }

    /// Loads an existing authority.
    ///
    /// - Throws: `badPEM`, or `badCertificate` if the two do not match.
    package init(certificatePEM: String, privateKeyPEM: String) throws(CryptographyError) {
        _ = try checkCertificatePair(certificatePEM: certificatePEM, privateKeyPEM: privateKeyPEM)
        try self.init(Certificate(pem: certificatePEM), SigningKey(pem: privateKeyPEM))
    }

    package func privateKeyPEM() throws(CryptographyError) -> String { try key.privateKeyPEM() }

    /// Issues a certificate for a server, or for a client.
    ///
    /// - Parameters:
    ///   - hosts: Names and addresses of its `subjectAltName`; the first is its common name.
    ///   - client: Whether it is for a client's side of TLS instead of a server's.
    ///   - userID: The subject's `UID`, where Apple puts a certificate's topic.
    /// - Returns: Both in PEM, the key as PKCS#8.
    /// - Throws: `badCertificate` for an invalid host.
    package func issue(
        hosts: [String] = ["localhost", "127.0.0.1", "::1"],
        client: Bool = false,
        userID: String? = nil
    ) throws(CryptographyError) -> (certificatePEM: String, privateKeyPEM: String) {
        guard let commonName = hosts.first, hosts.allSatisfy(Self.isHost) else {
            throw .badCertificate("a host is neither a name nor an address")
        }
        let leafKey = try SigningKey.generateP256()
        let template = try CertificateTemplate(
            days: Self.validDays,
            key: leafKey,
            issuer: certificate
        )
        try template.name((userID.map { [("UID", $0)] } ?? []) + [("CN", commonName)])
        let names = hosts.map { (Self.isAddress($0) ? "IP:" : "DNS:") + $0 }
        try template.add(NID_basic_constraints, "critical,CA:FALSE")
        try template.add(NID_key_usage, "critical,digitalSignature")
        try template.add(NID_ext_key_usage, client ? "clientAuth" : "serverAuth")
        try template.add(NID_subject_alt_name, names.joined(separator: ","))
        try template.add(NID_authority_key_identifier, "keyid")
        let leaf = try template.signed(by: key)
        return (try leaf.pem(), try leafKey.privateKeyPEM())
    }

    private static func isHost(_ text: String) -> Bool {
        1...253 ~= text.utf8.count
            && text.utf8.allSatisfy { byte in
                let character = Character(Unicode.Scalar(byte))
                return character.isASCII
                    && (character.isLetter || character.isNumber || ".:-*_".contains(character))
            }
    }

    private static func isAddress(_ host: String) -> Bool {
        host.contains(":") || host.allSatisfy { $0.isNumber || $0 == "." }
    }
}

/// An unfinished X.509 certificate.
private struct CertificateTemplate {
    private let certificate: Certificate
    private let issuer: Certificate

    /// - Parameters:
    ///   - days: The days of its validity, which began an hour ago.
    ///   - key: The certificate's own.
    ///   - issuer: `nil` for a self-signed one.
    /// - Throws: `library`, if OpenSSL itself fails.
    init(days: Int, key: SigningKey, issuer: Certificate?) throws(CryptographyError) {
        guard let pointer = unsafe X509_new() else { throw libraryFailure("X509_new") }
        certificate = unsafe Certificate(adopting: pointer)
        self.issuer = issuer ?? certificate
        let serial = [0x01] + randomBytes(15)
        let number = unsafe BN_bin2bn(serial, Int32(serial.count), nil)
        defer { unsafe BN_free(number) }
        guard
            unsafe X509_set_version(pointer, 2) == 1,
            unsafe X509_set_pubkey(pointer, key.handle.pointer) == 1,
            unsafe BN_to_ASN1_INTEGER(number, X509_get_serialNumber(pointer)) != nil,
            unsafe X509_gmtime_adj(X509_getm_notBefore(pointer), -3600) != nil,
            unsafe X509_gmtime_adj(X509_getm_notAfter(pointer), days * 86_400) != nil
        else { throw libraryFailure("X509_set_version") }
    }

    func name(_ attributes: [(String, String)]) throws(CryptographyError) {
        let name = unsafe X509_get_subject_name(certificate.pointer)
        for (attribute, value) in attributes {
            let bytes = Array(value.utf8)
            guard
                unsafe X509_NAME_add_entry_by_txt(
                    name,
                    attribute,
                    MBSTRING_FLAG,
                    bytes,
                    Int32(bytes.count),
                    -1,
                    0
                ) == 1
            else { throw libraryFailure("X509_NAME_add_entry_by_txt") }
        }
    }

    func add(_ kind: Int32, _ value: String) throws(CryptographyError) {
        var context = unsafe X509V3_CTX()
        unsafe X509V3_set_ctx(&context, issuer.pointer, certificate.pointer, nil, nil, 0)
        guard let made = unsafe X509V3_EXT_conf_nid(nil, &context, kind, value) else {
            throw libraryFailure("X509V3_EXT_conf_nid")
        }
        defer { unsafe X509_EXTENSION_free(made) }
        guard unsafe X509_add_ext(certificate.pointer, made, -1) == 1 else {
            throw libraryFailure("X509_add_ext")
        }
    }

    /// Finishes the certificate with the issuer's key.
    func signed(by signer: SigningKey) throws(CryptographyError) -> Certificate {
        guard
            unsafe X509_set_issuer_name(
                certificate.pointer,
                X509_get_subject_name(issuer.pointer)
            ) == 1,
            unsafe X509_sign(certificate.pointer, signer.handle.pointer, EVP_sha256()) > 0
        else { throw libraryFailure("X509_sign") }
        return certificate
    }
}
