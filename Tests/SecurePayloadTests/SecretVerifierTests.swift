import Cryptography
import HTTPServer
import Observability
import Support
import Synchronization
import Testing

@testable import SecurePayload

/// Counts the jobs that begin, and holds each until it may end.
private final class Work: Sendable {
    private let state = Mutex((begun: [String](), mayEnd: false))

    var begun: [String] { state.withLock { $0.begun } }

    func open() { state.withLock { $0.mayEnd = true } }

    func run(_ name: String, _ hash: PasswordHash?) -> SecretVerifier.Work {
        {
            self.state.withLock { $0.begun.append(name) }
            while !self.state.withLock({ $0.mayEnd }) { blockForAMoment() }
            return hash
        }
    }
}

private func blockForAMoment() {
    let end = ContinuousClock.now + .milliseconds(1)
    while ContinuousClock.now < end {}
}

@Suite(
    "Secret verifier",
    .timeLimit(.minutes(1))
)
struct SecretVerifierTests {
    private let metrics = Metrics()
    private let right = PasswordHash.digest(Array("right".utf8))

    private func makeChecks(room: Int = 40) -> SecretVerifier {
        SecretVerifier(threads: 1, metrics: metrics, maximumWaiting: room)
    }

    private func ask(
        _ checks: SecretVerifier,
        _ key: String,
        of owner: String = "192.0.2.1",
        _ work: @escaping SecretVerifier.Work
    ) -> Task<PasswordHash?, any Error> {
        Task {
            try await checks.result(
                Array(key.utf8),
                of: SecretVerifier.Caller(app: [], network: Array(owner.utf8)),
                for: .always,
                work
            )
        }
    }

    private func waiting(_ count: Int) async throws {
        let gauge = metrics.gauge(.secureWaitingHashes)
        _ = try await eventually("\(count) secrets wait") { gauge.value == count ? true : nil }
    }

    @Test("Half of the processors hash, or at least one")
    func threads() {
        #expect(
            [1, 2, 3, 4, 16].map(SecretVerifier.threads(ofProcessors:)) == [1, 1, 1, 2, 8]
        )
    }

    @Test("Equal jobs run once for all callers")
    func alike() async throws {
        let (checks, work) = (makeChecks(), Work())
        let asked = (0..<50).map { _ in ask(checks, "one", work.run("one", right)) }
        _ = try await eventually("it is begun") { work.begun.isEmpty ? nil : true }
        work.open()
        for task in asked { #expect(try await task.value == right) }
        #expect(work.begun.count < 50)
        #expect(try await ask(checks, "one", { nil }).value == nil, "and anew, once it is over")
    }

    @Test("Callers beyond the capacity are told to retry, and a wrong secret gives no result")
    func full() async throws {
        // A network may have two of these.
        let (checks, work) = (makeChecks(room: 20), Work())
        let first = ask(checks, "0", work.run("0", nil))
        _ = try await eventually("it is begun") { work.begun == ["0"] ? true : nil }
        let others = (1...2).map { ask(checks, "\($0)", work.run("\($0)", right)) }
        try await waiting(2)
        await #expect(throws: SecureRefusal.busy) {
            try await ask(checks, "3", work.run("3", right)).value
        }
        let elsewhere = ask(checks, "4", of: "192.0.2.2", work.run("4", right))
        try await waiting(3)
        work.open()
        #expect(try await first.value == nil)
        #expect(try await elsewhere.value == right)
        for other in others { #expect(try await other.value == right) }
        try await waiting(0)
    }

    @Test("A job whose caller has left is not begun")
    func gone() async throws {
        let (checks, work) = (makeChecks(), Work())
        let first = ask(checks, "0", work.run("0", right))
        _ = try await eventually("it is begun") { work.begun == ["0"] ? true : nil }
        let second = ask(checks, "1", work.run("1", right))
        try await waiting(1)
        second.cancel()
        await #expect(throws: CancellationError.self) { try await second.value }
        try await waiting(0)
        work.open()
        #expect(try await first.value == right)
        #expect(try await ask(checks, "2", work.run("2", right)).value == right)
        #expect(work.begun == ["0", "2"])
    }

    @Test("A stop refuses waiting callers, and running jobs end")
    func stop() async throws {
        let (checks, work) = (makeChecks(), Work())
        let running = Task { try await checks.run() }
        let first = ask(checks, "0", work.run("0", right))
        _ = try await eventually("it is begun") { work.begun == ["0"] ? true : nil }
        let second = ask(checks, "1", work.run("1", right))
        try await waiting(1)
        running.cancel()
        await #expect(throws: SecureRefusal.busy) { try await second.value }
        work.open()
        #expect(try await first.value == right)
        try await running.value
        await #expect(throws: SecureRefusal.busy) {
            try await ask(checks, "2", work.run("2", right)).value
        }
    }

    @Test("An error of a job is thrown to its callers")
    func failures() async {
        struct Broken: Error {}
        await #expect(throws: Broken.self) {
            try await ask(makeChecks(), "0", { throw Broken() }).value
        }
    }
}
