internal import COpenSSL

/// One TLS connection between memory BIOs: sealed bytes on one side, plain ones on the other, no
/// socket. Sole owner of one `SSL *`. Confined to its connection's loop.
@safe
final class TLSSession {
    private let context: TLSContext
    private let ssl: OpaquePointer
    /// The bytes from the peer, and the bytes to send; `ssl` owns both.
    private var input: OpaquePointer
    private var output: OpaquePointer
    private(set) var isEstablished = false
    /// Whether the peer's `close_notify` has arrived.
    private(set) var peerHasFinished = false
    private var hasFinished = false

    init?(_ context: TLSContext) {
        self.context = context
        let made = unsafe SSL_new(context.pointer)
        let ends = unsafe (BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()))
        guard let ssl = unsafe made, let input = unsafe ends.0, let output = unsafe ends.1 else {
            unsafe SSL_free(made)
            unsafe BIO_free(ends.0)
            unsafe BIO_free(ends.1)
            return nil
        }
        unsafe SSL_set_bio(ssl, input, output)
        unsafe SSL_set_accept_state(ssl)
        unsafe self.ssl = ssl
        unsafe self.input = input
        unsafe self.output = output
    }

    deinit { unsafe SSL_free(ssl) }

    /// Takes sealed bytes and returns the plain bytes of all complete records. Drain afterwards:
    /// the handshake, key updates and alerts produce output.
    func receive(_ bytes: UnsafeRawBufferPointer) -> Result<[UInt8], HTTPServerError> {
        ERR_clear_error()
        unsafe BIO_write(input, bytes.baseAddress, Int32(clamping: bytes.count))
        if !isEstablished {
            let status = unsafe SSL_do_handshake(ssl)
            guard status == 1 else {
                return wantsMore(status) ? .success([]) : .failure(failure("handshake"))
            }
            isEstablished = true
            guard negotiatedProtocol == .http2 || context.allowsHTTP11 else {
                return .failure(HTTPServerError("TLS: the client has no protocol of ours"))
            }
        }
        var plain: [UInt8] = []
        var status: Int32 = 0
        repeat {
            // One record at a time.
            let capacity = 16 * 1024
            let count = plain.count
            plain.reserveCapacity(count + capacity)
            let part = unsafe [UInt8](unsafeUninitializedCapacity: capacity) { buffer, used in
                unsafe status = SSL_read(ssl, buffer.baseAddress, Int32(capacity))
                used = max(0, Int(status))
            }
            plain.append(contentsOf: part)
        } while status > 0
        if unsafe SSL_get_error(ssl, status) == SSL_ERROR_ZERO_RETURN {
            peerHasFinished = true
            return .success(plain)
        }
        guard wantsMore(status) else { return .failure(failure("read")) }
        if bytes.count > HTTP1Parser.keptBytes { renewInput() }
        return .success(plain)
    }

    /// Replaces the input BIO: an empty BIO retains the memory of its peak, and a connection has
    /// two BIOs.
    private func renewInput() {
        guard unsafe BIO_ctrl_pending(input) == 0, let fresh = unsafe BIO_new(BIO_s_mem()) else {
            return
        }
        unsafe SSL_set0_rbio(ssl, fresh)
        unsafe input = unsafe fresh
    }

    private func renewOutput() {
        guard unsafe BIO_ctrl_pending(output) == 0, let fresh = unsafe BIO_new(BIO_s_mem()) else {
            return
        }
        unsafe SSL_set0_wbio(ssl, fresh)
        unsafe output = unsafe fresh
    }

    /// Seals bytes; the memory BIO takes all of them.
    func send(_ bytes: [UInt8]) {
        guard isEstablished, !hasFinished else { return }
        ERR_clear_error()
        unsafe SSL_write(ssl, bytes, Int32(clamping: bytes.count))
    }

    /// Sends `close_notify`: we send no more.
    func finish() {
        guard isEstablished, !hasFinished else { return }
        hasFinished = true
        ERR_clear_error()
        unsafe SSL_shutdown(ssl)
    }

    /// Returns the bytes to send to the peer; nil if there are none.
    func drain() -> [UInt8]? {
        let pending = unsafe BIO_ctrl_pending(output)
        guard pending > 0 else { return nil }
        let sealed = unsafe [UInt8](unsafeUninitializedCapacity: pending) { buffer, used in
            used = unsafe max(0, Int(BIO_read(output, buffer.baseAddress, Int32(pending))))
        }
        if isEstablished, pending > HTTP1Parser.keptBytes { renewOutput() }
        return sealed
    }

    var negotiatedProtocol: HTTPServerConfiguration.ApplicationProtocol? {
        var name: UnsafePointer<UInt8>?
        var length: UInt32 = 0
        unsafe SSL_get0_alpn_selected(ssl, &name, &length)
        let bytes = unsafe UnsafeBufferPointer(start: name, count: Int(length))
        return unsafe HTTPServerConfiguration.ApplicationProtocol(
            rawValue: String(decoding: bytes, as: UTF8.self)
        )
    }

    /// The client certificate's subject in RFC 2253 form.
    var peerSubject: String? {
        guard context.requestsClientCertificate,
            let certificate = unsafe SSL_get1_peer_certificate(ssl)
        else { return nil }
        defer { unsafe X509_free(certificate) }
        let bio = unsafe BIO_new(BIO_s_mem())
        defer { unsafe BIO_free(bio) }
        let printed = unsafe carillon_print_name(
            bio,
            X509_get_subject_name(certificate)
        )
        guard printed >= 0 else { return nil }
        let pending = unsafe BIO_ctrl_pending(bio)
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: pending) { buffer, used in
            used = unsafe max(0, Int(BIO_read(bio, buffer.baseAddress, Int32(pending))))
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    private func wantsMore(_ status: Int32) -> Bool {
        let reason = unsafe SSL_get_error(ssl, status)
        return reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE
    }

    private func failure(_ step: String) -> HTTPServerError {
        HTTPServerError("TLS \(step): \(takeOpenSSLError())")
    }
}
