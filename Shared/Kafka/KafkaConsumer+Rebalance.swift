internal import CRDKafka
internal import EventLoop
internal import Observability

/// Partitions that the group revokes, while their batches are being finished.
struct Revocation {
    let partitions: [TopicPartition]
    let id: Int
    let timer: LoopTimer
}

/// Answers rebalances, never before the finished offsets of the leaving partitions are stored. With
/// a cooperative assignment the remaining partitions are read meanwhile; with an even assignment
/// all partitions leave first.
extension KafkaConsumer {
    /// Answers a rebalance; a rebalance without partitions needs an answer, too.
    func answer(_ rebalance: KafkaEvent.Rebalance) {
        switch rebalance {
        case .assign(let partitions): assign(partitions)
        case .revoke(let partitions): revoke(partitions)
        case .failed(let error):
            log.info(
                "rebalance failed",
                [.kafkaGroup: .string(group), .error: .string(error.description)]
            )
            resume(paused)
            giveUp(tracker.partitions)
            unsafe client.withHandle { handle in _ = unsafe rd_kafka_assign(handle, nil) }
        }
    }

    private func assign(_ partitions: [TopicPartition]) {
        let error = unsafe client.withHandle { handle in
            unsafe PartitionList.with(partitions) { list in
                switch assignment {
                case .cooperative:
                    unsafe KafkaError(adopting: rd_kafka_incremental_assign(handle, list))
                case .even: unsafe KafkaError.of(rd_kafka_assign(handle, list))
                }
            }
        }
        hasJoined = true
        isRejected = false
        if let error {
            logRefusal(error)
        } else {
            for partition in partitions { tracker.assign(partition) }
        }
        availability.set(.broker, nil)
        availability.set(.assignment, nil)
        log.debug(
            "partitions assigned",
            [.kafkaGroup: .string(group), .count: .integer(partitions.count)]
        )
    }

    private func revoke(_ partitions: [TopicPartition]) {
        let isLost = unsafe client.withHandle { handle in
            unsafe rd_kafka_assignment_lost(handle) != 0
        }
        hasJoined = true
        isRejected = false
        revoking.formUnion(partitions)
        forgetReady(of: revoking)
        log.debug(
            "partitions revoked",
            [
                .kafkaGroup: .string(group), .count: .integer(partitions.count),
                .status: .string(isLost ? "lost" : "revoked"),
            ]
        )
        if isLost || partitions.allSatisfy({ tracker.isDrained($0) }) {
            unassign(partitions)
            return
        }
        let id = (revocations.last?.id ?? 0) + 1
        let timer = loop.schedule(after: Self.drainLimit) { [weak self] in
            self?.assumeIsolated { $0.endRevocation(id) }
        }
        revocations.append(Revocation(partitions: partitions, id: id, timer: timer))
    }

    /// Answers the revocations whose batches are finished.
    func settleRevocations() {
        for revocation in revocations
        where revocation.partitions.allSatisfy({ tracker.isDrained($0) }) {
            endRevocation(revocation.id)
        }
    }

    /// Ends the wait for all revocations: the next owner reads unfinished records again.
    func endAllRevocations() {
        for revocation in revocations { endRevocation(revocation.id) }
    }

    private func endRevocation(_ id: Int) {
        guard let index = revocations.firstIndex(where: { $0.id == id }) else { return }
        let revocation = revocations.remove(at: index)
        revocation.timer.cancel()
        unassign(revocation.partitions)
    }

    /// Unassigns partitions. Finished offsets are stored already; librdkafka commits them as it
    /// releases the partitions.
    private func unassign(_ partitions: [TopicPartition]) {
        // A pause belongs to the client, and could outlive the assignment.
        resume(paused.intersection(partitions))
        let error = unsafe client.withHandle { handle in
            unsafe PartitionList.with(partitions) { list in
                switch assignment {
                case .cooperative:
                    unsafe KafkaError(adopting: rd_kafka_incremental_unassign(handle, list))
                // All partitions: an eager revocation names every one.
                case .even: unsafe KafkaError.of(rd_kafka_assign(handle, nil))
                }
            }
        }
        if let error { logRefusal(error) }
        giveUp(partitions)
    }

    private func giveUp(_ partitions: [TopicPartition]) {
        for partition in partitions { tracker.drop(partition) }
        forgetReady(of: Set(partitions))
        revoking.subtract(partitions)
        flowing.subtract(partitions)
        // If all outstanding records were from these partitions, no other event resumes the
        // remaining partitions.
        adjustReading()
    }

    private func logRefusal(_ error: KafkaError) {
        log.info(
            "rebalance not taken",
            [.kafkaGroup: .string(group), .error: .string(error.debugDescription)]
        )
    }

    /// Drops records that are not handed out yet; the next owner reads them.
    private func forgetReady(of partitions: Set<TopicPartition>) {
        ready.removeAll(of: partitions)
    }

    /// Stores positions for librdkafka to commit. A refused position belongs to a partition that
    /// has just left; its next owner reads from the committed offset.
    func store(_ positions: [OffsetTracker.Position]) {
        guard !positions.isEmpty else { return }
        unsafe client.withHandle { handle in
            let native = positions.map { (partition: $0.partition, offset: $0.offset) }
            unsafe PartitionList.with(native) { list in
                _ = unsafe rd_kafka_offsets_store(handle, list)
            }
        }
    }
}
