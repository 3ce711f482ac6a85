internal import CCurl
internal import Glibc

/// Sets options on a borrowed easy handle and notes the first that libcurl refused.
@safe
struct EasyOptions {
    private let handle: UnsafeMutableRawPointer
    private(set) var firstRefused: UInt32?

    init(handle: UnsafeMutableRawPointer) { unsafe self.handle = unsafe handle }

    mutating func set(_ option: CURLoption, _ value: Int) {
        note(option, unsafe carillon_easy_set_long(handle, option, value))
    }

    mutating func set(_ option: CURLoption, _ value: String) {
        note(option, unsafe carillon_easy_set_text(handle, option, value))
    }

    mutating func setPointer(_ option: CURLoption, _ value: UnsafeMutableRawPointer?) {
        note(option, unsafe carillon_easy_set_pointer(handle, option, value))
    }

    mutating func setList(_ option: CURLoption, _ value: UnsafeMutablePointer<curl_slist>?) {
        note(option, unsafe carillon_easy_set_list(handle, option, value))
    }

    mutating func setBlob(_ option: CURLoption, _ value: [UInt8]) {
        let code = unsafe value.withUnsafeBytes { bytes in
            unsafe carillon_easy_set_blob(handle, option, bytes.baseAddress, bytes.count)
        }
        note(option, code)
    }

    /// Sets the body, which libcurl copies.
    mutating func setBody(_ body: [UInt8]) {
        let size = unsafe carillon_easy_set_size(
            handle,
            CURLOPT_POSTFIELDSIZE_LARGE,
            curl_off_t(body.count)
        )
        note(CURLOPT_POSTFIELDSIZE_LARGE, size)
        let code =
            if body.isEmpty {
                unsafe carillon_easy_set_text(handle, CURLOPT_COPYPOSTFIELDS, "")
            } else {
                unsafe body.withUnsafeBytes { bytes in
                    unsafe carillon_easy_set_bytes(
                        handle,
                        CURLOPT_COPYPOSTFIELDS,
                        bytes.baseAddress
                    )
                }
            }
        note(CURLOPT_COPYPOSTFIELDS, code)
    }

    /// Sets the callbacks; the pointer is the `Transfer`, unretained: it outlives its handle.
    mutating func setCallbacks(_ transfer: UnsafeMutableRawPointer) {
        note(
            CURLOPT_HEADERFUNCTION,
            unsafe carillon_easy_set_data_callback(handle, CURLOPT_HEADERFUNCTION, onHeader)
        )
        note(
            CURLOPT_WRITEFUNCTION,
            unsafe carillon_easy_set_data_callback(handle, CURLOPT_WRITEFUNCTION, onBody)
        )
        unsafe setPrerequisiteCallback(onPreRequest)
        unsafe setOpenSocketCallback(onOpenSocket)
        note(CURLOPT_DEBUGFUNCTION, unsafe carillon_easy_set_debug_callback(handle, onDebug))
        set(CURLOPT_VERBOSE, 1)
        for option in [
            CURLOPT_HEADERDATA, CURLOPT_WRITEDATA, CURLOPT_PREREQDATA, CURLOPT_OPENSOCKETDATA,
            CURLOPT_DEBUGDATA,
        ] {
            unsafe setPointer(option, transfer)
        }
    }

    mutating func setSSLCallback(_ callback: carillon_curl_ssl_callback?) {
        note(CURLOPT_SSL_CTX_FUNCTION, unsafe carillon_easy_set_ssl_callback(handle, callback))
    }

    mutating func setPrerequisiteCallback(_ callback: carillon_curl_prereq_callback?) {
        note(CURLOPT_PREREQFUNCTION, unsafe carillon_easy_set_prereq_callback(handle, callback))
    }

    mutating func setOpenSocketCallback(_ callback: carillon_curl_open_callback?) {
        note(CURLOPT_OPENSOCKETFUNCTION, unsafe carillon_easy_set_open_callback(handle, callback))
    }

    mutating func setLookupCallback(_ callback: carillon_curl_lookup_callback?) {
        note(
            CURLOPT_RESOLVER_START_FUNCTION,
            unsafe carillon_easy_set_lookup_callback(handle, callback)
        )
    }

    /// Sets the options of every connection: a time limit, a proxy, a client certificate, and no
    /// reading of files or the environment by libcurl.
    mutating func setCommon(_ configuration: HTTPTransportConfiguration) {
        set(CURLOPT_NOSIGNAL, 1)
        set(CURLOPT_QUICK_EXIT, 1)
        set(CURLOPT_NETRC, 0)
        set(CURLOPT_PROTOCOLS_STR, "http,https")
        set(CURLOPT_TCP_NODELAY, 1)
        set(CURLOPT_TCP_KEEPALIVE, 1)
        set(CURLOPT_TCP_KEEPIDLE, 30)
        set(CURLOPT_TCP_KEEPINTVL, 10)
        set(CURLOPT_BUFFERSIZE, 8192)
        set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1)
        set(CURLOPT_SSLVERSION, Int(CURL_SSLVERSION_TLSv1_2))
        set(CURLOPT_CONNECTTIMEOUT_MS, configuration.connectTimeout.milliseconds)
        // An empty string turns libcurl's own reading of the environment off.
        set(CURLOPT_PROXY, configuration.proxy ?? "")
        set(CURLOPT_NOPROXY, configuration.noProxy ?? "")
        if let certificate = configuration.clientCertificate {
            set(CURLOPT_SSLCERTTYPE, "PEM")
            set(CURLOPT_SSLKEYTYPE, "PEM")
            setBlob(CURLOPT_SSLCERT_BLOB, Array(certificate.certificatePEM.utf8))
            setBlob(CURLOPT_SSLKEY_BLOB, Array(certificate.privateKeyPEM.utf8))
        }
    }

    mutating func refuse(_ option: CURLoption) { firstRefused = firstRefused ?? option.rawValue }

    private mutating func note(_ option: CURLoption, _ code: CURLcode) {
        if code != CURLE_OK { refuse(option) }
    }
}

