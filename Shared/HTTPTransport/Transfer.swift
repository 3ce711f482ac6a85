internal import CCurl
internal import Glibc

/// One call in progress: sole owner of one libcurl easy handle, freed with it.
///
/// libcurl's callbacks find it through an unretained pointer, so its client retains it for as long
/// as the handle is in the multi handle.
@safe
final class Transfer {
    let request: HTTPRequest
    let url: URLParts
    let deadline: ContinuousClock.Instant
    let completion: HTTPClient.Completion

    private let verdict: HostPolicy.Verdict
    private let maximumResponseBytes: Int
    private let mustBeHTTP2: Bool
    private let hasProxy: Bool
    private let handle: UnsafeMutableRawPointer
    private var headerList: UnsafeMutablePointer<curl_slist>?
    private let errorText: UnsafeMutablePointer<CChar>

    /// The client's gate; nil if each connection carries one call at a time.
    private let gate: ConnectionGate?
    private(set) var port: Int?
    private var stream: Int?
    private var timesUnprocessed = 0
    private var isHeldBack = false
    private var timesSent = 0
    private var addressWasRefused = false
    private var isTooLarge = false
    private var headBytes = 0
    private var fields: [HTTPField] = []
    private var body: [UInt8] = []

    private static let maximumHeadBytes = 65_536
    private static let maximumTimesUnprocessed = 3

    /// - Throws: `invalidRequest`, `hostRefused` or `local`; nothing was sent.
    init(
        _ request: HTTPRequest,
        _ configuration: HTTPTransportConfiguration,
        gate: ConnectionGate?,
        completion: @escaping HTTPClient.Completion
    ) throws(HTTPTransportError) {
        guard let url = URLParts(request.url) else {
            throw HTTPTransportError(.invalidRequest, requestWasNotSent: true, detail: "url")
        }
        let verdict = configuration.allowedHosts.verdict(on: url)
        guard verdict != .refused else {
            throw HTTPTransportError(.hostRefused, requestWasNotSent: true, detail: url.host)
        }
        guard request.headers.allSatisfy(Self.isUsable), Self.isToken(request.method) else {
            throw HTTPTransportError(.invalidRequest, requestWasNotSent: true, detail: "header")
        }
        guard let handle = unsafe curl_easy_init() else {
            throw HTTPTransportError(.local, requestWasNotSent: true)
        }
        self.request = request
        self.url = url
        self.verdict = verdict
        self.gate = gate
        self.completion = completion
        unsafe self.handle = unsafe handle
        maximumResponseBytes = configuration.maximumResponseBytes
        deadline = .now + request.timeout
        unsafe errorText = .allocate(capacity: Int(CURL_ERROR_SIZE))
        unsafe errorText.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
        mustBeHTTP2 = configuration.version == .http2Required
        hasProxy = configuration.proxy != nil
        if let option = setUp(configuration) {
            throw HTTPTransportError(.local, requestWasNotSent: true, detail: "option \(option)")
        }
    }

    deinit {
        unsafe curl_easy_cleanup(handle)
        unsafe curl_slist_free_all(headerList)
        unsafe errorText.deallocate()
    }

    /// Borrowed: valid while this lives.
    var easyHandle: UnsafeMutableRawPointer { unsafe handle }
    var key: UInt { unsafe UInt(bitPattern: handle) }
    var mayHaveBeenSent: Bool { timesSent > 0 }

    // MARK: Setting up

