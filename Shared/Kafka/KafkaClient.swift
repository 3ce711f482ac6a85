internal import CRDKafka
internal import EventLoop
internal import Glibc
internal import Observability

/// Sole owner of one `rd_kafka_t *`, of the queue on which all its events arrive, and of the pipe
/// that wakes the loop for an event. Confined to its loop, except for the destruction.
///
/// librdkafka writes to the pipe only if the queue was empty before, so each wake-up must drain the
/// queue. A native event lives only inside `serveOne`: an event that is still alive makes
/// `rd_kafka_destroy` hang for ever.
@safe
final class KafkaClient: @unchecked Sendable {
    enum Kind {
        case consumer(group: String, PartitionAssignment = .cooperative)
        case producer(deliveryTimeoutMilliseconds: Int)
        case admin
    }

    private let pointer: OpaquePointer
    private var queue: OpaquePointer?
    private var pipe: WakeUpPipe?
    private var watch: DescriptorWatch?
    private var isServing = false
    private var isReleased = false
    private let log: Log
    private let errors: ErrorCounters
    private let credentials: (name: String, password: String)
    /// The limits at which a consumer's librdkafka stops fetching ahead; 0 for others.
    let queueLimits: (records: Int, bytes: Int)

    /// Starts librdkafka's threads. They connect at once; no request is sent yet.
    init(
        _ kind: Kind,
        _ configuration: KafkaConfiguration,
        log: Log,
        metrics: Metrics?
    ) throws(KafkaError) {
        let settings = try configuration.settings(for: kind)
        let native = ConfigurationHandle()
        for (name, value) in settings { try native.set(name, value) }
        func setting(_ name: String) -> String {
            settings.last { $0.name == name }?.value ?? ""
        }
        let user = setting("sasl.username")
        credentials = (user.isEmpty ? setting("sasl.user") : user, setting("sasl.password"))
        queueLimits = (
            Int(setting("queued.min.messages")) ?? 0,
            (Int(setting("queued.max.messages.kbytes")) ?? 0) << 10
        )
        let common =
            RD_KAFKA_EVENT_ERROR | RD_KAFKA_EVENT_LOG | RD_KAFKA_EVENT_STATS
        switch kind {
        case .consumer:
            native.setEvents(
                common | RD_KAFKA_EVENT_FETCH | RD_KAFKA_EVENT_REBALANCE
                    | RD_KAFKA_EVENT_OFFSET_COMMIT
            )
            unsafe pointer = try native.makeClient(RD_KAFKA_CONSUMER)
            unsafe rd_kafka_poll_set_consumer(pointer)
            unsafe queue = rd_kafka_queue_get_consumer(pointer)
        case .producer:
            native.setEvents(common | RD_KAFKA_EVENT_DR)
            unsafe pointer = try native.makeClient(RD_KAFKA_PRODUCER)
            unsafe queue = rd_kafka_queue_get_main(pointer)
        case .admin:
            native.setEvents(common)
            unsafe pointer = try native.makeClient(RD_KAFKA_PRODUCER)
            unsafe queue = rd_kafka_queue_get_main(pointer)
        }
        unsafe rd_kafka_set_log_queue(pointer, queue)
        self.log = log
        errors = ErrorCounters(metrics)
    }

    /// Destroys a client that was not closed: it never subscribed, or its owner was released early.
    deinit {
        guard !isReleased else { return }
        detach()
        unsafe destroyClient(pointer, consumerClose: false)
    }

    /// Calls back on the loop whenever the queue becomes non-empty. On the loop only, once.
    func start(on loop: EventLoop, _ wake: @escaping () -> Void) throws {
        let pipe = try WakeUpPipe()
        let watch = loop.watch(pipe.readEnd) { _ in
            pipe.clear()
            wake()
        }
        watch.interest = .readable
        self.pipe = pipe
        self.watch = watch
        unsafe rd_kafka_queue_io_event_enable(queue, pipe.writeEnd, "1", 1)
    }

    /// Takes one event off the queue and frees it when `body` returns. Waits at most `milliseconds`
    /// (0 on a loop).
    ///
    /// - Returns: False if there was no event.
    func serveOne(
        waiting milliseconds: Int32 = 0,
        _ body: (borrowing KafkaEvent) -> Void
    ) -> Bool {
        guard let queue = unsafe queue,
            let event = unsafe rd_kafka_queue_poll(queue, milliseconds)
        else { return false }
        isServing = true
        defer {
            unsafe rd_kafka_event_destroy(event)
            isServing = false
        }
        let borrowed = unsafe KafkaEvent(borrowing: event)
        switch borrowed.kind {
        case .log(let line): write(line)
        case .error(let error, _): count(error)
        default: break
        }
        body(borrowed)
        return true
    }

    /// Counts an error that did not arrive as an event.
    func count(_ error: KafkaError) { errors.count(error) }

    /// The number of waiting events.
    var queueLength: Int {
        guard let queue = unsafe queue else { return 0 }
        return unsafe rd_kafka_queue_length(queue)
    }

    /// Makes librdkafka notice now that its queue has room, and not up to a second later.
    ///
    /// Its threads stop fetching when the queue is at its limits, and 2.0 checks again only when
    /// something wakes them. The one call that wakes them sets the credentials, here to their
    /// present values, which are used only if SASL asks for a name and a password. Later versions
    /// have a property for it: `fetch.queue.backoff.ms`.
    func wakeFetching() {
        let error = unsafe rd_kafka_sasl_set_credentials(
            pointer,
            credentials.name,
            credentials.password
        )
        if let error = unsafe error { unsafe rd_kafka_error_destroy(error) }
    }

