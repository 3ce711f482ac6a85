internal import CRDKafka
package import EventLoop
package import Observability

/// Reads Kafka topics as a member of a consumer group, and hands the records out in batches.
///
/// Authority: only this actor tracks the assigned partitions, the outstanding batches, and the
/// offsets to commit. An offset is stored only when everything below it in its partition is
/// finished; librdkafka commits stored offsets each second, at a revocation and at the end.
///
/// States: idle → running → stopping → destroying → ended. Records wait in `ready` until `next` is
/// called. When the waiting and the outstanding records reach `maximumOutstanding` or
/// `maximumOutstandingBytes`, no more are taken until both are down to half of their limits; if
/// that lasts, all partitions pause. A revoked partition is given up when its batches are finished,
/// at the latest after `drainLimit`; its next owner reads the unfinished records again. With an
/// `even` assignment each change of the group revokes all partitions first.
///
/// Shutdown: after the cancellation of `run` nothing more is handed out (`next` returns `nil`). The
/// consumer waits for outstanding batches, leaves the group and destroys the client, in the order
/// of `ConsumerStop`, which ends in bounded time whatever the broker does.
package actor KafkaConsumer {
    nonisolated let loop: EventLoop
    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    enum State { case idle, running, stopping, destroying, ended }

    package nonisolated let group: String
    let topics: [String]
    let assignment: PartitionAssignment
    let maximumBatch: Int
    let log: Log
    let client: KafkaClient
    nonisolated let availability: Availability

    var state = State.idle
    var tracker = OffsetTracker()
    /// The records that were read and not handed out yet.
    var ready: ReadyRecords
    private(set) var holdBack: ConsumerBackpressure
    private var fetchPrompt: FetchPrompt
    /// How often librdkafka was made to fetch again.
    private(set) var fetchPrompts = 0
    /// Partitions that we paused. Only these may be resumed: in librdkafka 2.0.2 resuming another
    /// partition makes its fetching stale.
    var paused: Set<TopicPartition> = []
    /// Partitions with a record since their assignment. Only these may be paused: a partition that
    /// is paused while its first fetch is being prepared would not begin.
    var flowing: Set<TopicPartition> = []
    private var lastTopic = TopicName()
    var isServeScheduled = false
    var revocations: [Revocation] = []
    /// Partitions that are being given up: records that still arrive from them must not be handed
    /// out.
    var revoking: Set<TopicPartition> = []
    var hasJoined = false
    /// Whether the group's members use another protocol, so that the broker rejects ours until they
    /// have left.
    var isRejected = false
    /// The timer that asks the group once more.
    var rejoin: LoopTimer?
    static let rejoinPause: Duration = .seconds(2)
    var isBrokerUp = true
    var failure: KafkaError?
    /// The last error that did not concern a partition.
    private var lastError: KafkaError?
    var stop = ConsumerStop()
    var stopStart: ContinuousClock.Instant?
    var ticker: LoopTimer?
    private var waiters: [(id: Int, continuation: CheckedContinuation<KafkaBatch?, any Error>)] = []
    private var lastWaiter = 0
    var ended: CheckedContinuation<Void, Never>?
    private let metrics: Metrics?
    private var consumed: [String: Counter] = [:]
    private var lag: [String: Gauge] = [:]
    private let queueGauge: Gauge?

    /// The events taken at once before the loop's other work gets its turn.
    private static let eventsPerServe = 1000
    /// How long a revocation may wait for outstanding batches.
    static let drainLimit: Duration = .seconds(10)

    /// Starts librdkafka's threads; `run` joins the group. Missing topics are read when they
    /// appear. `maximumBatch` is the most that `next` returns at once. `maximumOutstanding` limits
    /// the records that are read and not finished, `maximumOutstandingBytes` the bytes of their
    /// keys, values and headers; either limit stops reading. The outstanding bytes exceed their
    /// limit by one record at most. librdkafka fetches 64 MiB more ahead.
    ///
    /// - Throws: `KafkaError` if the configuration is invalid, naming the property.
    package init(
        _ configuration: KafkaConfiguration,
        group: String,
        topics: [String],
        assignment: PartitionAssignment = .cooperative,
        maximumBatch: Int = 500,
        maximumOutstanding: Int = 10_000,
        maximumOutstandingBytes: Int = 64 << 20,
        on loop: EventLoop,
        log: Log = .disabled,
        metrics: Metrics? = nil
    ) throws(KafkaError) {
        precondition(maximumBatch > 0 && maximumOutstanding > 0 && maximumOutstandingBytes > 0)
        guard !group.isEmpty else { throw .property("group.id", "must not be empty") }
        self.loop = loop
        self.group = group
        self.topics = topics
        self.assignment = assignment
        self.maximumBatch = maximumBatch
        holdBack = ConsumerBackpressure(
            maximumRecords: maximumOutstanding,
            maximumBytes: maximumOutstandingBytes
        )
        self.log = log
        self.metrics = metrics
        queueGauge = metrics?.gauge(.kafkaReadAhead, ["group": group])
        ready = ReadyRecords(maximumBatch: maximumBatch)
        client = try KafkaClient(
            .consumer(group: group, assignment),
            configuration,
            log: log,
            metrics: metrics
        )
        fetchPrompt = FetchPrompt(
            limitRecords: client.queueLimits.records,
            limitBytes: client.queueLimits.bytes
        )
        availability = Availability([
            .life: "consumer \(group) is not running",
            .assignment: "consumer \(group) has no assignment yet",
        ])
    }

    /// Returns `nil` while records can flow; else the reason. Thread-safe.
    package nonisolated func notReadyReason() -> String? { availability.reason }

    // MARK: Handing out

    /// Waits for records. Several batches may be outstanding at once.
    ///
    /// - Returns: `nil` once the consumer is stopping, and to a cancelled task.
    /// - Throws: `KafkaError` if the consumer failed for good.
    package func next() async throws -> KafkaBatch? {
        if let failure { throw failure }
        guard state == .idle || state == .running, !Task.isCancelled else { return nil }
        if waiters.isEmpty, let batch = takeBatch() {
            adjustReading()
            return batch
        }
        lastWaiter += 1
        let id = lastWaiter
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                // Checked again, as a task that does not prefer the loop is queued once more before
                // this.
                if let failure { return continuation.resume(throwing: failure) }
                guard state == .idle || state == .running, !Task.isCancelled else {
                    return continuation.resume(returning: nil)
                }
                waiters.append((id, continuation))
                handOut()
                adjustReading()
            }
        } onCancel: {
            loop.execute { self.assumeIsolated { $0.cancelWait(id) } }
        }
    }

    /// Finishes a batch, once all its records are durable and need not be read again. Batches may
    /// be finished in any order. A second call changes nothing, nor does a call for a partition
    /// that has left meanwhile.
    package func finished(_ batch: KafkaBatch) {
        let positions = tracker.finish(batch.id)
        // After the stop there is no client to store offsets with.
        guard state == .running || state == .stopping else { return }
        store(positions)
        if !revocations.isEmpty { settleRevocations() }
        adjustReading()
        if state == .stopping { advanceStop() }
    }

    /// Gives a batch up, as a stop has begun: the partitions' next owners read its records again, and
    /// the stop does not wait for it.
    package func leave(_ batch: KafkaBatch) {
        tracker.leave(batch.id)
        if state == .stopping { advanceStop() }
    }

    var hasWaiters: Bool { !waiters.isEmpty }

    private func cancelWait(_ id: Int) {
        guard let index = waiters.firstIndex(where: { $0.id == id }) else { return }
        waiters.remove(at: index).continuation.resume(returning: nil)
    }

    private func takeBatch() -> KafkaBatch? {
        guard let (records, bytes) = ready.take() else { return nil }
        var start = 0
        while start < records.count {
            let end = records.endOfRun(from: start)
            counter(of: records[start].topic)?.add(end - start)
            start = end
        }
        return KafkaBatch(records: records, id: tracker.handOut(records, bytes: bytes))
    }

    private func handOut() {
        while !waiters.isEmpty, let batch = takeBatch() {
            waiters.removeFirst().continuation.resume(returning: batch)
        }
    }

    /// Wakes all waiting callers: there will be no more batches.
    func dismissWaiters() {
        let dismissed = waiters
        waiters.removeAll()
        for waiter in dismissed {
            if let failure {
                waiter.continuation.resume(throwing: failure)
            } else {
                waiter.continuation.resume(returning: nil)
            }
        }
    }

    // MARK: Serving the queue

    /// Takes events until the queue is empty, enough records are outstanding or the budget is
    /// spent. If the budget is spent, continues in the next turn.
    func serve() {
        guard state == .running || state == .stopping else { return }
        var budget = Self.eventsPerServe
        // The hot path of each record: it uses locals, and records are processed together.
        var arrived: [KafkaRecord] = []
        var arrivedBytes = 0
        var takenBytes = 0
        var topic = lastTopic
        var room = room
        while budget > 0, arrived.count < room.records, arrivedBytes < room.bytes,
            client.serveOne({ event in
                guard case .records = event.kind else {
                    accept(&arrived)
                    return handle(event)
                }
                event.forEachRecord(&topic) {
                    arrivedBytes += $0.sizeBytes
                    arrived.append($0)
                } failure: { error, partition in
                    client.count(error)
                    report(error, partition)
                }
            })
        {
            budget -= 1
            // While held back, every record is from a partition that is not paused yet: `accept`
            // pauses that partition at once.
            if arrived.count >= maximumBatch || holdBack.isHeldBack { accept(&arrived) }
            if arrived.isEmpty {
                takenBytes += arrivedBytes
                arrivedBytes = 0
                room = self.room
            }
        }
        accept(&arrived)
        lastTopic = topic
        if fetchPrompt.took(
            records: Self.eventsPerServe - budget,
            bytes: takenBytes + arrivedBytes
        ) {
            fetchPrompts += 1
            client.wakeFetching()
        }
        handOut()
        adjustReading()
        if budget == 0 { serveSoon() }
        if state == .stopping { advanceStop() }
    }

    private func serveSoon() {
        guard !isServeScheduled else { return }
        isServeScheduled = true
        loop.execute {
            self.assumeIsolated { consumer in
                consumer.isServeScheduled = false
                consumer.serve()
            }
        }
    }

    private func handle(_ event: borrowing KafkaEvent) {
        switch event.kind {
        case .rebalance(let rebalance): answer(rebalance)
        case .committed(let error):
            guard let error else { return }
            client.count(error)
            log.info(
                "offsets not committed",
                [.kafkaGroup: .string(group), .error: .string(error.description)]
            )
        case .error(let error, let partition): report(error, partition)
        case .statistics: measure(KafkaStatistics(event.statistics))
        case .records, .log, .deliveries, .other: break
        }
    }

    /// Accepts records. During a stop, or from a partition that is being given up, they are dropped
    /// for the partition's next owner.
    private func accept(_ records: inout [KafkaRecord]) {
        guard state == .running else { return records.removeAll() }
        var unwanted: Set<TopicPartition> = []
        var start = 0
        while start < records.count {
            let partition = records.partition(at: start)
            let end = records.endOfRun(from: start)
            if revoking.contains(partition) {
                unwanted.insert(partition)
            } else {
                flowing.insert(partition)
                if holdBack.isHeldBack, !paused.contains(partition) { pause([partition]) }
            }
            start = end
        }
        if !unwanted.isEmpty { records.removeAll { unwanted.contains($0.topicPartition) } }
        ready.append(&records)
    }

    private func report(_ error: KafkaError, _ partition: TopicPartition?) {
        if assignment == .even,
            error.code == RD_KAFKA_RESP_ERR_INCONSISTENT_GROUP_PROTOCOL.rawValue
        {
            return waitForOtherProtocol()
        }
        var data: LogData = [
            .kafkaGroup: .string(group), .error: .string(error.description),
            .detail: .string(error.detail),
        ]
        if let partition {
            data[.kafkaTopic] = .string(partition.topic)
            data[.kafkaPartition] = .integer(Int(partition.partition))
        }
        log.info("consumer error", data)
        if error.code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN.rawValue {
            isBrokerUp = false
            reportToBroker()
        } else if partition == nil {
            lastError = error
            if !hasJoined { availability.set(.assignment, because("has no assignment yet")) }
        }
        if error.isFatal, failure == nil {
            failure = client.fatalError ?? error
            beginStop()
        }
    }

    /// Waits while members of the previous version read all partitions, until the last of them has
    /// left. Until then this replica is a standby, and ready: otherwise a rolling upgrade would
    /// stop here.
    private func waitForOtherProtocol() {
        availability.set(.assignment, nil)
        scheduleRejoin()
        guard !isRejected else { return }
        isRejected = true
        // These members are of the previous version, or of another service with the same
        // KAFKA_GROUP_ID.
        log.warning(
            "members of the group use another protocol; this replica reads once they have left",
            [.kafkaGroup: .string(group)]
        )
    }

    private func measure(_ statistics: KafkaStatistics) {
        isBrokerUp = statistics.isBrokerUp
        reportToBroker()
        let lags = tracker.lags(statistics.partitions)
        for topic in Set(lags.keys).union(lag.keys) { gauge(of: topic)?.set(lags[topic] ?? 0) }
        queueGauge?.set(client.queueLength + ready.count)
    }

    /// The records that wait in the partitions that this consumer reads, by topic, as of
    /// librdkafka's last statistics.
    package var lags: [(topic: String, records: Int)] {
        lag.map { ($0.key, $0.value.value) }.sorted { $0.0 < $1.0 }
    }

    private func reportToBroker() {
        availability.set(.broker, isBrokerUp ? nil : because("reaches no broker"))
    }

    /// Returns the reason, with librdkafka's last error.
    private func because(_ problem: String) -> String {
        "consumer \(group) \(problem)" + (lastError.map { ": \($0)" } ?? "")
    }

    private func counter(of topic: String) -> Counter? {
        if let known = consumed[topic] { return known }
        let counter = metrics?.counter(.kafkaConsumed, ["topic": topic])
        consumed[topic] = counter
        return counter
    }

    private func gauge(of topic: String) -> Gauge? {
        if let known = lag[topic] { return known }
        let gauge = metrics?.gauge(.kafkaLag, ["group": group, "topic": topic])
        lag[topic] = gauge
        return gauge
    }

    // MARK: Backpressure

    private var outstanding: Int { ready.count + tracker.outstandingRecords }
    private var outstandingBytes: Int { ready.bytes + tracker.outstandingBytes }
    /// The records and bytes that may be taken now.
    private var room: (records: Int, bytes: Int) {
        if holdBack.isHeldBack || state == .stopping { return (.max, .max) }
        return (
            holdBack.maximumRecords - outstanding, holdBack.maximumBytes - outstandingBytes
        )
    }

    /// Adjusts the reading; call it whenever the outstanding amount changes.
    func adjustReading() {
        guard state == .running else { return }
        switch holdBack.inHand(records: outstanding, bytes: outstandingBytes, at: .now) {
        case .none: return
        case .pause: pause(flowing)
        case .readOn: resume(paused)
        }
        // Events that already wait in the queue are not announced again.
        serveSoon()
    }

    private func pause(_ partitions: Set<TopicPartition>) {
        paused.formUnion(partitions)
        unsafe client.withHandle { handle in
            unsafe PartitionList.with(partitions) { list in
                _ = unsafe rd_kafka_pause_partitions(handle, list)
            }
        }
    }

    func resume(_ partitions: Set<TopicPartition>) {
        guard !partitions.isEmpty else { return }
        paused.subtract(partitions)
        unsafe client.withHandle { handle in
            unsafe PartitionList.with(partitions) { list in
                _ = unsafe rd_kafka_resume_partitions(handle, list)
            }
        }
    }
}
