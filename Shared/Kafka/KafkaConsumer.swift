internal import CRDKafka
package import EventLoop
package import Observability

/// Reads Kafka topics as a member of a consumer group, and hands the records out in batches.
///
/// Authority: the one place that knows which partitions are ours, what was handed out, and what may
/// be committed. An offset is stored only when everything below it in its partition is finished;
/// librdkafka commits what is stored each second, at a revocation and at the end.
///
/// States: idle → running → stopping → destroying → ended. Records wait in `ready` until somebody
/// calls `next`; when they and those in somebody's hands reach `maximumOutstanding` or
/// `maximumOutstandingBytes`, nothing more is taken until it is half of that, and where that lasts
/// all partitions pause. A revoked partition is given up when its batches are finished, at the latest
/// after `drainLimit`; what was not finished then is read again by its next owner. With an `even`
/// assignment each change of the group revokes all partitions first.
///
/// Shutdown: cancelling `run` hands nothing more out (`next` gives `nil`), waits for what is
/// outstanding, leaves the group and destroys the client, in the order of `ConsumerStop`, which ends
/// in bounded time whatever the broker does.
package actor KafkaConsumer {
    nonisolated let loop: EventLoop
    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    enum State { case idle, running, stopping, destroying, ended }

    let group: String
    let topics: [String]
    let assignment: PartitionAssignment
    let maximumBatch: Int
    let log: Log
    let client: KafkaClient
    nonisolated let availability: Availability

    var state = State.idle
    var tracker = OffsetTracker()
    /// Read, and not handed out yet.
    var ready: ReadyRecords
    private(set) var holdBack: HoldBack
    private var fetchPrompt: FetchPrompt
    /// How often librdkafka was asked to look whether it may fetch.
    private(set) var fetchPrompts = 0
    /// Paused by us. Only these may be resumed: in 2.0.2 resuming another makes its fetching stale.
    var paused: Set<TopicPartition> = []
    /// Something came of them since they are ours. Only these may be paused: one whose first fetch
    /// is being prepared would not begin.
    var flowing: Set<TopicPartition> = []
    private var lastTopic = TopicName()
    var isServeScheduled = false
    var revocations: [Revocation] = []
    /// Being given up: what still arrives of them is not ours to hand out.
    var revoking: Set<TopicPartition> = []
    var hasJoined = false
    /// The group's members use another protocol, so the broker rejects ours until they have left.
    var isRejected = false
    /// Asks the group once more.
    var rejoin: LoopTimer?
    static let rejoinPause: Duration = .seconds(2)
    var isBrokerUp = true
    var failure: KafkaError?
    /// The last error that was no partition's.
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

    /// Events taken in one go before the loop's others get their turn.
    private static let eventsPerServe = 1000
    /// How long a revocation may wait for the batches in somebody's hands.
    static let drainLimit: Duration = .seconds(10)

    /// Starts librdkafka's threads; the group is joined by `run`. Topics that are not there yet are
    /// read when they appear. `maximumBatch` is the most that `next` gives at once;
    /// `maximumOutstanding` counts records read and not finished, `maximumOutstandingBytes` their
    /// keys, values and headers; either pauses reading, and what is in hand exceeds the latter by one
    /// record at most. As much again (64 MiB) librdkafka holds ahead.
    ///
    /// - Throws: `KafkaError` when the configuration cannot be used, naming the property.
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
        holdBack = HoldBack(
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

    /// `nil` when records can flow; else what is in the way. From any thread.
    package nonisolated func notReadyReason() -> String? { availability.reason }

    // MARK: Handing out

    /// Waits for records. Several batches may be outstanding at once.
    ///
    /// - Returns: `nil` once the consumer is stopping, and to a cancelled task.
    /// - Throws: `KafkaError` when the consumer failed for good.
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
                // A task that does not prefer the loop is queued once more before this.
                if let failure { return continuation.resume(throwing: failure) }
                guard state == .idle || state == .running, !Task.isCancelled else {
                    return continuation.resume(returning: nil)
                }
                waiters.append((id, continuation))
                handOut()
                adjustReading()
            }
        } onCancel: {
            loop.execute { self.assumeIsolated { $0.giveUpWaiting(id) } }
        }
    }

    /// Everything in the batch is durable: it need not be read again. In any order; a second time,
    /// or for a partition that has gone meanwhile, changes nothing.
    package func finished(_ batch: KafkaBatch) {
        let positions = tracker.finish(batch.id)
        // After the stop there is no client left to store anything with.
        guard state == .running || state == .stopping else { return }
        store(positions)
        if !revocations.isEmpty { settleRevocations() }
        adjustReading()
        if state == .stopping { advanceStop() }
    }

    var hasWaiters: Bool { !waiters.isEmpty }

    private func giveUpWaiting(_ id: Int) {
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

    /// Wakes everybody who waits: there will be no more.
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

    /// Takes events until nothing comes, enough is in hand, or the budget is spent; then goes on in
    /// the next turn.
    func serve() {
        guard state == .running || state == .stopping else { return }
        var budget = Self.eventsPerServe
        // What a record costs is spent here: it goes through locals, and is looked at with others.
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
            // Held back, whatever comes is of a partition that is not paused yet: at once, it is.
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

    /// What arrives while stopping, or of a partition that is being given up, is left for whoever
    /// reads it next.
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
            tellBroker()
        } else if partition == nil {
            lastError = error
            if !hasJoined { availability.set(.assignment, because("has no assignment yet")) }
        }
        if error.isFatal, failure == nil {
            failure = client.fatalError ?? error
            beginStop()
        }
    }

    /// Members of the version before read all partitions until the last of them has left. Until then this
    /// replica is a standby, and ready: otherwise a rolling upgrade would stop here.
    private func waitForOtherProtocol() {
        availability.set(.assignment, nil)
        scheduleRejoin()
        guard !isRejected else { return }
        isRejected = true
        // They are of the version before, or of another service with the same KAFKA_GROUP_ID.
        log.warning(
            "members of the group use another protocol; this replica reads once they have left",
            [.kafkaGroup: .string(group)]
        )
    }

    private func measure(_ statistics: KafkaStatistics) {
        isBrokerUp = statistics.isBrokerUp
        tellBroker()
        let lags = tracker.lags(statistics.partitions)
        for topic in Set(lags.keys).union(lag.keys) { gauge(of: topic)?.set(lags[topic] ?? 0) }
        queueGauge?.set(client.queueLength + ready.count)
    }

    private func tellBroker() {
        availability.set(.broker, isBrokerUp ? nil : because("reaches no broker"))
    }

    /// What is in the way, with what librdkafka last said of it.
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

    // MARK: Holding back

    private var outstanding: Int { ready.count + tracker.outstandingRecords }
    private var outstandingBytes: Int { ready.bytes + tracker.outstandingBytes }
    /// How many records, and how many bytes of them, may be taken now.
    private var room: (records: Int, bytes: Int) {
        if holdBack.isHeldBack || state == .stopping { return (.max, .max) }
        return (
            holdBack.maximumRecords - outstanding, holdBack.maximumBytes - outstandingBytes
        )
    }

    /// To be called whenever what is in hand became more or less.
    func adjustReading() {
        guard state == .running else { return }
        switch holdBack.inHand(records: outstanding, bytes: outstandingBytes, at: .now) {
        case .none: return
        case .pause: pause(flowing)
        case .readOn: resume(paused)
        }
        // What waits in the queue was announced long ago.
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