/// The address that libcurl is about to connect to.
struct PeerAddress {
    let isPublic: Bool
    let port: Int

    /// Reads an address. An address of another family than `AF_INET` and `AF_INET6`, or shorter
    /// than its family's structure, counts as not public.
    init(family: Int32, length: Int, address: UnsafeRawPointer) {
        switch family {
        case AF_INET where length >= MemoryLayout<sockaddr_in>.size:
            let ipv4 = unsafe address.loadUnaligned(as: sockaddr_in.self)
            port = Int(UInt16(bigEndian: ipv4.sin_port))
            isPublic = AddressRange.isPublic(ipv4: UInt32(bigEndian: ipv4.sin_addr.s_addr))
        case AF_INET6 where length >= MemoryLayout<sockaddr_in6>.size:
            let ipv6 = unsafe address.loadUnaligned(as: sockaddr_in6.self)
            port = Int(UInt16(bigEndian: ipv6.sin6_port))
            let bytes = unsafe withUnsafeBytes(of: ipv6.sin6_addr) { unsafe Array($0) }
            isPublic = AddressRange.isPublic(ipv6: bytes)
        default:
            port = 0
            isPublic = false
        }
    }
}

private func transfer(_ pointer: UnsafeMutableRawPointer?) -> Transfer? {
    unsafe pointer.map { unsafe Unmanaged<Transfer>.fromOpaque($0).takeUnretainedValue() }
}

private func onHeader(
    _ bytes: UnsafeMutablePointer<CChar>?,
    _ size: Int,
    _ count: Int,
    _ pointer: UnsafeMutableRawPointer?
) -> Int {
    let line = unsafe UnsafeRawBufferPointer(start: bytes, count: size * count)
    guard let transfer = unsafe transfer(pointer) else { return 0 }
    return unsafe transfer.receivedHeader(line) ? line.count : 0
}

private func onBody(
    _ bytes: UnsafeMutablePointer<CChar>?,
    _ size: Int,
    _ count: Int,
    _ pointer: UnsafeMutableRawPointer?
) -> Int {
    let piece = unsafe UnsafeRawBufferPointer(start: bytes, count: size * count)
    guard let transfer = unsafe transfer(pointer) else { return 0 }
    return unsafe transfer.receivedBody(piece) ? piece.count : -1
}

private func onDebug(
    _ handle: UnsafeMutableRawPointer?,
    _ kind: curl_infotype,
    _ bytes: UnsafeMutablePointer<CChar>?,
    _ count: Int,
    _ pointer: UnsafeMutableRawPointer?
) -> Int32 {
    guard kind == CURLINFO_TEXT, let transfer = unsafe transfer(pointer) else { return 0 }
    unsafe transfer.heard(UnsafeRawBufferPointer(start: bytes, count: count))
    return 0
}

private func onPreRequest(
    _ pointer: UnsafeMutableRawPointer?,
    _ peer: UnsafeMutablePointer<CChar>?,
    _ local: UnsafeMutablePointer<CChar>?,
    _ peerPort: Int32,
    _ localPort: Int32
) -> Int32 {
    guard let transfer = unsafe transfer(pointer) else { return CURL_PREREQFUNC_ABORT }
    return transfer.willSend(fromPort: Int(localPort)) ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
}

/// Opens every socket for libcurl, so it sees each resolved address.
private func onOpenSocket(
    _ pointer: UnsafeMutableRawPointer?,
    _ purpose: curlsocktype,
    _ address: UnsafeMutablePointer<curl_sockaddr>?
) -> curl_socket_t {
    guard let address = unsafe address, let transfer = unsafe transfer(pointer) else {
        return -1
    }
    return unsafe openSocket(address) { transfer.mayConnect(to: $0) }
}

func openSocket(
    _ address: UnsafeMutablePointer<curl_sockaddr>,
    where isAllowed: (PeerAddress) -> Bool
) -> curl_socket_t {
    guard let start = unsafe carillon_curl_address(address) else { return -1 }
    let peer = unsafe PeerAddress(
        family: address.pointee.family,
        length: Int(address.pointee.addrlen),
        address: UnsafeRawPointer(start)
    )
    guard isAllowed(peer) else { return -1 }
    let flags = Int32(SOCK_CLOEXEC.rawValue)
    return unsafe socket(
        address.pointee.family,
        address.pointee.socktype | flags,
        address.pointee.protocol
    )
}

extension Duration {
    /// The milliseconds, at least 1: libcurl takes 0 for its own default.
    var milliseconds: Int {
        let (seconds, attoseconds) = components
        return max(1, Int(clamping: seconds) * 1000 + Int(attoseconds / 1_000_000_000_000_000))
    }
}
