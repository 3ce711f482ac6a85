import EventLoop
import Kafka
import Observability
import PushCore
import PushEvents
import PushProviders
import PushStorage

/// Recording: outcomes are produced and acknowledged first, then the batch is settled in one
/// transaction (promise 4). One batch at a time, so that the books of one push are never written
/// by two transactions of one process at once.
extension DeliveryEngine {
    private static let batchLimit = 1000
    /// A batch of this size does not wait for more.
    private static let batchReady = 500
    private static let batchWait: Duration = .milliseconds(20)
    private static let cannotAnnounce = "outcomes cannot be written to Kafka"
    private static let cannotSettle = "deliveries cannot be settled"

    func recordSoon() {
        guard !isRecording else { return }
        if finished.count >= Self.batchReady {
            startRecording()
        } else if recordTimer == nil {
            recordTimer = loop.schedule(after: Self.batchWait) { [weak self] in
                self?.assumeIsolated { $0.startRecording() }
            }
        }
    }

    private func startRecording() {
        recordTimer?.cancel()
        recordTimer = nil
        guard !isRecording else { return }
        isRecording = true
        Task(executorPreference: loop) { await self.recordAll() }
    }

    private func recordAll() async {
        while !finished.isEmpty, !hasEnded {
            let batch = Array(finished.prefix(Self.batchLimit))
            finished.removeFirst(batch.count)
            await record(batch)
            release(batch)
        }
        isRecording = false
        release([])
    }

    private func record(_ batch: [FinishedDelivery]) async {
        guard let session = batch.lazy.map(\.owned.session).first(where: isCurrent) else { return }
        let ours = batch.filter { $0.owned.session == session }
        guard await announce(ours, session: session) else { return }
        await settle(ours, session: session)
    }

    /// Produces outcomes until each is acknowledged.
    ///
    /// - Returns: `false` when the session was lost meanwhile: the rows' next owner will say so.
    private func announce(_ batch: [FinishedDelivery], session: Int) async -> Bool {
        var waiting = batch.compactMap { $0.outcomeRecord?.encode(topics: topics) }
            .map(KafkaOutgoing.init)
        var pause = Pause()
        while !waiting.isEmpty {
            guard isCurrent(session), !hasEnded else { return false }
            var problem: String?
            do {
                let errors = try await producer.send(waiting)
                problem = errors.lazy.compactMap { $0 }.first.map { "\($0)" }
                waiting = zip(waiting, errors).filter { $0.1 != nil }.map(\.0)
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
        let settled = batch.compactMap(\.settled)
        let postponed = batch.compactMap(\.postponed)
        var pause = Pause()
        while isCurrent(session), !hasEnded {
            do {
                let matched = try await database.deliveries.settle(session: session, settled)
                let returned = try await database.deliveries.postpone(session: session, postponed)
                trouble.clear(Self.cannotSettle)
                meters.settled(batch)
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

extension FinishedDelivery {
    /// What the rest of the company hears; `nil` for what is not over.
    fileprivate var outcomeRecord: OutcomeRecord? {
        guard let outcome = decision.outcome else { return nil }
        let delivery = owned.delivery
        return OutcomeRecord(
            pushID: delivery.pushID,
            eventID: owned.context.eventID,
            app: delivery.app,
            installationID: delivery.installationID,
            target: delivery.target,
            platform: delivery.device.provider,
            environment: delivery.device.environment,
            outcome: outcome,
            reason: reason,
            status: answer?.status,
            providerMessageID: answer?.providerMessageID.map(printable),
            attempt: owned.attempts,
            at: at
        )
    }

    /// What the ledger hears of one that is over.
    fileprivate var settled: SettledDelivery? {
        guard let outcome = decision.outcome else { return nil }
        var tokenDiedAt: Instant?
        if case .settleAndDisable(let since) = decision { tokenDiedAt = since ?? at }
        return SettledDelivery(
            key: owned.delivery.key,
            outcome: outcome,
            attempts: owned.attempts,
            unanswered: owned.unanswered,
            status: answer?.status,
            reason: reason,
            providerMessageID: answer?.providerMessageID.map(printable),
            tokenDiedAt: tokenDiedAt
        )
    }

    /// What the ledger hears of one that is not.
    fileprivate var postponed: PostponedDelivery? {
        let dueAt: Instant
        switch decision {
        case .settle, .settleAndDisable: return nil
        case .retry(let time), .handBack(let time): dueAt = time
        }
        return PostponedDelivery(
            key: owned.delivery.key,
            attempts: owned.attempts,
            unanswered: owned.unanswered,
            dueAt: dueAt,
            status: answer?.status,
            reason: reason
        )
    }

    private var reason: String? { answer?.reason.map(printable) }
}

/// A provider's text as it may be kept: bounded, and without what Postgres or a terminal minds.
private func printable(_ text: String) -> String {
    String(
        String.UnicodeScalarView(
            text.unicodeScalars.prefix(200).map { $0.value < 0x20 || $0.value == 0x7f ? " " : $0 }
        )
    )
}

extension KafkaOutgoing {
    init(_ record: OutgoingRecord) {
        self.init(
            topic: record.topic,
            key: record.key,
            value: record.value,
            headers: record.headers.map { KafkaHeader(name: $0.name, value: $0.value) }
        )
    }
}