    /// - Returns: The option that libcurl did not take, if any.
    private func setUp(_ configuration: HTTPTransportConfiguration) -> UInt32? {
        var options = unsafe EasyOptions(handle: handle)
        let me = unsafe Unmanaged.passUnretained(self).toOpaque()
        options.setCommon(configuration)
        options.set(CURLOPT_FOLLOWLOCATION, 0)
        switch configuration.version {
        case .http1Only:
            options.set(CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_1_1))
        case .preferHTTP2, .http2Required:
            options.set(CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_2TLS))
            options.set(CURLOPT_PIPEWAIT, 1)
        }
        if let caFile = configuration.caFile {
            options.set(CURLOPT_CAINFO, caFile)
        } else if unsafe carillon_curl_default_capath() != nil {
            // The folder is searched by hash when needed; reading the bundle costs 20 ms a
            // connection.
            unsafe options.setPointer(CURLOPT_CAINFO, nil)
        }
        unsafe options.setPointer(CURLOPT_ERRORBUFFER, UnsafeMutableRawPointer(errorText))
        unsafe options.setCallbacks(me)
        setUpRequest(&options)
        return options.firstRefused
    }

    private func setUpRequest(_ options: inout EasyOptions) {
        options.set(CURLOPT_URL, request.url)
        switch request.method {
        case "GET": options.set(CURLOPT_HTTPGET, 1)
        case "HEAD": options.set(CURLOPT_NOBODY, 1)
        default:
            options.set(CURLOPT_POST, 1)
            if request.method != "POST" { options.set(CURLOPT_CUSTOMREQUEST, request.method) }
            options.setBody(request.body)
        }
        options.set(CURLOPT_USERAGENT, "carillon")
        var lines = request.headers.map { field in
            field.value.isEmpty ? "\(field.name);" : "\(field.name): \(field.value)"
        }
        // WNS does not support `Expect: 100-continue`, and no request here needs it.
        lines.append("Expect:")
        for line in lines {
            guard let longer = unsafe curl_slist_append(headerList, line) else {
                options.refuse(CURLOPT_HTTPHEADER)
                return
            }
            unsafe headerList = unsafe longer
        }
        unsafe options.setList(CURLOPT_HTTPHEADER, headerList)
    }

    static func isUsable(_ field: HTTPField) -> Bool {
        isToken(field.name) && field.value.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F }
    }

    static func isToken(_ text: String) -> Bool {
        !text.isEmpty
            && text.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"):
                    true
                default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
                }
            }
    }

    // MARK: libcurl's callbacks

    /// Called just before the request is sent on an established connection.
    func willSend(fromPort port: Int) -> Bool {
        guard timesSent == 0 || request.isRepeatable else { return false }
        guard gate?.admits(key, onPort: port) ?? true else {
            isHeldBack = true
            return false
        }
        timesSent += 1
        self.port = port
        stream = nil
        return true
    }

    /// Whether the attempt ended only because it had to wait for another call, so that the transfer
    /// must be added again. Resets itself when it is called.
    func takeHeldBack() -> Bool {
        defer { isHeldBack = false }
        return isHeldBack
    }

    /// Whether the peer has reported that it did not process this attempt, so that the transfer may
    /// be added again. If true, the attempt is reset; true only a few times.
    func takeUnprocessed() -> Bool {
        guard isUnprocessed, timesUnprocessed < Self.maximumTimesUnprocessed else { return false }
        timesUnprocessed += 1
        timesSent = 0
        stream = nil
        headBytes = 0
        fields = []
        body = []
        return true
    }

    private var isUnprocessed: Bool {
        guard let gate, let port, let stream else { return false }
        return gate.isUnprocessed(stream: stream, onPort: port)
    }

    /// Reads libcurl's verbose output: its only report of streams and GOAWAY. If a version of
    /// libcurl changes the wording, the only cost is that requests that were not processed count as
    /// in doubt; a test detects it.
    func heard(_ text: UnsafeRawBufferPointer) {
        func number(after mark: StaticString) -> Int? {
            let mark = unsafe UnsafeBufferPointer(
                start: mark.utf8Start,
                count: mark.utf8CodeUnitCount
            )
            guard text.count >= mark.count else { return nil }
            for start in 0...(text.count - mark.count) {
                let end = start + mark.count
                guard unsafe text[start..<end].elementsEqual(mark) else { continue }
                let digits = unsafe text[end...].prefix { (48...57).contains($0) }
                return unsafe digits.isEmpty || digits.count > 10
                    ? nil : digits.reduce(0) { $0 * 10 + Int($1 - 48) }
            }
            return nil
        }
        guard let first = unsafe text.first else { return }
        switch first {
        case UInt8(ascii: "U"):
            if let number = number(after: "Using Stream ID: ") { stream = number }
        case UInt8(ascii: "r"):
            if let port, let last = number(after: "last_stream=") {
                gate?.didReceiveGoAway(onPort: port, lastStream: last)
            }
        case UInt8(ascii: "R"):
            // The attempt before libcurl's present one was not processed.
            if unsafe text.starts(with: "REFUSED_STREAM".utf8) { timesSent = 0 }
        default: break
        }
    }

    /// - Returns: Whether a connection to the address may be opened. The proxy is recognised by its
    ///   port; if proxy and target have the same port, the address must be public.
    func mayConnect(to address: PeerAddress) -> Bool {
        let isProxy = hasProxy && address.port != url.port
        guard verdict == .publicAddressOnly, !isProxy else {
            return true
        }
        addressWasRefused = !address.isPublic
        return address.isPublic
    }

    func receivedHeader(_ line: UnsafeRawBufferPointer) -> Bool {
        headBytes += line.count
        guard headBytes <= Self.maximumHeadBytes else {
            isTooLarge = true
            return false
        }
        if unsafe line.starts(with: "HTTP/".utf8) {
            fields.removeAll(keepingCapacity: true)
            return true
        }
        guard let colon = unsafe line.firstIndex(of: UInt8(ascii: ":")) else { return true }
        let name = unsafe String(decoding: line[..<colon], as: UTF8.self)
        let value = unsafe line[line.index(after: colon)...]
        let blanks: (UInt8) -> Bool = { $0 <= 0x20 }
        let trimmed = unsafe value.drop(while: blanks)
        let end = unsafe trimmed.lastIndex { !blanks($0) }.map { $0 + 1 }
        let text = unsafe String(decoding: trimmed[..<(end ?? trimmed.startIndex)], as: UTF8.self)
        fields.append(HTTPField(name.lowercased(), text))
        return true
    }

    func receivedBody(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard body.count + bytes.count <= maximumResponseBytes else {
            isTooLarge = true
            return false
        }
        unsafe body.append(contentsOf: bytes)
        return true
    }

    // MARK: The end

    func result(_ code: CURLcode) -> Result<HTTPResponse, HTTPTransportError> {
        guard code == CURLE_OK else { return .failure(error(code)) }
        var status = 0
        var version = 0
        unsafe carillon_easy_get_long(handle, CURLINFO_RESPONSE_CODE, &status)
        unsafe carillon_easy_get_long(handle, CURLINFO_HTTP_VERSION, &version)
        guard
            (100...999).contains(status),
            let version = HTTPProtocolVersion(rawValue: version),
            version == .http2 || !mustBeHTTP2
        else {
            return .failure(
                HTTPTransportError(.protocolViolation, requestWasNotSent: false, detail: "version")
            )
        }
        return .success(
            HTTPResponse(status: status, headers: fields, body: body, protocolVersion: version)
        )
    }

    func timedOut() -> HTTPTransportError {
        HTTPTransportError(.timeout, requestWasNotSent: !mayHaveBeenSent || isUnprocessed)
    }

    private func error(_ code: CURLcode) -> HTTPTransportError {
        let text = unsafe String(cString: errorText)
        let detail =
            text.isEmpty ? unsafe String(cString: curl_easy_strerror(code)) : text
        let kind: HTTPTransportError.Kind =
            if isTooLarge {
                .responseTooLarge
            } else if addressWasRefused, !mayHaveBeenSent {
                .hostRefused
            } else {
                Self.kind(code)
            }
        return HTTPTransportError(
            kind,
            requestWasNotSent: !mayHaveBeenSent || isUnprocessed,
            detail: "\(code.rawValue) \(detail)"
        )
    }

    static func kind(_ code: CURLcode) -> HTTPTransportError.Kind {
        switch code {
        case CURLE_URL_MALFORMAT, CURLE_UNSUPPORTED_PROTOCOL: .invalidRequest
        case CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY: .resolve
        case CURLE_COULDNT_CONNECT: .connect
        case CURLE_PROXY: .proxy
        case CURLE_OPERATION_TIMEDOUT: .timeout
        case CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CIPHER,
            CURLE_SSL_ISSUER_ERROR, CURLE_SSL_SHUTDOWN_FAILED, CURLE_USE_SSL_FAILED,
            CURLE_SSL_INVALIDCERTSTATUS, CURLE_SSL_CLIENTCERT:
            .tls
        case CURLE_SEND_ERROR, CURLE_RECV_ERROR, CURLE_GOT_NOTHING, CURLE_PARTIAL_FILE, CURLE_HTTP2,
            CURLE_HTTP2_STREAM, CURLE_ABORTED_BY_CALLBACK, CURLE_AGAIN:
            .connectionLost
        case CURLE_WEIRD_SERVER_REPLY, CURLE_BAD_CONTENT_ENCODING, CURLE_HTTP_RETURNED_ERROR,
            CURLE_TOO_MANY_REDIRECTS, CURLE_WRITE_ERROR:
            .protocolViolation
        case CURLE_SSL_CERTPROBLEM, CURLE_SSL_CACERT_BADFILE, CURLE_SSL_ENGINE_NOTFOUND,
            CURLE_SSL_ENGINE_SETFAILED, CURLE_OUT_OF_MEMORY, CURLE_FAILED_INIT,
            CURLE_BAD_FUNCTION_ARGUMENT, CURLE_NOT_BUILT_IN, CURLE_UNKNOWN_OPTION:
            .local
        default: .connectionLost
        }
    }
}