    /// Logs a line of librdkafka, at `info` at most: the layers above report problems by errors and
    /// readiness.
    private func write(_ line: KafkaEvent.LogLine) {
        let data: LogData = [.detail: .string(line.text), .name: .string(line.facility)]
        if line.level <= 5 {
            log.info("librdkafka", data)
        } else {
            log.debug("librdkafka", data)
        }
    }

    /// Calls librdkafka with the client, which must not outlive `body`.
    func withHandle<Result>(_ body: (OpaquePointer) throws -> Result) rethrows -> Result {
        try unsafe body(pointer)
    }

    /// Calls `body` with the client's queue; `nil` once it is released.
    func withQueue<Result>(_ body: (OpaquePointer?) throws -> Result) rethrows -> Result {
        try unsafe body(queue)
    }

    /// The fatal error of the client, if there was one.
    var fatalError: KafkaError? {
        var text = [CChar](repeating: 0, count: 256)
        let code = unsafe rd_kafka_fatal_error(pointer, &text, text.count)
        guard code != RD_KAFKA_RESP_ERR_NO_ERROR else { return nil }
        let reason = text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
        return KafkaError(code, isFatal: true, detail: String(decoding: reason, as: UTF8.self))
    }

    // MARK: The end

    /// Releases queue and pipe, and destroys the client on a new thread, as that may block. `done`
    /// is called on that thread, when librdkafka's resources are freed. Without `leavingGroup` this
    /// member looks crashed to the other members of the group.
    func destroy(leavingGroup: Bool = true, then done: @escaping @Sendable () -> Void) {
        guard !isReleased else { return done() }
        precondition(!isServing, "an event is alive")
        isReleased = true
        detach()
        unsafe destroyClient(pointer, consumerClose: leavingGroup, then: done)
    }

    /// Leaves the client to the process' end: destroying it now could block for ever.
    func abandon() {
        guard !isReleased else { return }
        isReleased = true
        detach()
    }

    private func detach() {
        if let queue = unsafe queue {
            unsafe rd_kafka_queue_io_event_enable(queue, -1, nil, 0)
            unsafe rd_kafka_queue_destroy(queue)
        }
        unsafe queue = nil
        if let watch {
            // From `deinit` this may be any thread; the pipe must outlive the watch.
            let end = WatchEnd(watch: watch, pipe: pipe)
            if watch.loop.isCurrent { end.run() } else { watch.loop.execute { end.run() } }
        }
        watch = nil
        pipe = nil
    }
}

/// Carries a watch to its loop, where the watch is closed.
private struct WatchEnd: @unchecked Sendable {
    let watch: DescriptorWatch
    let pipe: WakeUpPipe?

    func run() {
        watch.close()
        withExtendedLifetime(pipe) {}
    }
}

/// Both ends of a nonblocking pipe. librdkafka writes, the loop reads.
private final class WakeUpPipe: Sendable {
    let readEnd: Int32
    let writeEnd: Int32

    init() throws {
        var ends: [Int32] = [-1, -1]
        let status = unsafe Glibc.pipe(&ends)
        guard status == 0 else {
            throw KafkaError(RD_KAFKA_RESP_ERR__FAIL, detail: "pipe: errno \(errno)")
        }
        for end in ends {
            _ = fcntl(end, F_SETFL, O_NONBLOCK)
            _ = fcntl(end, F_SETFD, FD_CLOEXEC)
        }
        readEnd = ends[0]
        writeEnd = ends[1]
    }

    deinit {
        close(readEnd)
        close(writeEnd)
    }

    func clear() {
        unsafe withUnsafeTemporaryAllocation(byteCount: 256, alignment: 1) { buffer in
            while unsafe read(readEnd, buffer.baseAddress, buffer.count) == buffer.count {}
        }
    }
}

/// Counters of errors by the name of their code: a closed set, each looked up once.
private final class ErrorCounters {
    private let metrics: Metrics?
    private var counters: [String: Counter] = [:]

    init(_ metrics: Metrics?) { self.metrics = metrics }

    func count(_ error: KafkaError) {
        guard let metrics else { return }
        let counter =
            counters[error.metricLabel]
            ?? metrics.counter(.kafkaErrors, ["error": error.metricLabel])
        counters[error.metricLabel] = counter
        counter.add()
    }
}

/// Destroys the client on a new thread, as the destruction waits for librdkafka's threads.
private func destroyClient(
    _ pointer: OpaquePointer,
    consumerClose: Bool,
    then done: @escaping @Sendable () -> Void = {}
) {
    let address = Int(bitPattern: pointer)
    runOnOwnThread {
        let flags = consumerClose ? 0 : RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE
        unsafe rd_kafka_destroy_flags(OpaquePointer(bitPattern: address), Int32(flags))
        done()
    }
}

/// Runs `body` on a new thread, which ends with it.
func runOnOwnThread(_ body: @escaping @Sendable () -> Void) {
    final class Box: Sendable {
        let body: @Sendable () -> Void
        init(_ body: @escaping @Sendable () -> Void) { self.body = body }
    }
    let box = unsafe Unmanaged.passRetained(Box(body))
    var thread = pthread_t()
    let status = unsafe pthread_create(
        &thread,
        nil,
        { argument in
            if let argument = unsafe argument {
                unsafe Unmanaged<Box>.fromOpaque(argument).takeRetainedValue().body()
            }
            return nil
        },
        box.toOpaque()
    )
    guard status == 0 else {
        unsafe box.release()
        body()
        return
    }
    pthread_detach(thread)
}
