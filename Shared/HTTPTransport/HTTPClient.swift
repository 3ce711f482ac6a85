internal import CCurl
package import EventLoop
package import Observability

/// HTTP calls through one libcurl multi handle, driven by the loop's descriptors and timers.
///
/// Authority: confined to one loop; sole owner of its connections. Each call ends exactly once:
/// with its answer, with an error that says whether anything of the request may have reached the
/// peer, at its deadline, or with `closed`. No call completes before `send` has returned.
///
/// Shutdown: `close()` ends every call and leaves nothing registered with the loop;
/// `closeAfterLastCall()` takes no new calls and does the same once the running ones have ended. An
/// open client keeps itself alive, as libcurl's callbacks point to it: its maker must close it.
@safe
package final class HTTPClient: @unchecked Sendable {
    package typealias Completion = (Result<HTTPResponse, HTTPTransportError>) -> Void
    /// The loop, for modules that only pass it on.
    package typealias Loop = EventLoop

    private enum State {
        case open, closing, closed
    }

    package let loop: EventLoop
    private let configuration: HTTPTransportConfiguration
    private let log: Log
    private let multi: UnsafeMutableRawPointer
    private var state = State.open
    private var transfers: [UInt: Transfer] = [:]
    private let gate = ConnectionGate()
    /// Transfers that are out of libcurl for now: they wait for the answer to the first call, or
    /// will be added again. They are in `transfers`, too.
    private var heldBack: [UInt: Transfer] = [:]
    private var watches: [Int32: DescriptorWatch] = [:]
    private var libcurlTimer: LoopTimer?
    private var deadlineTimer: LoopTimer?
    private var itself: HTTPClient?

    /// Whether libcurl is initialized: once a process, as its manual requires before any thread
    /// uses the library.
    static let libraryIsReady: Bool = curl_global_init(Int(CURL_GLOBAL_DEFAULT)) == CURLE_OK

    /// The interval at which deadlines are checked: one timer for all calls instead of one each.
    private static let deadlineTick = Duration.milliseconds(50)

    package init(
        _ configuration: HTTPTransportConfiguration,
        on loop: EventLoop,
        log: Log = .disabled
    ) throws(HTTPTransportError) {
        guard Self.libraryIsReady, let multi = unsafe curl_multi_init() else {
            throw HTTPTransportError(.local, requestWasNotSent: true)
        }
        self.loop = loop
        self.configuration = configuration
        self.log = log
        unsafe self.multi = unsafe multi
        let me = unsafe Unmanaged.passUnretained(self).toOpaque()
        unsafe carillon_multi_set_socket_callback(multi, onSocket)
        unsafe carillon_multi_set_pointer(multi, CURLMOPT_SOCKETDATA, me)
        unsafe carillon_multi_set_timer_callback(multi, onTimer)
        unsafe carillon_multi_set_pointer(multi, CURLMOPT_TIMERDATA, me)
        unsafe carillon_multi_set_long(multi, CURLMOPT_PIPELINING, Int(CURLPIPE_MULTIPLEX))
        unsafe carillon_multi_set_long(
            multi,
            CURLMOPT_MAX_HOST_CONNECTIONS,
            configuration.maximumConnectionsPerHost
        )
        unsafe carillon_multi_set_long(
            multi,
            CURLMOPT_MAX_CONCURRENT_STREAMS,
            configuration.maximumConcurrentStreams
        )
        itself = self
    }

    /// Calls accepted and not yet finished. Loop only.
    package var callsInProgress: Int { transfers.count }

    /// Starts one call. Loop only; `completion` runs on the loop, later.
    package func send(_ request: HTTPRequest, completion: @escaping Completion) {
        assert(loop.isCurrent)
        guard state == .open else {
            fail(HTTPTransportError(.closed, requestWasNotSent: true), completion)
            return
        }
        guard transfers.count < configuration.maximumCalls else {
            fail(HTTPTransportError(.overloaded, requestWasNotSent: true), completion)
            return
        }
        let transfer: Transfer
        do throws(HTTPTransportError) {
            transfer = try Transfer(
                request,
                configuration,
                gate: configuration.version == .http1Only ? nil : gate,
                completion: completion
            )
        } catch {
            fail(error, completion)
            return
        }
        guard unsafe curl_multi_add_handle(multi, transfer.easyHandle) == CURLM_OK else {
            fail(HTTPTransportError(.local, requestWasNotSent: true), completion)
            return
        }
        transfers[transfer.key] = transfer
        watchDeadlines()
    }

    /// Makes one call from any task. Cancellation does not end the call, which ends at the
    /// request's deadline at the latest.
    nonisolated package func call(
        _ request: HTTPRequest
    ) async throws(HTTPTransportError) -> HTTPResponse {
        let result = await withCheckedContinuation { continuation in
            loop.execute {
                self.send(request) { continuation.resume(returning: $0) }
            }
        }
        return try result.get()
    }

    /// Ends every call with `closed` and closes every connection. Loop only; safe to repeat.
    package func close() {
        assert(loop.isCurrent)
        guard state != .closed else { return }
        state = .closed
        libcurlTimer?.cancel()
        libcurlTimer = nil
        deadlineTimer?.cancel()
        deadlineTimer = nil
        for watch in watches.values { watch.close() }
        watches = [:]
        let unfinished = transfers
        transfers = [:]
        heldBack = [:]
        for transfer in unfinished.values {
            unsafe curl_multi_remove_handle(multi, transfer.easyHandle)
        }
        unsafe curl_multi_cleanup(multi)
        for transfer in unfinished.values {
            let error = HTTPTransportError(
                .closed,
                requestWasNotSent: !transfer.mayHaveBeenSent
            )
            transfer.completion(.failure(error))
        }
        itself = nil
    }

    /// Takes no further calls, and closes once the calls in progress have ended. Loop only.
    package func closeAfterLastCall() {
        assert(loop.isCurrent)
        guard state == .open else { return }
        state = .closing
        if transfers.isEmpty { loop.execute { self.closeIfDone() } }
    }

    // MARK: libcurl's requests

    /// Changes a watch. Called from inside libcurl, so it must not call libcurl.
    fileprivate func socketChanged(_ descriptor: Int32, _ what: Int32) {
        guard state != .closed else { return }
        if what == CURL_POLL_REMOVE {
            watches.removeValue(forKey: descriptor)?.close()
            return
        }
        let watch =
            watches[descriptor]
            ?? loop.watch(descriptor) { [unowned self] readiness in
                self.ready(descriptor, readiness)
            }
        watches[descriptor] = watch
        var interest: DescriptorReadiness = []
        if what & CURL_POLL_IN != 0 { interest.insert(.readable) }
        if what & CURL_POLL_OUT != 0 { interest.insert(.writable) }
        watch.interest = interest
    }

    fileprivate func timerChanged(_ milliseconds: Int) {
        libcurlTimer?.cancel()
        libcurlTimer = nil
        guard milliseconds >= 0, state != .closed else { return }
        libcurlTimer = loop.schedule(after: .milliseconds(milliseconds)) { [unowned self] in
            self.libcurlTimer = nil
            self.act(on: -1, 0)
        }
    }

    private func ready(_ descriptor: Int32, _ readiness: DescriptorReadiness) {
        var events: Int32 = 0
        if readiness.contains(.readable) { events |= CURL_CSELECT_IN }
        if readiness.contains(.writable) { events |= CURL_CSELECT_OUT }
        if readiness.contains(.disconnected) { events |= CURL_CSELECT_ERR }
        act(on: descriptor, events)
    }

    /// Runs libcurl's action for a descriptor; -1 stands for its own timer.
    private func act(on descriptor: Int32, _ events: Int32) {
        guard state != .closed else { return }
        var running: Int32 = 0
        unsafe curl_multi_socket_action(multi, descriptor, events, &running)
        finishTransfers()
    }

    private func finishTransfers() {
        var finished: [Finished] = []
        var areUnprocessed = false
        var code = CURLE_OK
        while let handle = unsafe carillon_multi_next_finished(multi, &code) {
            let key = UInt(bitPattern: handle)
            unsafe curl_multi_remove_handle(multi, handle)
            guard let transfer = transfers[key] else { continue }
            if code != CURLE_OK, transfer.takeHeldBack() {
                heldBack[key] = transfer
                continue
            }
            if code != CURLE_OK, transfer.takeUnprocessed() {
                heldBack[key] = transfer
                areUnprocessed = true
                _ = gate.finished(key, wasAnswered: false, port: transfer.port)
                continue
            }
            transfers[key] = nil
            finished.append((transfer, transfer.result(code)))
        }
        if areUnprocessed { startWaiting() }
        complete(finished)
    }

    private func startWaiting() {
        guard !heldBack.isEmpty else { return }
        let transfers = heldBack.values
        heldBack = [:]
        var refused: [Finished] = []
        for transfer in transfers {
            if unsafe curl_multi_add_handle(multi, transfer.easyHandle) == CURLM_OK { continue }
            self.transfers[transfer.key] = nil
            let error = HTTPTransportError(
                .local,
                requestWasNotSent: !transfer.mayHaveBeenSent
            )
            refused.append((transfer, .failure(error)))
        }
        if !refused.isEmpty { complete(refused) }
    }

    private typealias Finished = (Transfer, Result<HTTPResponse, HTTPTransportError>)

    /// Completes calls that libcurl has released: a completion may send again, or close.
    private func complete(_ finished: [Finished]) {
        var opensGate = false
        for (transfer, result) in finished {
            let wasAnswered = (try? result.get()) != nil
            let unblocks = gate.finished(
                transfer.key,
                wasAnswered: wasAnswered,
                port: transfer.port
            )
            opensGate = opensGate || unblocks
        }
        if opensGate, state != .closed { startWaiting() }
        for (transfer, result) in finished {
            if case .failure(let error) = result {
                log.debug("call failed", [.error: .string(error.debugDescription)])
            }
            transfer.completion(result)
        }
        closeIfDone()
    }

    private func closeIfDone() {
        if state == .closing, transfers.isEmpty { close() }
    }

    // MARK: Deadlines

    private func watchDeadlines() {
        guard deadlineTimer == nil else { return }
        deadlineTimer = loop.schedule(after: Self.deadlineTick, every: Self.deadlineTick) {
            [unowned self] in self.endOverdue()
        }
    }

    private func endOverdue() {
        let now = ContinuousClock.now
        let overdue = transfers.values.filter { $0.deadline <= now }
        for transfer in overdue {
            transfers[transfer.key] = nil
            heldBack[transfer.key] = nil
            unsafe curl_multi_remove_handle(multi, transfer.easyHandle)
        }
        if transfers.isEmpty {
            deadlineTimer?.cancel()
            deadlineTimer = nil
        }
        if gate.isTimedOut(at: now) { startWaiting() }
        complete(overdue.map { ($0, .failure($0.timedOut())) })
    }

    private func fail(_ error: HTTPTransportError, _ completion: @escaping Completion) {
        loop.atEndOfTurn { completion(.failure(error)) }
    }
}

private func onSocket(
    _ handle: UnsafeMutableRawPointer?,
    _ descriptor: curl_socket_t,
    _ what: Int32,
    _ client: UnsafeMutableRawPointer?,
    _ socketData: UnsafeMutableRawPointer?
) -> Int32 {
    guard let client = unsafe client else { return 0 }
    unsafe Unmanaged<HTTPClient>.fromOpaque(client).takeUnretainedValue()
        .socketChanged(descriptor, what)
    return 0
}

private func onTimer(
    _ multi: UnsafeMutableRawPointer?,
    _ milliseconds: Int,
    _ client: UnsafeMutableRawPointer?
) -> Int32 {
    guard let client = unsafe client else { return 0 }
    unsafe Unmanaged<HTTPClient>.fromOpaque(client).takeUnretainedValue()
        .timerChanged(milliseconds)
    return 0
}
