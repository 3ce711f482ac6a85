import EventLoop
import HTTPServer
import Support
import Testing

@testable import ConfigWatcher
@testable import HTTPServer

@Suite("The queue of publishes of one app", .timeLimit(.minutes(1)))
struct PublishQueueTests {
    /// Events in their order. Confined to the loop.
    private final class Story: @unchecked Sendable {
        var events: [String] = []
    }

    /// The publish queue of one loop. Confined to it.
    private struct Publishers: Sendable {
        let loop: EventLoop
        let turns: PublishQueue
        let story = Story()

        /// Starts a publish, which has its place in the queue when this returns.
        func publish(
            _ name: String,
            of app: String = "shop",
            for caller: ClientPresence = .always,
            until gate: Gate? = nil
        ) -> Task<Void, any Error> {
            let (turns, story) = (turns, story)
            return Task.immediate(executorPreference: loop) {
                try await turns.take(of: app, for: caller) {
                    story.events.append(name)
                    await gate?.wait()
                    story.events.append("end of " + name)
                }
            }
        }
    }

    private func onLoop(
        within bounds: PublishQueue.Bounds = PublishQueue.Bounds(),
        _ body: @escaping @Sendable (Publishers) async throws -> Void
    ) async throws {
        let loop = try EventLoop(name: "turns")
        let result = await Task(executorPreference: loop) {
            try await body(
                Publishers(loop: loop, turns: PublishQueue(on: loop, within: bounds))
            )
        }.result
        await loop.stop()
        try result.get()
    }

    @Test("Publishes run one at a time, in the order in which they came")
    func order() async throws {
        try await onLoop { (publishers) async throws in
            let gate = Gate()
            let names = (0..<20).map(String.init)
            let publishing = names.map { publishers.publish($0, until: gate) }
            #expect(publishers.story.events == ["0"])
            #expect(publishers.turns.waitingCount(of: "shop") == 19)
            await gate.open()
            for one in publishing { try await one.value }
            #expect(publishers.story.events == names.flatMap { [$0, "end of " + $0] })
            // A later publish finds the queue free.
            try await publishers.publish("later").value
        }
    }

    @Test("A publish does not wait for another app")
    func otherApps() async throws {
        try await onLoop { (publishers) async throws in
            let gate = Gate()
            let slow = publishers.publish("slow", until: gate)
            try await publishers.publish("quick", of: "other").value
            #expect(publishers.story.events == ["slow", "quick", "end of quick"])
            await gate.open()
            try await slow.value
        }
    }

    @Test("A publish that would wait too long is refused, and those behind it move up")
    func patience() async throws {
        try await onLoop(within: .init(timeLimit: .milliseconds(20))) { (publishers) async throws in
            let gate = Gate()
            let slow = publishers.publish("slow", until: gate)
            await #expect(throws: ConfigUnavailable.self) {
                try await publishers.publish("impatient").value
            }
            #expect(publishers.turns.waitingCount(of: "shop") == 0)
            let next = publishers.publish("next")
            await gate.open()
            try await slow.value
            try await next.value
            #expect(publishers.story.events == ["slow", "end of slow", "next", "end of next"])
        }
    }

    @Test("The number of waiting publishes of one app is bounded")
    func bound() async throws {
        try await onLoop(within: .init(waiting: 2)) { (publishers) async throws in
            let gate = Gate()
            let patient = (0..<3).map { publishers.publish("\($0)", until: gate) }
            await #expect(throws: ConfigUnavailable.self) {
                try await publishers.publish("one too many").value
            }
            try await publishers.publish("another's", of: "other").value
            await gate.open()
            for one in patient { try await one.value }
            #expect(publishers.turns.waitingCount(of: "shop") == 0)
        }
    }

    @Test("A cancelled publish leaves the queue, and those behind it move up")
    func cancellation() async throws {
        try await onLoop { (publishers) async throws in
            let gate = Gate()
            let first = publishers.publish("first", until: gate)
            let cancelled = publishers.publish("cancelled")
            let last = publishers.publish("last")
            cancelled.cancel()
            await #expect(throws: CancellationError.self) { try await cancelled.value }
            #expect(publishers.turns.waitingCount(of: "shop") == 1)
            await gate.open()
            try await first.value
            try await last.value
            #expect(publishers.story.events == ["first", "end of first", "last", "end of last"])
        }
    }

    @Test(
        "A publish leaves the queue when its client disconnects, and runs to its end once it has begun"
    )
    func callersThatGo() async throws {
        try await onLoop { (publishers) async throws in
            let gate = Gate()
            let loop = publishers.loop
            let callers = (0..<2).map { _ in ClientPresence(on: loop, gathering: nil) }
            let first = publishers.publish("first", for: callers[0], until: gate)
            let gone = publishers.publish("gone", for: callers[1])
            for caller in callers { caller.leave() }
            await #expect(throws: CancellationError.self) { try await gone.value }
            await gate.open()
            try await first.value
            #expect(publishers.story.events == ["first", "end of first"])
        }
    }

    @Test("A turn that has been granted is not given to another when its task is cancelled")
    func cancelledTurns() async throws {
        try await onLoop { (publishers) async throws in
            let gate = Gate()
            let first = publishers.publish("first", until: gate)
            let second = publishers.publish("second")
            await gate.open()
            try await first.value
            second.cancel()
            _ = await second.result
            try await publishers.publish("third").value
            #expect(publishers.story.events.suffix(2) == ["third", "end of third"])
        }
    }

    @Test("A failed publish also ends its turn")
    func failures() async throws {
        struct Refused: Error {}
        try await onLoop { (publishers) async throws in
            let turns = publishers.turns
            await #expect(throws: Refused.self) {
                try await turns.take(of: "shop", for: .always) { throw Refused() }
            }
            try await publishers.publish("next").value
        }
    }
}
