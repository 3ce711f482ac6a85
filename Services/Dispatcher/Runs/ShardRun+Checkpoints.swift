import EventLoop
import Kafka
import Observability
import PushCore
import PushEvents
import PushStorage
import ServiceKit

/// The part that records the members and ends the run.
extension ShardRun {
    // MARK: Checkpoints

    func checkpointIfDue(_ now: ContinuousClock.Instant) {
        guard !isWriting else { return }
        let waited = now - lastCheckpoint
        if window.isCheckpointDue || waited >= Self.checkpointWait && window.contiguous > 0 {
            write(.ended, now)
        } else if waited >= Self.stragglerWait, window.ended > 0 {
            write(.answered, now)
        } else if window.hasSentAll, now - lastProgress >= Self.stragglerWait {
            write(.sent, now)
        } else if wantsCheckpoint {
            write(.answered, now, isEmptyToo: true)
        }
        if window.beyond == 0 { lastCheckpoint = now }
    }

    func write(
        _ extent: Window.Extent,
        _ now: ContinuousClock.Instant,
        isEmptyToo: Bool = false
    ) {
        wantsCheckpoint = false
        lastCheckpoint = now
        let begun = window.beginCheckpoint(extent)
        guard begun != nil || isEmptyToo else { return }
        isWriting = true
        writing = begun
        engine.recorder.add(self, 0)
    }

    private func written(_ checkpoint: Window.Checkpoint) {
        let written = window.written()
        recorded += checkpoint.records.count
        hasProgress = true
        for member in written.freed { freed[member.delivery.device.provider.ordinal] += 1 }
        engine.meters.checkpoints.add()
        for record in checkpoint.records {
            guard let end = record.end else { continue }
            engine.meters.settled(end, at: record.member.delivery.device.provider)
            engine.figures.count(end, of: record.member.delivery, context)
        }
        for member in written.rows { engine.inHand.take(member.delivery.key) }
        for (member, end) in written.endedRows {
            engine.inHand.take(member.delivery.key)
            finishRow(member, end)
        }
    }

    /// Records the end of a member that a checkpoint has made a row.
    func finishRow(_ member: ShardMember, _ end: DeliveryEnd) {
        RowRun.record(
            member,
            end,
            context,
            health(of: member.delivery.device.provider),
            slot: use,
            session: session,
            engine.services
        )
    }

    // MARK: The end

    /// Sends nothing more, and releases the shard.
    func close(dueAt: Instant?) {
        guard case .working = phase else { return }
        phase = .closing(dueAt: dueAt, until: .now + Self.closingWait)
        wake()
    }

    func close(
        _ now: ContinuousClock.Instant,
        dueAt: Instant?,
        until: ContinuousClock.Instant
    ) {
        guard !isWriting else { return }
        if window.beyond == 0 {
            phase = .releasing
            DispatchLoop.task { await self.release(dueAt) }
        } else if window.inFlight == 0 || now >= until {
            write(.sent, now)
        } else {
            checkpointIfDue(now)
        }
    }

    func release(_ dueAt: Instant?) async {
        var pause = ExponentialBackoff()
        while !isOver, !engine.session.hasEnded {
            do {
                try await environment.database.shards.release(
                    session: session,
                    [shard],
                    dueAt: dueAt
                )
                environment.log.debug("shard goes back", details)
                return end()
            } catch {
                await pause.wait(on: DispatchLoop.loop)
            }
        }
        end()
    }

    var isOver: Bool {
        if case .over = phase { true } else { false }
    }

    func end() {
        guard !isOver else { return }
        phase = .over
        timer?.cancel()
        timer = nil
        returnSlots()
        window.close()
        engine.remove(self)
        environment.onEnd(self)
    }

    var details: LogData {
        [
            .pushID: .string(shard.pushID), .app: .string(shard.app),
            .shard: .integer(shard.shard), .count: .integer(recorded),
            .durationMilliseconds: .integer(Int((ContinuousClock.now - begun) / .milliseconds(1))),
        ]
    }
}

/// The current checkpoint is the run's only place. A checkpoint without records only reads the
/// push's status.
extension ShardRun {
    var kind: LedgerEntry.Kind { .members }

    func outcomes(of place: Int) -> Int {
        writing?.records.count { $0.end?.outcome != nil } ?? 0
    }

    func writeOutcomes(
        of place: Int,
        by writer: inout OutcomeWriter,
        to block: inout KafkaRecordBlock
    ) {
        for record in writing?.records ?? [] {
            guard let end = record.end else { continue }
            context.writeOutcome(of: record.member.delivery, end, by: &writer, to: &block)
        }
    }

    func entry(of place: Int) -> LedgerEntry {
        .members(
            shard,
            ShardCheckpoint(
                cursor: writing?.last?.delivery.target,
                records: (writing?.records ?? []).map { DeliveryRecord($0.member, $0.end) },
                isFinished: writing?.isFinished ?? false
            )
        )
    }

    func recorded(_ place: Int, _ end: RecordedEnd, at now: ContinuousClock.Instant) {
        guard !isOver, case .recorded(let result) = end else { return }
        isWriting = false
        if let writing {
            self.writing = nil
            written(writing)
        }
        if window.isFinished {
            environment.log.debug("shard sent", details)
            self.end()
        } else if result == .cancelled {
            if case .working = phase { environment.log.debug("shard cancelled", details) }
            close(dueAt: nil)
        }
        wake()
    }
}
