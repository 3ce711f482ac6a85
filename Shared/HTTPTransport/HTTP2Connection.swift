internal import CCurl
internal import EventLoop
internal import HTTP2

/// One HTTP/2 connection: libcurl opens it (names, addresses, proxy, TLS); then our HTTP/2 session
/// runs over it by `curl_easy_send` and `curl_easy_recv`.
///
/// Authority: sole owner of one multi handle and one easy handle (and so of the socket), and of its
/// session. Each connection has its own multi handle: a shared one closes connections that it
/// considers idle. Confined to the loop of its pool, which it notifies. A connection retains itself
/// until it has ended, and reports its end exactly once, never from inside `start` or `flush`.
@safe
final class HTTP2Connection: @unchecked Sendable {
    enum Phase {
        case connecting, open, closed
    }

    let number: Int
    let session: HTTP2ClientSession
    /// The pool's policy for this connection.
    var rule: ConnectionPolicy
    /// Whether the peer ended the connection.
    var wasSentAway = false
    private(set) var phase = Phase.connecting
    /// How many of the session's drained bytes the socket has taken.
    private(set) var writtenBytes = 0

    private unowned let pool: HTTP2Pool
    private let loop: EventLoop
    private let trust: TrustStore
    private let verdict: HostPolicy.Verdict
    private let url: URLParts
    private let hasProxy: Bool
    private let multi: UnsafeMutableRawPointer
    private let easy: UnsafeMutableRawPointer
    private let errorText: UnsafeMutablePointer<CChar>
    private var watches: [Int32: DescriptorWatch] = [:]
    private var timer: LoopTimer?
    private var watch: DescriptorWatch?
    private var output = OutputBuffer()
    /// The read buffer between the socket and TLS (`bufferReads`).
    private var buffered: OpaquePointer?
    /// The timer of a read pause: nothing is read until it fires.
    private var pause: LoopTimer?
    private var addressWasRefused = false
    private var speaksHTTP2 = false
    private var itself: HTTP2Connection?

    /// The requests in flight from which on answers are batched.
    private static let busyStreams = 256
    /// If a read ends less than this part of the requests (1/8), the next read follows a
    /// millisecond later: a wake-up for a few answers costs more than the answers.
    private static let busyPart = 8
    /// The bytes read before other connections get their turn.
    static let inputBytes = 65_536
    private static let recordBytes = 16_384
    /// The bytes taken out of the socket at a time.
    private static let socketBytes: Int32 = 65_536
    /// The bytes taken out of the session at a time. The next bytes follow only when the socket has
    /// taken these.
    static let outputBytes = 65_536

    /// Prepares the handles; nothing happens before `start`.
    init(
        number: Int,
        pool: HTTP2Pool,
        url: URLParts,
        verdict: HostPolicy.Verdict,
        trust: TrustStore,
        rule: ConnectionPolicy
    ) throws(HTTPTransportError) {
        let configuration = pool.configuration
        let session: HTTP2ClientSession
        do {
            session = try HTTP2ClientSession(
                HTTP2ClientSession.Settings(
                    maximumStreams: configuration.maximumStreams,
                    maximumBodyBytes: configuration.transport.maximumResponseBytes
                )
            )
        } catch {
            throw HTTPTransportError(.local, requestWasNotSent: true)
        }
        guard HTTPClient.libraryIsReady, let multi = unsafe curl_multi_init() else {
            throw HTTPTransportError(.local, requestWasNotSent: true)
        }
        guard let easy = unsafe curl_easy_init() else {
            unsafe curl_multi_cleanup(multi)
            throw HTTPTransportError(.local, requestWasNotSent: true)
        }
        self.number = number
        self.session = session
        self.pool = pool
        self.url = url
        self.verdict = verdict
        self.trust = trust
        self.rule = rule
        loop = pool.loop
        hasProxy = configuration.transport.proxy != nil
        unsafe self.multi = unsafe multi
        unsafe self.easy = unsafe easy
        unsafe errorText = .allocate(capacity: Int(CURL_ERROR_SIZE))
        unsafe errorText.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
        if let option = setUp(configuration.transport) {
            throw HTTPTransportError(.local, requestWasNotSent: true, detail: "option \(option)")
        }
    }

    deinit {
        unsafe curl_multi_remove_handle(multi, easy)
        unsafe curl_easy_cleanup(easy)
        unsafe curl_multi_cleanup(multi)
        unsafe errorText.deallocate()
    }

