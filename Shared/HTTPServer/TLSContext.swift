internal import COpenSSL

/// The server's side of TLS for one certificate: sole owner of one `SSL_CTX *`. Safe to share:
/// after `init` it is only read, and OpenSSL counts its references.
@safe
final class TLSContext: @unchecked Sendable {
    let pointer: OpaquePointer
    let requestsClientCertificate: Bool
    let allowsHTTP11: Bool
    /// ALPN's wire format. OpenSSL points into it during a handshake, so it has a fixed address;
    /// sessions retain their context.
    fileprivate let protocols: UnsafeMutableBufferPointer<UInt8>

    /// - Throws: `HTTPServerError` if the PEM strings cannot be used together.
    init(
        certificatePEM: String,
        privateKeyPEM: String,
        protocols: [HTTPServerConfiguration.ApplicationProtocol],
        requestsClientCertificate: Bool
    ) throws(HTTPServerError) {
        guard let context = unsafe SSL_CTX_new(TLS_server_method()) else {
            throw HTTPServerError("TLS: no context: \(takeOpenSSLError())")
        }
        unsafe pointer = context
        self.requestsClientCertificate = requestsClientCertificate
        allowsHTTP11 = protocols.contains(.http11)
        let wire = protocols.flatMap { [UInt8($0.rawValue.utf8.count)] + Array($0.rawValue.utf8) }
        unsafe self.protocols = .allocate(capacity: wire.count)
        _ = unsafe self.protocols.initialize(from: wire)

        unsafe carillon_SSL_CTX_harden_server(context)
        guard unsafe carillon_SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 else {
            throw HTTPServerError("TLS: \(takeOpenSSLError())")
        }
        try useCertificates(certificatePEM)
        try usePrivateKey(privateKeyPEM)
        let name: [UInt8] = Array("carillon".utf8)
        unsafe SSL_CTX_set_session_id_context(context, name, UInt32(name.count))
        let me = unsafe Unmanaged.passUnretained(self).toOpaque()
        unsafe SSL_CTX_set_alpn_select_cb(context, selectProtocol, me)
        if requestsClientCertificate {
            // Any issuer is accepted: the subject is recorded, and only proves that the peer holds
            // the key.
            unsafe SSL_CTX_set_verify(context, SSL_VERIFY_PEER) { _, _ in 1 }
        }
    }

    deinit {
        unsafe SSL_CTX_free(pointer)
        unsafe protocols.deallocate()
    }

    /// Uses the leaf certificate, then the chain from it to a root.
    private func useCertificates(_ pem: String) throws(HTTPServerError) {
        let bio = MemoryBIO(pem)
        var isLeaf = true
        while let certificate = unsafe PEM_read_bio_X509(bio.pointer, nil, noPassphrase, nil) {
            defer { unsafe X509_free(certificate) }
            let status =
                isLeaf
                ? unsafe SSL_CTX_use_certificate(pointer, certificate)
                : unsafe carillon_SSL_CTX_add1_chain_cert(pointer, certificate)
            guard status == 1 else {
                throw HTTPServerError("TLS certificate: \(takeOpenSSLError())")
            }
            isLeaf = false
        }
        guard !isLeaf else {
            throw HTTPServerError("TLS certificate: \(takeOpenSSLError())")
        }
        // The end of the certificates ends the loop, and leaves an error in OpenSSL's queue.
        ERR_clear_error()
    }

    private func usePrivateKey(_ pem: String) throws(HTTPServerError) {
        let bio = MemoryBIO(pem)
        guard let key = unsafe PEM_read_bio_PrivateKey(bio.pointer, nil, noPassphrase, nil) else {
            throw HTTPServerError("TLS private key: \(takeOpenSSLError())")
        }
        defer { unsafe EVP_PKEY_free(key) }
        guard unsafe SSL_CTX_use_PrivateKey(pointer, key) == 1,
            unsafe SSL_CTX_check_private_key(pointer) == 1
        else { throw HTTPServerError("TLS private key: \(takeOpenSSLError())") }
    }
}

/// A copy of a string, for OpenSSL to read.
@safe
private struct MemoryBIO: ~Copyable {
    let pointer: OpaquePointer?

    init(_ text: String) {
        unsafe pointer = BIO_new(BIO_s_mem())
        let bytes = Array(text.utf8)
        unsafe BIO_write(pointer, bytes, Int32(clamping: bytes.count))
    }

    deinit { unsafe BIO_free(pointer) }
}

/// Supplies no passphrase: a server cannot ask for one.
private func noPassphrase(
    _: UnsafeMutablePointer<CChar>?,
    _: Int32,
    _: Int32,
    _: UnsafeMutableRawPointer?
) -> Int32 { -1 }

/// Selects a protocol in the server's order of preference. A client without a common protocol is
/// refused.
private func selectProtocol(
    _: OpaquePointer?,
    selected: UnsafeMutablePointer<UnsafePointer<UInt8>?>?,
    selectedLength: UnsafeMutablePointer<UInt8>?,
    offered: UnsafePointer<UInt8>?,
    offeredLength: UInt32,
    argument: UnsafeMutableRawPointer?
) -> Int32 {
    guard let argument = unsafe argument, let selected = unsafe selected else {
        return SSL_TLSEXT_ERR_ALERT_FATAL
    }
    let context = unsafe Unmanaged<TLSContext>.fromOpaque(argument).takeUnretainedValue()
    var choice: UnsafeMutablePointer<UInt8>?
    let result = unsafe SSL_select_next_proto(
        &choice,
        selectedLength,
        context.protocols.baseAddress,
        UInt32(context.protocols.count),
        offered,
        offeredLength
    )
    guard result == OPENSSL_NPN_NEGOTIATED else { return SSL_TLSEXT_ERR_ALERT_FATAL }
    unsafe selected.pointee = unsafe UnsafePointer(choice)
    return SSL_TLSEXT_ERR_OK
}

/// Returns the newest error's reason, and empties the queue. Reasons name no secret.
func takeOpenSSLError() -> String {
    let code = ERR_peek_last_error()
    ERR_clear_error()
    guard code != 0, let reason = unsafe ERR_reason_error_string(code) else { return "unknown" }
    return unsafe String(cString: reason)
}
