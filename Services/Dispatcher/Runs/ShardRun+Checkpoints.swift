import EventLoop
import Kafka
import Observability
import PushCore
import PushEvents
import PushStorage
import ServiceKit

/// Writing down what became of the members, and the end.
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
        Task(executorPreference: loop) { await self.write(begun) }
    }

    /// Outcomes first, then the books (promise 4). A checkpoint without records only asks how the
    /// push stands.
    func write(_ checkpoint: Window.Checkpoint?) async {
        let records = checkpoint?.records ?? []
        var outcomes = KafkaRecordBlock(
            topic: engine.announcer.topic,
            count: records.count,
            sizeBytes: records.count * 512
        )
        var writer = OutcomeWriter()
        for record in records {
            guard let end = record.end else { continue }
            context.writeOutcome(of: record.member.delivery, end, by: &writer, to: &outcomes)
        }
        guard await engine.announcer.announce(outcomes, session: session), !isOver else { return }
        guard
            let standing = await keep(
                ShardCheckpoint(
                    cursor: checkpoint?.last?.delivery.target,
                    records: records.map { DeliveryRecord($0.member, $0.end) },
                    isFinished: checkpoint?.isFinished ?? false
                )
            ), !isOver
        else { return }
        isWriting = false
        if let checkpoint { written(checkpoint) }
        if window.isFinished {
            environment.log.debug("shard sent", details)
            end()
        } else if standing == .cancelled {
            if case .working = phase { environment.log.debug("shard cancelled", details) }
            close(dueAt: nil)
        }
        wake()
    }

    /// - Returns: `nil` where the session was lost, or the drain is over.
    func keep(_ checkpoint: ShardCheckpoint) async -> ShardStanding? {
        var pause = Pause()
        while !isOver, !engine.session.hasEnded {
            do {
                let standing = try await environment.database.shards.checkpoint(
                    session: session,
                    shard,
                    checkpoint
                )
                engine.trouble.clear(Self.cannotCheckpoint)
                return standing
            } catch let error as StorageError where error.kind == .sessionLost {
                await engine.abandon(session: session)
                return nil
            } catch {
                engine.trouble.set(Self.cannotCheckpoint)
                environment.log.warning(
                    "a checkpoint cannot be written; trying again",
                    details.with(.error, .string("\(error)"))
                )
                await pause.wait(on: loop)
            }
        }
        return nil
    }

    func written(_ checkpoint: Window.Checkpoint) {
        let written = window.written()
        recorded += checkpoint.records.count
        hasProgress = true
        for member in written.freed { freed[member.delivery.device.provider.ordinal] += 1 }
        engine.memberRows.recorded(checkpoint.records, written, of: self)
    }

    // MARK: The end

    /// Sends nothing more, and gives the shard back.
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
            Task(executorPreference: loop) { await self.release(dueAt) }
        } else if window.inFlight == 0 || now >= until {
            write(.sent, now)
        } else {
            checkpointIfDue(now)
        }
    }

    func release(_ dueAt: Instant?) async {
        var pause = Pause()
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
                await pause.wait(on: loop)
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
        engine.assumeIsolated { $0.remove(self) }
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
