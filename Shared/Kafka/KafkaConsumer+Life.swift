internal import CRDKafka
internal import EventLoop
internal import Observability

/// Start and end of a consumer.
extension KafkaConsumer {
    /// Joins the group and reads until the task is cancelled; returns when the client is gone.
    ///
    /// - Throws: `KafkaError` if the subscription is refused, or the client failed for good.
    package func run() async throws {
        guard state == .idle else { throw KafkaError(RD_KAFKA_RESP_ERR__STATE) }
        try begin()
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                if state == .ended { continuation.resume() } else { ended = continuation }
            }
        } onCancel: {
            loop.execute { self.assumeIsolated { $0.beginStop() } }
        }
        if let failure { throw failure }
    }

    private func begin() throws {
        // A tick covers a missed wake-up, and keeps the group from expelling a silent member.
        try client.start(on: loop) { [weak self] in self?.assumeIsolated { $0.serve() } }
        ticker = loop.schedule(after: .milliseconds(500), every: .milliseconds(500)) {
            [weak self] in self?.assumeIsolated { $0.serve() }
        }
        let code = subscribe()
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR else {
            state = .ended
            ticker?.cancel()
            client.destroy {}
            failure = KafkaError(code)
            dismissWaiters()
            throw KafkaError(code)
        }
        state = .running
        availability.set(.life, nil)
        serve()
    }

    private func subscribe() -> rd_kafka_resp_err_t {
        unsafe client.withHandle { handle in
            unsafe PartitionList.with(topics.map { TopicPartition(topic: $0, partition: -1) }) {
                list in unsafe rd_kafka_subscribe(handle, list)
            }
        }
    }

    /// Subscribes again after the group rejected this member, as librdkafka 2.0 does not retry.
    func scheduleRejoin() {
        guard rejoin == nil else { return }
        rejoin = loop.schedule(after: Self.rejoinPause) { [weak self] in
            self?.assumeIsolated { consumer in
                consumer.rejoin = nil
                guard consumer.state == .running, consumer.isRejected else { return }
                let code = consumer.subscribe()
                guard code != RD_KAFKA_RESP_ERR_NO_ERROR else { return }
                consumer.log.info(
                    "subscription refused",
                    [
                        .kafkaGroup: .string(consumer.group),
                        .error: .string(KafkaError(code).description),
                    ]
                )
                consumer.scheduleRejoin()
            }
        }
    }

    /// Begins the stop: nothing more is handed out, and records that were read and not handed out
    /// are dropped.
    func beginStop() {
        guard state == .running else { return }
        state = .stopping
        stop.fit(to: loop.stopClock.limit(stop.limit, share: 0.6))
        stopStart = .now
        availability.set(.life, "consumer \(group) is stopping")
        ready.removeAll()
        dismissWaiters()
        rejoin?.cancel()
        ticker?.cancel()
        ticker = loop.schedule(after: .milliseconds(5), every: .milliseconds(5)) {
            [weak self] in self?.assumeIsolated { $0.serve() }
        }
        // In a later turn, as an event that is being served may have called this.
        loop.execute { self.assumeIsolated { $0.serve() } }
    }

    /// Runs the steps of `ConsumerStop`, until it says to wait.
    func advanceStop() {
        while state == .stopping {
            let situation = situation()
            // Without outstanding batches a revocation waits only for those that were given up.
            if situation.elapsed >= stop.drainLimit || situation.outstandingBatches == 0 {
                endAllRevocations()
            }
            switch stop.next(situation) {
            case .wait: return
            case .unsubscribe:
                unsafe client.withHandle { handle in _ = unsafe rd_kafka_unsubscribe(handle) }
            case .close: closeClient()
            case .destroy: destroyClient()
            case .abandon: abandonClient()
            }
        }
    }

    private func situation() -> ConsumerStop.Situation {
        ConsumerStop.Situation(
            outstandingBatches: tracker.outstandingBatches,
            hasJoined: hasJoined,
            isMember: stop.isLeaving ? isMember : true,
            isBrokerUp: isBrokerUp,
            isRejected: isRejected,
            openRevocations: revocations.count,
            isClosed: unsafe client.withHandle { unsafe rd_kafka_consumer_closed($0) != 0 },
            elapsed: stopStart.map { .now - $0 } ?? .zero
        )
    }

    private var isMember: Bool {
        unsafe client.withHandle { handle in
            let id = unsafe rd_kafka_memberid(handle)
            defer { unsafe rd_kafka_mem_free(handle, id) }
            return unsafe id.map { unsafe $0.pointee != 0 } ?? false
        }
    }

    /// Closes the client without waiting. The blocking close would hang, as this thread must answer
    /// the client's last revocation.
    private func closeClient() {
        let error = unsafe client.withHandle { handle in
            unsafe client.withQueue { queue in
                unsafe KafkaError(adopting: rd_kafka_consumer_close_queue(handle, queue))
            }
        }
        guard let error else { return }
        log.info("consumer close refused", [.error: .string(error.debugDescription)])
    }

    private func destroyClient() {
        endStopping()
        let timeLimit = loop.stopClock.limit(.seconds(5), share: 0.3)
        let limit = loop.schedule(after: timeLimit) { [weak self] in
            self?.assumeIsolated { consumer in
                guard consumer.state != .ended else { return }
                consumer.log.info("consumer not destroyed", [.kafkaGroup: .string(consumer.group)])
                consumer.end()
            }
        }
        let timer = TimerBox(limit)
        let loop = loop
        client.destroy {
            loop.execute {
                timer.cancel()
                self.assumeIsolated { $0.end() }
            }
        }
    }

    private func abandonClient() {
        log.info(
            "consumer abandoned",
            [
                .kafkaGroup: .string(group), .count: .integer(tracker.outstandingBatches),
                .status: .string(hasJoined ? "member" : "never joined"),
            ]
        )
        endStopping()
        client.abandon()
        end()
    }

    private func endStopping() {
        ticker?.cancel()
        ticker = nil
        for revocation in revocations { revocation.timer.cancel() }
        revocations.removeAll()
        state = .destroying
    }

    private func end() {
        guard state != .ended else { return }
        state = .ended
        ended?.resume()
        ended = nil
    }
}

/// Carries a timer to the loop that it belongs to.
private struct TimerBox: @unchecked Sendable {
    private let timer: LoopTimer

    init(_ timer: LoopTimer) { self.timer = timer }
    func cancel() { timer.cancel() }
}