    /// - Returns: The option that libcurl did not take, if any.
    private func setUp(_ configuration: HTTPTransportConfiguration) -> UInt32? {
        var options = unsafe EasyOptions(handle: easy)
        let me = unsafe Unmanaged.passUnretained(self).toOpaque()
        options.setCommon(configuration)
        options.set(CURLOPT_URL, "https://\(url.host):\(url.port)/")
        options.set(CURLOPT_CONNECT_ONLY, 1)
        // With ALPN on, libcurl would offer HTTP/1.1, or speak HTTP/2 itself.
        options.set(CURLOPT_SSL_ENABLE_ALPN, 0)
        options.set(CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_1_1))
        // The trust store provides all authorities.
        unsafe options.setPointer(CURLOPT_CAINFO, nil)
        unsafe options.setPointer(CURLOPT_CAPATH, nil)
        unsafe options.setPointer(CURLOPT_ERRORBUFFER, UnsafeMutableRawPointer(errorText))
        unsafe options.setConnectionCallbacks(me)
        unsafe carillon_multi_set_socket_callback(multi, onSocket)
        unsafe carillon_multi_set_pointer(multi, CURLMOPT_SOCKETDATA, me)
        unsafe carillon_multi_set_timer_callback(multi, onTimer)
        unsafe carillon_multi_set_pointer(multi, CURLMOPT_TIMERDATA, me)
        return options.firstRefused
    }

    // MARK: Connecting

    func start() {
        itself = self
        // Inside this call libcurl requests a timer, and so continues in a later turn.
        guard unsafe curl_multi_add_handle(multi, easy) == CURLM_OK else {
            loop.atEndOfTurn { self.end(HTTPTransportError(.local, requestWasNotSent: true)) }
            return
        }
    }

    fileprivate func socketChanged(_ descriptor: Int32, _ what: Int32) {
        guard phase == .connecting else { return }
        if what == CURL_POLL_REMOVE {
            watches.removeValue(forKey: descriptor)?.close()
            return
        }
        let watch =
            watches[descriptor]
            ?? loop.watch(descriptor) { [unowned self] readiness in
                self.act(on: descriptor, readiness)
            }
        watches[descriptor] = watch
        var interest: DescriptorReadiness = []
        if what & CURL_POLL_IN != 0 { interest.insert(.readable) }
        if what & CURL_POLL_OUT != 0 { interest.insert(.writable) }
        watch.interest = interest
    }

    fileprivate func timerChanged(_ milliseconds: Int) {
        timer?.cancel()
        timer = nil
        guard milliseconds >= 0, phase == .connecting else { return }
        timer = loop.schedule(after: .milliseconds(milliseconds)) { [unowned self] in
            self.timer = nil
            self.act(on: -1, [])
        }
    }

    /// Runs libcurl's action for a descriptor; -1 stands for its own timer.
    private func act(on descriptor: Int32, _ readiness: DescriptorReadiness) {
        guard phase == .connecting else { return }
        var events: Int32 = 0
        if readiness.contains(.readable) { events |= CURL_CSELECT_IN }
        if readiness.contains(.writable) { events |= CURL_CSELECT_OUT }
        if readiness.contains(.disconnected) { events |= CURL_CSELECT_ERR }
        var running: Int32 = 0
        unsafe curl_multi_socket_action(multi, descriptor, events, &running)
        var code = CURLE_OK
        guard unsafe carillon_multi_next_finished(multi, &code) != nil else { return }
        if code == CURLE_OK {
            connected()
        } else {
            end(failure(code))
        }
    }

    /// Starts the session. The easy handle stays in the multi handle: removed, it would lose its
    /// connection.
    private func connected() {
        stopConnecting()
        let descriptor = unsafe carillon_easy_socket(easy)
        guard speaksHTTP2, descriptor >= 0 else {
            let detail = "the server does not speak HTTP/2"
            end(HTTPTransportError(.protocolViolation, requestWasNotSent: true, detail: detail))
            return
        }
        phase = .open
        let watch = loop.watch(descriptor) { [unowned self] readiness in self.ready(readiness) }
        watch.interest = .readable
        self.watch = watch
        pool.connected(self)
        // The server's first bytes may have been read with the end of the handshake.
        loop.execute { [self] in read() }
    }

    private func stopConnecting() {
        unsafe carillon_multi_set_socket_callback(multi, nil)
        unsafe carillon_multi_set_timer_callback(multi, nil)
        timer?.cancel()
        timer = nil
        for watch in watches.values { watch.close() }
        watches = [:]
    }

    private func failure(_ code: CURLcode) -> HTTPTransportError {
        let text = unsafe String(cString: errorText)
        let detail = text.isEmpty ? unsafe String(cString: curl_easy_strerror(code)) : text
        return HTTPTransportError(
            addressWasRefused ? .hostRefused : Transfer.kind(code),
            requestWasNotSent: true,
            detail: "\(code.rawValue) \(detail)"
        )
    }

    // MARK: libcurl's callbacks while connecting

    fileprivate func looksUp() { pool.lookups += 1 }

    fileprivate func mayConnect(to address: PeerAddress) -> Bool {
        let isProxy = hasProxy && address.port != url.port
        guard verdict == .publicAddressOnly, !isProxy else { return true }
        addressWasRefused = !address.isPublic
        return address.isPublic
    }

    fileprivate func prepare(_ context: UnsafeMutableRawPointer) -> Bool {
        unsafe trust.prepare(context)
    }

    /// Reads the chosen protocol from the TLS session, which libcurl exposes only during this
    /// callback.
    fileprivate func isReady() {
        guard let tls = unsafe carillon_easy_tls_session(easy) else { return }
        speaksHTTP2 = unsafe hasChosenHTTP2(tls)
        unsafe buffered = unsafe bufferReads(tls, bytes: Self.socketBytes)
    }

    // MARK: Bytes

    /// The bytes of the session that the socket has not taken.
    var pendingBytes: Int { output.pending }

    var peerStreamLimit: Int { session.peerStreamLimit }

    /// The memory in use for output.
    var outputMemory: Int { output.bytes.count }

    /// Whether the socket takes no output now, so that more output would only wait.
    private(set) var isCongested = false
    /// Whether the socket is watched for becoming writable.
    private var isBlocked = false

    private func ready(_ readiness: DescriptorReadiness) {
        if readiness.contains(.writable) {
            if write() { pool.drained() }
        }
        if !readiness.isDisjoint(with: [.readable, .disconnected]) { read() }
    }

    private func read() {
        guard phase == .open else { return }
        let open = session.openStreams
        let (count, error) = unsafe receive(into: pool.input)
        let ended = open - session.openStreams
        // Bytes received before the end are processed first.
        if count > 0 { pool.received(self) }
        guard phase == .open else { return }
        if let error {
            end(error)
        } else if count > Self.inputBytes - Self.recordBytes {
            loop.execute { [self] in read() }
        } else if open >= Self.busyStreams, ended * Self.busyPart < open {
            rest()
        }
    }

    private func rest() {
        guard pause == nil else { return }
        pause = loop.schedule(after: .milliseconds(1)) { [unowned self] in
            pause = nil
            listen()
            read()
        }
        listen()
    }

    private func listen() {
        var interest: DescriptorReadiness = []
        if pause == nil { interest.insert(.readable) }
        if isBlocked { interest.insert(.writable) }
        watch?.interest = interest
    }

    /// Passes all available bytes to the session at once. If nearly all of the buffer was used,
    /// there may be more.
    private func receive(
        into buffer: UnsafeMutableRawBufferPointer
    ) -> (count: Int, error: HTTPTransportError?) {
        var error: HTTPTransportError?
        var mayHaveMore = true
        var filled = 0
        while mayHaveMore, error == nil, filled + Self.recordBytes <= buffer.count {
            var count = 0
            let start = unsafe buffer.baseAddress.map { unsafe $0 + filled }
            let code = unsafe curl_easy_recv(easy, start, Self.recordBytes, &count)
            if code == CURLE_AGAIN {
                mayHaveMore = false
            } else if code == CURLE_OK, count > 0 {
                filled += count
                // The socket itself need not be read again: it wakes us.
                if let buffered = unsafe buffered, count < Self.recordBytes {
                    mayHaveMore = unsafe hasBuffered(buffered)
                }
            } else {
                error = Self.lost(code == CURLE_OK ? "closed by the server" : "recv \(code)")
            }
        }
        do throws(HTTP2SessionError) {
            try unsafe session.receive(UnsafeRawBufferPointer(rebasing: buffer[..<filled]))
        } catch let problem {
            let detail = problem.description
            error = HTTPTransportError(
                .protocolViolation,
                requestWasNotSent: false,
                detail: detail
            )
        }
        return (filled, error)
    }

    /// Sends the session's output: once a turn, at its end. A connection that fails here ends in a
    /// later turn.
    func flush() {
        guard phase == .open else { return }
        do throws(HTTP2SessionError) {
            var mayHaveMore = true
            while mayHaveMore, !isCongested, phase == .open {
                mayHaveMore = try session.drain(into: &output.bytes, upTo: Self.outputBytes)
                write()
            }
        } catch {
            loop.execute { [self] in end(Self.lost("session: \(error.description)")) }
            return
        }
        if session.isOver, pendingBytes == 0 {
            loop.execute { [self] in end(Self.lost("over")) }
        }
    }

    /// Writes the output; returns whether the socket has taken all of it.
    @discardableResult
    private func write() -> Bool {
        guard phase == .open else { return false }
        while output.pending > 0 {
            var count = 0
            let code = unsafe output.withPending { bytes in
                unsafe curl_easy_send(easy, bytes.baseAddress, bytes.count, &count)
            }
            if code == CURLE_AGAIN {
                isCongested = true
                isBlocked = true
                listen()
                return false
            }
            guard code == CURLE_OK else {
                // The server's last bytes must still be read, to their end.
                unsafe buffered = nil
                loop.execute { [self] in
                    read()
                    end(Self.lost("send \(code)"))
                }
                isCongested = true
                isBlocked = false
                listen()
                return false
            }
            output.took(count)
            writtenBytes += count
        }
        isCongested = false
        isBlocked = false
        listen()
        return true
    }

    private static func lost(_ detail: String) -> HTTPTransportError {
        HTTPTransportError(.connectionLost, requestWasNotSent: false, detail: detail)
    }

    // MARK: The end

    /// Sends GOAWAY if the connection is open, then ends it. The pool is notified of each request's
    /// end.
    func shut(_ error: HTTPTransportError) {
        if phase == .open {
            session.terminate()
            _ = try? session.drain(into: &output.bytes, upTo: Self.outputBytes)
            write()
        }
        end(error)
    }

    func end(_ error: HTTPTransportError) {
        guard phase != .closed else { return }
        let wasOpen = phase == .open
        if !wasOpen { stopConnecting() }
        phase = .closed
        pause?.cancel()
        pause = nil
        watch?.close()
        watch = nil
        pool.ended(self, error, wasOpen: wasOpen)
        // Released in a later turn, as libcurl may be the caller.
        let me = itself
        itself = nil
        loop.execute { _ = me }
    }
}

