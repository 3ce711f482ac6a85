import EventLoop
import Foundation
import Observability
import ServiceKit
import Synchronization
import Testing

@Suite("The rounds of who works on what it claims", .timeLimit(.minutes(1)))
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

    @Test("while there may be more, the next round follows at once")
    func again() async throws {
        try await run { number, _, _ in number < 1000 ? .again : nil }
    }

    @Test("an idle worker sleeps until it is rung, also where it was rung before it slept")
    func rung() async throws {
        try await run { number, _, wakeUp in
            guard number < 3 else { return nil }
            wakeUp.signal()
            return .sleep(atMost: .seconds(3600))
        }
    }

    @Test("an idle worker that nobody rings looks by itself")
    func looks() async throws {
        try await run { number, _, _ in number < 3 ? .sleep(atMost: .milliseconds(1)) : nil }
    }

    @Test("whoever it listens to wakes it, from any thread; it begins to listen once")
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

    @Test("a round for which it cannot listen has failed, and the next tries that again first")
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

    @Test("a round that fails is told as a reason to be not ready, until one does not fail")
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

    @Test("what is thrown because of a stop is no failure, and the last")
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
