import EventLoop
import Foundation
import Observability
import ServiceKit
import Synchronization
import Testing

@Suite("Rounds of a claim worker", .timeLimit(.minutes(1)))
struct ClaimWorkerTests {
    private struct Refused: Error {}

    /// Runs rounds on a loop of their own until one says that it was the last.
    private func run(
        listening listen: @escaping ClaimWorker.Listen = { _ in },
        _ round:
            @escaping @Sendable (_ number: Int, ClaimWorker, WakeUp) throws -> ClaimWorker.Next?
    ) async throws {
        let loop = try EventLoop(name: "claims")
        let rounds = Task(executorPreference: loop) {
            let wakeUp = WakeUp(on: loop)
            let worker = ClaimWorker(
                "nothing can be claimed",
                wokenBy: wakeUp,
                listening: listen,
                on: loop,
                log: .disabled
            )
            var number = 0
            await worker.run {
                number += 1
                guard let next = try round(number, worker, wakeUp) else {
                    unsafe withUnsafeCurrentTask { unsafe $0?.cancel() }
                    return .sleep(atMost: .seconds(3600))
                }
                return next
            }
        }
        await rounds.value
        await loop.stop()
    }

    @Test("The next round follows at once while there may be more")
    func again() async throws {
        try await run { number, _, _ in number < 1000 ? .again : nil }
    }

    @Test("A wake-up ends the sleep of an idle worker, also if it came before the sleep")
    func rung() async throws {
        try await run { number, _, wakeUp in
            guard number < 3 else { return nil }
            wakeUp.signal()
            return .sleep(atMost: .seconds(3600))
        }
    }

    @Test("An idle worker without wake-ups polls")
    func looks() async throws {
        try await run { number, _, _ in number < 3 ? .sleep(atMost: .milliseconds(1)) : nil }
    }

    @Test("Its listener wakes the worker from any thread, and is subscribed once")
    func heard() async throws {
        let listened = Mutex(0)
        try await run(listening: { ring in
            listened.withLock { $0 += 1 }
            Thread.detachNewThread { ring() }
        }) { number, _, _ in
            number < 2 ? .sleep(atMost: .seconds(3600)) : nil
        }
        #expect(listened.withLock { $0 } == 1)
    }

    @Test("A round whose subscription fails has failed, and the next one tries it again first")
    func deaf() async throws {
        let listened = Mutex(0)
        try await run(listening: { _ in
            let count = listened.withLock { count in
                count += 1
                return count
            }
            if count < 3 { throw Refused() }
        }) { number, worker, _ in
            #expect(worker.notReadyReason() == (number == 1 ? "nothing can be claimed" : nil))
            #expect(listened.withLock { $0 } == 3)
            return number < 3 ? .again : nil
        }
    }

    @Test("A failed round is a reason to be not ready, until one succeeds")
    func trouble() async throws {
        try await run { number, worker, _ in
            switch number {
            case 1:
                #expect(worker.notReadyReason() == nil)
                throw Refused()
            case 2:
                #expect(worker.notReadyReason() == "nothing can be claimed")
                return .again
            default:
                #expect(worker.notReadyReason() == nil)
                return nil
            }
        }
    }

    @Test("An error because of a stop is not a failure, and ends the rounds")
    func stop() async throws {
        let loop = try EventLoop(name: "claims")
        let worker = await Task(executorPreference: loop) {
            let worker = ClaimWorker(
                "nothing can be claimed",
                wokenBy: WakeUp(on: loop),
                on: loop,
                log: .disabled
            )
            await worker.run { throw CancellationError() }
            return worker
        }.value
        #expect(worker.notReadyReason() == nil)
        await loop.stop()
    }
}
