import EventLoop
import Foundation
import Synchronization
import Testing

@testable import Postgres

@Suite(.timeLimit(.minutes(1)))
struct ConnectionStartTests {
    /// A resolver that hangs until it is released, and then fails.
    private final class Resolver: Sendable {
        struct Refusal: Error {}
        let calls = Atomic(0)
        let goOn = DispatchSemaphore(value: 0)

        func resolve() throws -> ConnectionHandle {
            calls.add(1, ordering: .relaxed)
            goOn.wait()
            throw Refusal()
        }
    }

    private func withStart(
        _ body: @escaping @Sendable (ConnectionStart, Resolver) async throws -> Void
    ) async throws {
        let resolver = Resolver()
        let loop = try EventLoop(name: "start-test")
        let start = ConnectionStart(on: loop) { try resolver.resolve() }
        let outcome = await Task(executorPreference: loop) { try await body(start, resolver) }
            .result
        for _ in 0..<4 { resolver.goOn.signal() }
        await loop.stop()
        try outcome.get()
    }

    @Test(
        "A name that is not resolved in time is an error, and the next attempt shares the resolution"
    )
    func hangs() async throws {
        try await withStart { start, resolver in
            for _ in 0..<3 {
                let error = try await postgresError {
                    _ = try await start.handle(within: .milliseconds(30))
                }
                #expect(error.kind == .connect && error.isRetryable)
                #expect(error.description.contains("not resolved in time"))
            }
            #expect(resolver.calls.load(ordering: .relaxed) == 1, "one thread, not three")
            resolver.goOn.signal()
            await #expect(throws: Resolver.Refusal.self) {
                _ = try await start.handle(within: .seconds(30))
            }
        }
    }

    @Test("A cancelled attempt does not wait for the name")
    func cancelled() async throws {
        try await withStart { start, _ in
            let loop = try #require(EventLoop.current)
            let attempt = Task.immediate(executorPreference: loop) {
                try await start.handle(within: .seconds(30))
            }
            attempt.cancel()
            await #expect(throws: CancellationError.self) { _ = try await attempt.value }
        }
    }
}