private func connection(_ pointer: UnsafeMutableRawPointer?) -> HTTP2Connection? {
    unsafe pointer.map { unsafe Unmanaged<HTTP2Connection>.fromOpaque($0).takeUnretainedValue() }
}

private func onSocket(
    _: UnsafeMutableRawPointer?,
    _ descriptor: curl_socket_t,
    _ what: Int32,
    _ pointer: UnsafeMutableRawPointer?,
    _: UnsafeMutableRawPointer?
) -> Int32 {
    unsafe connection(pointer)?.socketChanged(descriptor, what)
    return 0
}

private func onTimer(
    _: UnsafeMutableRawPointer?,
    _ milliseconds: Int,
    _ pointer: UnsafeMutableRawPointer?
) -> Int32 {
    unsafe connection(pointer)?.timerChanged(milliseconds)
    return 0
}

private func onContext(
    _: UnsafeMutableRawPointer?,
    _ context: UnsafeMutableRawPointer?,
    _ pointer: UnsafeMutableRawPointer?
) -> CURLcode {
    guard let context = unsafe context, let connection = unsafe connection(pointer) else {
        return CURLE_SSL_CONNECT_ERROR
    }
    return unsafe connection.prepare(context) ? CURLE_OK : CURLE_SSL_CONNECT_ERROR
}

