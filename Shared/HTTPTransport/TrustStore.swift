internal import CCurl
internal import COpenSSL
internal import Observability

/// The authorities that connections trust: the system's, and those of one file. Sole owner of a
/// reference to one `X509_STORE`, which is safe to use from several threads.
///
/// Shared by all connections with the same file: reading the system's bundle costs 20 ms of CPU and
/// 850 KB, for each store.
@safe
final class TrustStore: @unchecked Sendable {
    private let store: OpaquePointer

    private struct Weak {
        weak var store: TrustStore?
    }

    private static let lock = Lock()
    nonisolated(unsafe) private static var inUse: [String?: Weak] = [:]

    static func shared(caFile: String?) throws(HTTPTransportError) -> TrustStore {
        let known: TrustStore? = lock.withLock { unsafe inUse[caFile]?.store }
        if let known { return known }
        let made = try TrustStore(caFile: caFile)
        lock.withLock {
            unsafe inUse = unsafe inUse.filter { $0.value.store != nil }
            unsafe inUse[caFile] = Weak(store: made)
        }
        return made
    }

    private init(caFile: String?) throws(HTTPTransportError) {
        guard let store = unsafe X509_STORE_new() else {
            throw HTTPTransportError(.local, requestWasNotSent: true)
        }
        unsafe self.store = unsafe store
        // As in libcurl: a given authority need not be self-signed.
        unsafe X509_STORE_set_flags(store, UInt(X509_V_FLAG_PARTIAL_CHAIN))
        // The folder is searched by hash when a certificate is needed.
        if let folder = unsafe carillon_curl_default_capath() {
            unsafe X509_STORE_load_path(store, folder)
        } else if let file = unsafe carillon_curl_default_cafile() {
            unsafe X509_STORE_load_file(store, file)
        }
        guard let caFile else { return }
        guard unsafe X509_STORE_load_file(store, caFile) == 1 else {
            ERR_clear_error()
            throw HTTPTransportError(.local, requestWasNotSent: true, detail: "CA file")
        }
    }

    deinit { unsafe X509_STORE_free(store) }

    /// Changes the context of a connection after libcurl has set it up: ALPN offers only HTTP/2.
    /// libcurl must not know of HTTP/2, as it would speak it itself.
    ///
    /// - Parameter context: An `SSL_CTX *`, borrowed.
    /// - Returns: Whether OpenSSL accepted it.
    func prepare(_ context: UnsafeMutableRawPointer) -> Bool {
        let context = OpaquePointer(context)
        let protocols: [UInt8] = [2, UInt8(ascii: "h"), UInt8(ascii: "2")]
        unsafe SSL_CTX_set1_cert_store(context, store)
        unsafe carillon_SSL_CTX_allow_partial_writes(context)
        return unsafe SSL_CTX_set_alpn_protos(context, protocols, UInt32(protocols.count)) == 0
    }
}

/// Whether the server has chosen HTTP/2; `session` is an `SSL *`, borrowed.
func hasChosenHTTP2(_ session: UnsafeMutableRawPointer) -> Bool {
    var name: UnsafePointer<UInt8>?
    var length: UInt32 = 0
    unsafe SSL_get0_alpn_selected(OpaquePointer(session), &name, &length)
    let chosen = unsafe UnsafeBufferPointer(start: name, count: Int(length))
    return unsafe chosen.elementsEqual("h2".utf8)
}

/// Lets a session read all available bytes from its socket, up to a limit, instead of the head and
/// the rest of each record separately: otherwise a server that answers each request in a separate
/// record would cost two system calls a request. The reader must continue until nothing comes.
///
/// - Parameters:
///   - session: An `SSL *`, borrowed, with no call on it in progress.
///   - bytes: More than a record.
/// - Returns: The buffer for `hasBuffered`, for as long as the session lives; nil if the session is
///   unchanged.
func bufferReads(_ session: UnsafeMutableRawPointer, bytes: Int32) -> OpaquePointer? {
    let session = OpaquePointer(session)
    guard let socket = unsafe SSL_get_rbio(session), let buffer = unsafe BIO_new(BIO_f_buffer())
    else { return nil }
    guard unsafe BIO_int_ctrl(buffer, BIO_C_SET_BUFF_SIZE, Int(bytes), 0) > 0,
        unsafe BIO_up_ref(socket) == 1
    else {
        unsafe BIO_free(buffer)
        return nil
    }
    unsafe BIO_push(buffer, socket)
    unsafe SSL_set0_rbio(session, buffer)
    return unsafe buffer
}

/// Whether the buffer has bytes from the socket that are not read yet.
func hasBuffered(_ buffer: OpaquePointer) -> Bool { unsafe BIO_ctrl_pending(buffer) > 0 }
