internal import CRDKafka
package import EventLoop
package import Observability

/// Writes records to Kafka. All in-sync replicas acknowledge each record, and a retry never writes
/// a record twice.
///
/// Authority: the records that librdkafka has and that are not acknowledged. A `send` suspends
/// until every one of its records is acknowledged or has failed. At most `maximumOutstanding`
/// records are with librdkafka; further records wait in order.
///
/// States: open → closing → closed. A record that no broker accepts fails after `deliveryTimeout`
/// with a retryable error.
///
/// Shutdown: `close` accepts no more records, waits for the outstanding acknowledgements, at most
/// `limit`, then fails the remaining records as retryable. Whether such a record was written is not
/// known; sending it again is safe if the reader deduplicates it by an id.
package actor KafkaProducer {
    nonisolated let loop: EventLoop
    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    private enum State { case idle, open, closing, destroying, closed }

    private enum Records {
        case single([KafkaOutgoing])
        case block(KafkaRecordBlock)

        var count: Int {
            switch self {
            case .single(let records): records.count
            case .block(let block): block.count
            }
        }
    }

    /// One call of `send`. Confined to the loop.
    private final class Sending: @unchecked Sendable {
        /// `nil` once librdkafka has copies of all.
        private(set) var records: Records?
        let count: Int
        /// The caller's continuation, once it waits.
        var continuation: CheckedContinuation<[Int: KafkaError], Never>?
        /// The errors of the failed records.
        var errors: [Int: KafkaError] = [:]
        var isAnswered: [Bool]
        /// How many records librdkafka was asked to accept.
        var produced = 0
        /// How many records librdkafka accepted and no broker has acknowledged.
        var unanswered = 0

        init(_ records: consuming Records) {
            count = records.count
            isAnswered = Array(repeating: false, count: count)
            self.records = records
        }

        var isOver: Bool { produced == count && unanswered == 0 }

        /// Releases the records, of which librdkafka has copies.
        func releaseRecords() { records = nil }
    }

    private let client: KafkaClient
    private let log: Log
    private let maximumOutstanding: Int
    private nonisolated let availability: Availability

    private var state = State.idle
    private var sendings: [Int: Sending] = [:]
    private var nextSending = 0
    /// The sends that are not completely with librdkafka, first in, first out.
    private var line: [Int] = []
    private var outstanding = 0
    private var isServeScheduled = false
    private var failure: KafkaError?
    private var lastError: KafkaError?
    private var ticker: LoopTimer?
    private var deadline: LoopTimer?
    private var isPurged = false
    private var answeredAt: ContinuousClock.Instant?
    private var closers: [CheckedContinuation<Void, Never>] = []
    private let acknowledged: Counter?
    private let failed: Counter?
    private let queueGauge: Gauge?
    private let metrics: Metrics?
    private var batches: [String: (count: Counter, records: Counter)] = [:]

    private static let eventsPerServe = 200

    /// Starts librdkafka's threads, which connect at once. `maximumOutstanding` limits the records
    /// that librdkafka has, which a stop must wait for; `deliveryTimeout` is how long a record may
    /// wait for its acknowledgement, at least 1 s.
    ///
    /// - Throws: `KafkaError` if the configuration is invalid, naming the property.
    package init(
        _ configuration: KafkaConfiguration,
        maximumOutstanding: Int = 20_000,
        deliveryTimeout: Duration = .seconds(30),
        on loop: EventLoop,
        log: Log = .disabled,
        metrics: Metrics? = nil
    ) throws(KafkaError) {
        precondition(maximumOutstanding > 0)
        self.loop = loop
        self.log = log
        self.maximumOutstanding = maximumOutstanding
        let milliseconds = Int(deliveryTimeout / .milliseconds(1))
        client = try KafkaClient(
            .producer(deliveryTimeoutMilliseconds: max(1000, milliseconds)),
            configuration,
            log: log,
            metrics: metrics
        )
        availability = Availability([.broker: "producer has reached no broker yet"])
        acknowledged = metrics?.counter(.kafkaProduced, ["outcome": "acknowledged"])
        failed = metrics?.counter(.kafkaProduced, ["outcome": "failed"])
        queueGauge = metrics?.gauge(.kafkaQueue)
        self.metrics = metrics
    }

    /// Returns `nil` while a broker is reachable; else the reason. Thread-safe.
    package nonisolated func notReadyReason() -> String? { availability.reason }

    /// The records that librdkafka has and that are not acknowledged.
    package var outstandingRecords: Int { outstanding }

    // MARK: Sending

    /// Writes records, and waits until each is acknowledged or has failed. Cancelling the task does
    /// not shorten the wait, as a record in flight gets an outcome in any case.
    ///
    /// - Returns: One element for each record: `nil` if it was written, else its error. A record
    ///   may be sent again if its error `isRetryable`.
    /// - Throws: `KafkaError` if the producer is closed or failed for good; nothing was written.
    package func send(_ records: [KafkaOutgoing]) async throws -> [KafkaError?] {
        let errors = try await send(Sending(.single(records)))
        return records.indices.map { errors[$0] }
    }

    /// Writes many records of one topic, at a lower cost.
    ///
    /// - Returns: The errors of the records that are not written, by index.
    /// - Throws: `KafkaError` if the producer is closed or failed for good; nothing was written.
    package func send(_ block: consuming KafkaRecordBlock) async throws -> [Int: KafkaError] {
        try await send(Sending(.block(block)))
    }

    private func send(_ sending: Sending) async throws -> [Int: KafkaError] {
        if let failure { throw failure }
        if sending.count == 0 { return [:] }
        try open()
        guard state == .open else { throw KafkaError.closed }
        return await withCheckedContinuation { continuation in
            sending.continuation = continuation
            sendings[nextSending] = sending
            line.append(nextSending)
            nextSending += 1
            feed()
        }
    }

    /// Serves until the task is cancelled, then closes.
    ///
    /// - Throws: `KafkaError` if the producer failed for good, and must be made again.
    package func run(closingWithin limit: Duration = .seconds(10)) async throws {
        try open()
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                if state == .closed { continuation.resume() } else { closers.append(continuation) }
            }
        } onCancel: {
            loop.execute { self.assumeIsolated { $0.beginClose(within: limit) } }
        }
        if let failure { throw failure }
    }

    /// Takes no more records, waits for the records in flight, at most `limit`, and destroys the
    /// client.
    package func close(within limit: Duration = .seconds(10)) async {
        await withCheckedContinuation { continuation in
            if state == .closed { return continuation.resume() }
            closers.append(continuation)
            beginClose(within: limit)
        }
    }

    private func open() throws {
        guard state == .idle else { return }
        try client.start(on: loop) { [weak self] in self?.assumeIsolated { $0.serve() } }
        ticker = loop.schedule(after: .milliseconds(500), every: .milliseconds(500)) {
            [weak self] in
            self?.assumeIsolated { producer in
                producer.serve()
                producer.giveUpWhileStopping()
            }
        }
        state = .open
        serve()
    }

    /// Produces waiting records while there is room, first come, first served.
    private func feed() {
        var done = 0
        for id in line {
            if let sending = sendings[id] {
                let isWhole = feed(sending, id)
                settle(sending, id)
                guard isWhole else { break }
            }
            done += 1
        }
        line.removeFirst(done)
        queueGauge?.set(outstanding)
    }

    /// - Returns: False if there is no room for the rest.
    private func feed(_ sending: Sending, _ id: Int) -> Bool {
        while sending.produced < sending.count, let records = sending.records {
            guard outstanding < maximumOutstanding else { return false }
            let start = sending.produced
            let refusal: rd_kafka_resp_err_t
            switch records {
            case .single(let records):
                refusal = client.produce(records[start], number: number(of: start, in: id))
                if refusal == RD_KAFKA_RESP_ERR_NO_ERROR { sending.produced += 1 }
            case .block(let block):
                let end = min(block.count, start + maximumOutstanding - outstanding)
                let result = client.produce(
                    block,
                    start..<end,
                    number: number(of: start, in: id)
                )
                sending.produced += result.taken
                refusal = result.refusal
            }
            sending.unanswered += sending.produced - start
            outstanding += sending.produced - start
            switch refusal {
            case RD_KAFKA_RESP_ERR_NO_ERROR: break
            case RD_KAFKA_RESP_ERR__QUEUE_FULL where outstanding > 0:
                // Full by bytes, before the count is reached: an acknowledgement will make room.
                return false
            default:
                failed?.add()
                sending.errors[sending.produced] = client.fatalError ?? KafkaError(refusal)
                sending.isAnswered[sending.produced] = true
                sending.produced += 1
            }
        }
        sending.releaseRecords()
        return true
    }

    private func settle(_ sending: Sending, _ id: Int) {
        guard sending.isOver, sendings.removeValue(forKey: id) != nil else { return }
        sending.continuation?.resume(returning: sending.errors)
    }

    /// Returns the number that librdkafka carries as a pointer, hence above 0.
    private func number(of index: Int, in sending: Int) -> Int { sending << 32 | (index + 1) }

    // MARK: Acknowledgements

    private func serve() {
        guard state == .open || state == .closing else { return }
        var budget = Self.eventsPerServe
        while budget > 0, client.serveOne({ event in handle(event) }) { budget -= 1 }
        feed()
        if budget == 0, !isServeScheduled {
            isServeScheduled = true
            loop.execute {
                self.assumeIsolated { producer in
                    producer.isServeScheduled = false
                    producer.serve()
                }
            }
        }
        if state == .closing { finishClose() }
    }

    private func handle(_ event: borrowing KafkaEvent) {
        switch event.kind {
        case .deliveries: answer(event)
        case .error(let error, _): report(error)
        case .statistics: measure(KafkaStatistics(event.statistics))
        case .records, .rebalance, .committed, .log, .other: break
        }
    }

    private func measure(_ statistics: KafkaStatistics) {
        if statistics.isBrokerUp { availability.set(.broker, nil) }
        guard let metrics else { return }
        for (topic, since) in statistics.batches {
            let counters =
                batches[topic]
                ?? (
                    metrics.counter(.kafkaBatches, ["topic": topic]),
                    metrics.counter(.kafkaBatchedRecords, ["topic": topic])
                )
            batches[topic] = counters
            counters.count.add(since.count)
            counters.records.add(since.records)
        }
    }

    /// Notes the delivery reports, which mostly are of one `send`.
    private func answer(_ event: borrowing KafkaEvent) {
        var last: (id: Int, sending: Sending)?
        var good = 0
        event.forEachDelivery { number, error in
            let id = number >> 32
            if last?.id != id {
                if let last { settle(last.sending, last.id) }
                last = sendings[id].map { (id, $0) }
            }
            guard let last else { return }
            if error == nil { good += 1 }
            answer(number & 0xFFFF_FFFF - 1, error, of: last.sending)
        }
        if let last { settle(last.sending, last.id) }
        guard good > 0 else { return }
        answeredAt = .now
        acknowledged?.add(good)
        availability.set(.broker, nil)
    }

    private func answer(_ index: Int, _ error: KafkaError?, of sending: Sending) {
        outstanding -= 1
        sending.unanswered -= 1
        sending.isAnswered[index] = true
        guard let error else { return }
        failed?.add()
        client.count(error)
        sending.errors[index] = error
    }

    /// Simulates a broker's acknowledgement for a record of the first `send`.
    func acknowledge(_ index: Int) {
        if let sending = sendings[0] { answer(index, nil, of: sending) }
    }

    private func report(_ error: KafkaError) {
        log.info(
            "producer error",
            [.error: .string(error.description), .detail: .string(error.detail)]
        )
        if error.code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN.rawValue {
            let reason = lastError.map { ": \($0)" } ?? ""
            availability.set(.broker, "producer reaches no broker" + reason)
        } else {
            lastError = error
        }
        if error.isFatal, failure == nil {
            failure = client.fatalError ?? error
            beginClose(within: .seconds(1))
        }
    }

    // MARK: The end

    /// Gives up early while the process stops, as other parts wait for acknowledgements before this
    /// producer is closed. A broker that has been silent since the stop began must not use up the
    /// grace period: the unacknowledged records fail as retryable, and the parts that sent them can
    /// release them.
    private func giveUpWhileStopping() {
        let clock = loop.stopClock
        guard state == .open, outstanding > 0, clock.hasPassed(share: 1.0 / 3) else { return }
        let silence = answeredAt.map { .now - $0 } ?? .seconds(3600)
        // The usual delay of a broker; a shorter stop allows less.
        guard silence >= clock.limit(.seconds(3), share: 0.5) else { return }
        beginClose(within: .zero)
    }

    private func beginClose(within usual: Duration) {
        let limit = loop.stopClock.limit(usual, share: 1.0 / 3)
        switch state {
        case .closing, .destroying, .closed: return
        case .idle:
            state = .closing
            destroyClient()
            return
        case .open: break
        }
        state = .closing
        availability.set(.life, "producer is closing")
        failLine()
        deadline = loop.schedule(after: limit) { [weak self] in self?.assumeIsolated { $0.purge() }
        }
        // In a later turn, as an event that is being served may have called this.
        loop.execute { self.assumeIsolated { $0.serve() } }
    }

    /// Fails the records that librdkafka was not given.
    private func failLine() {
        for id in line {
            guard let sending = sendings[id] else { continue }
            for index in sending.produced..<sending.count {
                sending.errors[index] = .closed
                sending.isAnswered[index] = true
                failed?.add()
            }
            sending.produced = sending.count
            settle(sending, id)
        }
        line.removeAll()
    }

    /// Purges after the time limit: librdkafka then fails the remaining records soon.
    private func purge() {
        guard state == .closing, !isPurged else { return }
        isPurged = true
        log.info("records not acknowledged in time", [.count: .integer(outstanding)])
        unsafe client.withHandle { handle in
            _ = unsafe rd_kafka_purge(
                handle,
                RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT
            )
        }
        // If librdkafka does not answer the purge, which would be its bug, the close must not hang.
        let timeLimit = loop.stopClock.limit(.seconds(2), share: 1.0 / 3)
        deadline = loop.schedule(after: timeLimit) { [weak self] in
            self?.assumeIsolated { $0.answerAllUnanswered() }
        }
        serve()
    }

    /// Fails all unacknowledged records. Acknowledged records of the same `send` stay acknowledged.
    func answerAllUnanswered() {
        guard state == .closing else { return }
        let rest = sendings.values
        sendings.removeAll()
        for sending in rest {
            for (index, isAnswered) in sending.isAnswered.enumerated() where !isAnswered {
                sending.errors[index] = .timedOut
                failed?.add()
            }
            sending.continuation?.resume(returning: sending.errors)
        }
        client.abandon()
        end()
    }

    private func finishClose() {
        guard state == .closing, outstanding == 0, sendings.isEmpty else { return }
        destroyClient()
    }

    private func destroyClient() {
        ticker?.cancel()
        ticker = nil
        deadline?.cancel()
        state = .destroying
        let loop = loop
        let timeLimit = loop.stopClock.limit(.seconds(5), share: 1.0 / 3)
        deadline = loop.schedule(after: timeLimit) { [weak self] in
            self?.assumeIsolated { $0.end() }
        }
        client.destroy { loop.execute { self.assumeIsolated { $0.end() } } }
    }

    private func end() {
        guard state != .closed else { return }
        state = .closed
        ticker?.cancel()
        ticker = nil
        deadline?.cancel()
        deadline = nil
        let waiting = closers
        closers.removeAll()
        for closer in waiting { closer.resume() }
    }
}