private func onReady(
    _ pointer: UnsafeMutableRawPointer?,
    _: UnsafeMutablePointer<CChar>?,
    _: UnsafeMutablePointer<CChar>?,
    _: Int32,
    _: Int32
) -> Int32 {
    unsafe connection(pointer)?.isReady()
    return CURL_PREREQFUNC_OK
}

/// Notes a lookup. Not called if libcurl has an address from an earlier lookup.
private func onLookup(
    _: UnsafeMutableRawPointer?,
    _: UnsafeMutableRawPointer?,
    _ pointer: UnsafeMutableRawPointer?
) -> Int32 {
    unsafe connection(pointer)?.looksUp()
    return 0
}

private func onOpenSocket(
    _ pointer: UnsafeMutableRawPointer?,
    _: curlsocktype,
    _ address: UnsafeMutablePointer<curl_sockaddr>?
) -> curl_socket_t {
    guard let address = unsafe address, let connection = unsafe connection(pointer) else {
        return -1
    }
    return unsafe openSocket(address) { connection.mayConnect(to: $0) }
}

extension EasyOptions {
    /// Sets the callbacks; the pointer is the `HTTP2Connection`, unretained: it outlives its
    /// handles.
    fileprivate mutating func setConnectionCallbacks(_ connection: UnsafeMutableRawPointer) {
        unsafe setSSLCallback(onContext)
        unsafe setPrerequisiteCallback(onReady)
        unsafe setOpenSocketCallback(onOpenSocket)
        unsafe setLookupCallback(onLookup)
        for option in [
            CURLOPT_SSL_CTX_DATA, CURLOPT_PREREQDATA, CURLOPT_OPENSOCKETDATA,
            CURLOPT_RESOLVER_START_DATA,
        ] {
            unsafe setPointer(option, connection)
        }
    }
}
