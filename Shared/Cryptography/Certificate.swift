internal import COpenSSL

/// The parts of a certificate that an operator may see.
package struct CertificateSummary: Sendable, Equatable {
    /// The subject's distinguished name, in RFC 2253 form.
    package let subject: String
    /// Seconds since 1970.
    package let notBefore: Int64
    /// Seconds since 1970.
    package let notAfter: Int64
    /// The APNs topics in it: Apple's extension, else the subject's `UID`.
    package let topics: [String]
}

/// Checks whether a certificate and a private key belong together.
///
/// - Parameters:
///   - certificatePEM: The leaf first, then the chain.
///   - privateKeyPEM: Unencrypted; it may be in the same string.
/// - Returns: The parts that may be shown. The caller checks the expiry.
/// - Throws: `badPEM`, or `badCertificate` if the key does not match.
package func checkCertificatePair(
    certificatePEM: String,
    privateKeyPEM: String
) throws(CryptographyError) -> CertificateSummary {
    let certificate = try Certificate(pem: certificatePEM)
    let key = try KeyHandle.privateKey(pem: privateKeyPEM)
    guard unsafe X509_check_private_key(certificate.pointer, key.pointer) == 1 else {
        ERR_clear_error()
        throw .badCertificate("the private key is another's")
    }
    return try certificate.summary()
}

/// Sole owner of one `X509`.
@safe
final class Certificate: @unchecked Sendable {
    let pointer: OpaquePointer

    /// Takes ownership of a certificate.
    init(adopting pointer: OpaquePointer) { unsafe self.pointer = pointer }

    deinit { unsafe X509_free(pointer) }

    /// Reads the first certificate of a PEM string.
    convenience init(pem: String) throws(CryptographyError) {
        let pointer = try unsafe withPEM(pem) { bio throws(CryptographyError) in
            guard let pointer = unsafe PEM_read_bio_X509(bio, nil, refusePassphrase, nil) else {
                ERR_clear_error()
                throw .badPEM("expected a certificate")
            }
            return unsafe pointer
        }
        unsafe self.init(adopting: pointer)
    }

    func pem() throws(CryptographyError) -> String {
        try unsafe textFromBIO("PEM_write_bio_X509") { bio in
            unsafe PEM_write_bio_X509(bio, pointer) == 1
        }
    }

    func summary() throws(CryptographyError) -> CertificateSummary {
        let subject = try unsafe textFromBIO("X509_NAME_print_ex") { bio in
            unsafe carillon_print_name(bio, X509_get_subject_name(pointer)) >= 0
        }
        let topics = extensionTopics()
        return try unsafe CertificateSummary(
            subject: subject,
            notBefore: secondsSince1970(X509_get0_notBefore(pointer)),
            notAfter: secondsSince1970(X509_get0_notAfter(pointer)),
            topics: topics.isEmpty ? userIDs() : topics
        )
    }

    private func secondsSince1970(
        _ time: UnsafePointer<ASN1_TIME>?
    ) throws(CryptographyError) -> Int64 {
        guard let epoch = unsafe ASN1_TIME_set(nil, 0) else {
            throw libraryFailure("ASN1_TIME_set")
        }
        defer { unsafe ASN1_TIME_free(epoch) }
        var (days, seconds): (Int32, Int32) = (0, 0)
        guard unsafe ASN1_TIME_diff(&days, &seconds, epoch, time) == 1 else {
            throw libraryFailure("ASN1_TIME_diff")
        }
        return Int64(days) * 86_400 + Int64(seconds)
    }

    /// Returns the subject's `UID` attributes: the bundle id in a certificate of a single topic.
    private func userIDs() -> [String] {
        let name = unsafe X509_get_subject_name(pointer)
        var found: [String] = []
        var place = unsafe X509_NAME_get_index_by_NID(name, NID_userId, -1)
        while place >= 0, found.count < 64 {
            let data = unsafe X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, place))
            unsafe found.append(text(data))
            place = unsafe X509_NAME_get_index_by_NID(name, NID_userId, place)
        }
        return found
    }

    private func text(_ string: UnsafePointer<ASN1_STRING>?) -> String {
        guard let string = unsafe string else { return "" }
        let bytes = unsafe UnsafeRawBufferPointer(
            start: ASN1_STRING_get0_data(string),
            count: Int(ASN1_STRING_length(string))
        )
        return unsafe String(decoding: bytes, as: UTF8.self)
    }

    /// Returns the topics of Apple's extension 1.2.840.113635.100.6.3.6: a sequence in which each
    /// topic, a UTF8String, is followed by the sequence of its push types.
    private func extensionTopics() -> [String] {
        guard let object = unsafe OBJ_txt2obj("1.2.840.113635.100.6.3.6", 1) else {
            ERR_clear_error()
            return []
        }
        defer { unsafe ASN1_OBJECT_free(object) }
        let place = unsafe X509_get_ext_by_OBJ(pointer, object, -1)
        guard place >= 0,
            let value = unsafe X509_EXTENSION_get_data(X509_get_ext(pointer, place))
        else { return [] }
        let bytes = unsafe Array(
            UnsafeBufferPointer(
                start: ASN1_STRING_get0_data(value),
                count: Int(ASN1_STRING_length(value))
            )
        )
        var outer = DERReader(bytes[...])
        guard let sequence = outer.next(), sequence.tag == 0x30 else { return [] }
        var inner = DERReader(sequence.content)
        var topics: [String] = []
        while let element = inner.next() {
            if element.tag == 0x0C {
                topics.append(String(decoding: element.content, as: UTF8.self))
            }
        }
        return topics
    }
}

/// Reads DER elements one after the other; ends at the first incomplete one.
private struct DERReader {
    private var rest: ArraySlice<UInt8>

    init(_ bytes: ArraySlice<UInt8>) { rest = bytes }

    mutating func next() -> (tag: UInt8, content: ArraySlice<UInt8>)? {
        guard let tag = rest.popFirst(), let first = rest.popFirst() else { return nil }
        var count = Int(first)
        if first >= 0x80 {
            guard 1...4 ~= first & 0x7F else { return nil }
            count = 0
            for _ in 0..<(first & 0x7F) {
                guard let byte = rest.popFirst() else { return nil }
                count = count << 8 | Int(byte)
            }
        }
        guard count <= rest.count else { return nil }
        defer { rest = rest.dropFirst(count) }
        return (tag, rest.prefix(count))
    }
}
