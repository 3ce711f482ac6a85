import EventLoop
import Kafka
import Observability
import PushCore
import PushEvents
import PushProviders
import PushStorage
import ServiceKit

/// Recording rows: outcomes are produced and acknowledged first, then the batch is settled in one
/// transaction (promise 4). Two batches at a time: while one waits for Kafka or for the disk, the
/// other is settled. The members of shards have their checkpoints instead, and share `announce`.
extension DeliveryEngine {
    private static let batchLimit = 1000
    /// A batch of this size does not wait for more.
    private static let batchReady = 500
    private static let maximumRecorders = 2
    private static let batchWait: Duration = .milliseconds(20)
    private static let cannotAnnounce = "outcomes cannot be written to Kafka"
    private static let cannotSettle = "deliveries cannot be settled"

    func recordSoon() {
        if finished.count >= Self.batchReady {
            startRecording()
        } else if recordTimer == nil, recorders == 0 {
            recordTimer = loop.schedule(after: Self.batchWait) { [weak self] in
                self?.assumeIsolated { $0.startRecording() }
            }
        }
    }

    private func startRecording() {
        guard recorders < Self.maximumRecorders else { return }
        recordTimer?.cancel()
        recordTimer = nil
        recorders += 1
        Task(executorPreference: loop) { await self.recordAll() }
    }

    private func recordAll() async {
        // What came too late for a full batch is the last recorder's.
        while !finished.isEmpty, !hasEnded,
            recorders == 1 || finished.count >= Self.batchReady
        {
            let batch = Array(finished.prefix(Self.batchLimit))
            finished.removeFirst(batch.count)
            await record(batch)
            release(batch)
        }
        recorders -= 1
        release([])
    }

    private func record(_ batch: [FinishedDelivery]) async {
        guard let session = batch.lazy.map(\.owned.session).first(where: isCurrent) else { return }
        let ours = batch.filter { $0.owned.session == session }
        var outcomes = KafkaRecordBlock(topic: outcomesTopic, count: ours.count)
        for item in ours {
            item.owned.context.writeOutcome(of: item.owned.delivery, item.end, to: &outcomes)
        }
        guard await announce(outcomes, session: session) else { return }
        await settle(ours, session: session)
    }

    /// Produces outcomes until each is acknowledged.
    ///
    /// - Returns: `false` when the session was lost meanwhile, or the drain is over: the next owner
    ///   will say so.
    func announce(_ outcomes: KafkaRecordBlock, session: Int) async -> Bool {
        var waiting = outcomes
        var pause = Pause()
        while !waiting.isEmpty {
            guard isCurrent(session), !hasEnded else { return false }
            var problem: String?
            do {
                let errors = try await producer.send(waiting)
                problem = errors.first.map { "\($0.value)" }
                waiting = waiting.only(errors.keys.sorted())
            } catch {
                problem = "\(error)"
            }
            guard !waiting.isEmpty else { break }
            trouble.set(Self.cannotAnnounce)
            log.warning(
                "outcomes are not acknowledged; trying again",
                [.count: .integer(waiting.count), .error: .string(problem ?? "unknown")]
            )
            await pause.wait(on: loop)
        }
        trouble.clear(Self.cannotAnnounce)
        return true
    }

    /// Writes a batch down: what is over with the books of its pushes, what is not as rows due
    /// later.
    private func settle(_ batch: [FinishedDelivery], session: Int) async {
        let settled = batch.compactMap { item in
            item.end.settlement.map { SettledDelivery(key: item.owned.delivery.key, $0) }
        }
        let postponed = batch.compactMap { $0.end.postponed($0.owned.delivery) }
        for delivery in postponed { ownedKeys.remove(delivery.key) }
        var pause = Pause()
        while isCurrent(session), !hasEnded {
            do {
                let matched = try await database.recording.settle(session: session, settled)
                let returned = try await database.recording.postpone(session: session, postponed)
                trouble.clear(Self.cannotSettle)
                for item in batch {
                    meters.settled(item.decision, at: item.owned.delivery.device.provider)
                }
                let lost = settled.count + postponed.count - matched.count - returned
                if lost > 0 {
                    log.warning(
                        "deliveries were another's when they were to be written down",
                        [.count: .integer(lost)]
                    )
                }
                return
            } catch let error as StorageError where error.kind == .sessionLost {
                return
            } catch {
                trouble.set(Self.cannotSettle)
                log.warning(
                    "deliveries cannot be settled; trying again",
                    [.count: .integer(batch.count), .error: .string("\(error)")]
                )
                await pause.wait(on: loop)
            }
        }
    }
}
