import ConfigStorage
import EventLoop
import JSON
import Observability
import PushCore
import Support
import Synchronization
import Testing

@testable import ConfigWatcher

/// A scripted Postgres. Its statements wait while it is held up.
private final class Templates: Sendable {
    private struct State {
        var revision = 0
        var templates: [String: (version: Int, revision: Int)] = [:]
        var asked: [String] = []
        var held: [CheckedContinuation<Void, Never>]?
        var heldName: String?
        var isBroken = false
    }

    struct Broken: Error {}

    private let state = Mutex(State())

    func publish(_ app: String, _ version: Int) {
        state.withLock {
            $0.revision += 1
            $0.templates[app] = (version, $0.revision)
        }
    }

    /// Restores an older version, as a backup does.
    func restore(_ app: String, _ version: Int) {
        state.withLock {
            $0.revision = 0
            $0.templates = [app: (version, 0)]
        }
    }

    func breakDown() { state.withLock { $0.isBroken = true } }

    var asked: [String] { state.withLock { $0.asked } }

    /// Makes statements wait from now on: all, or those of one name.
    func hold(only name: String? = nil) {
        state.withLock {
            $0.held = []
            $0.heldName = name
        }
    }

    func letGo() {
        let held = state.withLock { state in
            defer { state.held = nil }
            return state.held ?? []
        }
        for one in held { one.resume() }
    }

    /// Answers with the state at the time of the call, however late the answer is.
    private func answer<Value: Sendable>(
        _ name: String,
        _ read: (State) -> Value
    ) async throws -> Value {
        let value = try state.withLock { state throws(Broken) in
            state.asked.append(name)
            if state.isBroken { throw Broken() }
            return read(state)
        }
        await withCheckedContinuation { continuation in
            let waits = state.withLock { state in
                guard state.held != nil, state.heldName ?? name == name else { return false }
                state.held?.append(continuation)
                return true
            }
            if !waits { continuation.resume() }
        }
        return value
    }

    var source: ConfigSource {
        ConfigSource(
            revision: { try await self.answer("revision") { $0.revision } },
            heads: { revision in
                try await self.answer("heads") { state in
                    state.templates.filter { $0.value.revision > revision }.map { app, known in
                        var head = ConfigHead(app: app, namespace: "firebase")
                        head.currentVersion = known.version
                        head.revision = known.revision
                        return head
                    }
                }
            },
            current: { app in
                let version = try await self.answer("current " + app) { $0.templates[app]?.version }
                return version.map {
                    ($0, ["parameters": ["version": ["defaultValue": ["value": "\($0)"]]]])
                }
            }
        )
    }
}

@Suite("Template cache", .timeLimit(.minutes(1)))
struct TemplateCacheTests {
    private let templates = Templates()
    private let createdAt = Instant(seconds: 1)

    /// Runs `body` on a loop of its own.
    private func onLoop(
        _ bounds: TemplateCache.Bounds = TemplateCache.Bounds(),
        _ body: @escaping @Sendable (TemplateCache, EventLoop) async throws -> Void
    ) async throws {
        let loop = try EventLoop(name: "memory")
        let memory = TemplateCache(templates.source, within: bounds, on: loop, log: .disabled)
        let result = await Task(executorPreference: loop) {
            try await body(memory, loop)
        }.result
        await loop.stop()
        try result.get()
    }

    /// Cached answers stay valid for ever, unless a test sets another bound.
    private static let trusting = TemplateCache.Bounds(
        trust: .seconds(3600),
        refreshAfter: .seconds(3600)
    )
    private static let doubting = TemplateCache.Bounds(trust: .zero, refreshAfter: .seconds(3600))

    @Test("A fresh answer of Postgres is not queried again")
    func answersFromMemory() async throws {
        templates.publish("shop", 7)
        let (templates, createdAt) = (templates, createdAt)
        try await onLoop(Self.trusting) { (memory, _) async throws in
            for _ in 0..<100 {
                #expect(try await memory.config(of: "shop", createdAt: createdAt).version == 7)
            }
            #expect(templates.asked == ["revision", "current shop"])
            let none = try await memory.config(of: "other", createdAt: createdAt)
            #expect(none.version == 0 && none.config == nil)
        }
    }

    @Test("A stale answer is checked first, and a changed template is loaded again")
    func asksFirst() async throws {
        templates.publish("shop", 7)
        let (templates, createdAt) = (templates, createdAt)
        try await onLoop(Self.doubting) { (memory, _) async throws in
            _ = try await memory.config(of: "shop", createdAt: createdAt)
            templates.publish("other", 1)
            #expect(try await memory.config(of: "shop", createdAt: createdAt).version == 7)
            templates.publish("shop", 8)
            #expect(try await memory.config(of: "shop", createdAt: createdAt).version == 8)
            #expect(templates.asked.count { $0 == "current shop" } == 2)
            #expect(!templates.asked.contains("current other"))
        }
    }

    @Test("Concurrent callers share one query")
    func sharesQuestions() async throws {
        templates.publish("shop", 7)
        let (templates, createdAt) = (templates, createdAt)
        try await onLoop(Self.doubting) { (memory, loop) async throws in
            _ = try await memory.config(of: "shop", createdAt: createdAt)
            let before = templates.asked.count
            templates.hold()
            let fetches = (0..<50).map { _ in
                Task(executorPreference: loop) {
                    try await memory.config(of: "shop", createdAt: createdAt).version
                }
            }
            // The first caller queries; callers from after that may not share its answer.
            while templates.asked.count == before { await Task.yield() }
            templates.letGo()
            for fetch in fetches { #expect(try await fetch.value == 7) }
            #expect(templates.asked.count - before <= 2)
        }
    }

    /// Its answer was read before the publish, and arrives after the publish is known.
    @Test("A template that becomes stale while it is loaded is loaded again")
    func overtakenLoads() async throws {
        templates.publish("shop", 7)
        templates.publish("other", 1)
        let (templates, createdAt) = (templates, createdAt)
        try await onLoop(Self.doubting) { (memory, loop) async throws in
            _ = try await memory.config(of: "other", createdAt: createdAt)
            templates.hold(only: "current shop")
            let slow = Task(executorPreference: loop) {
                try await memory.config(of: "shop", createdAt: createdAt).version
            }
            while !templates.asked.contains("current shop") { await Task.yield() }
            templates.publish("shop", 8)
            // This checks what has changed.
            #expect(try await memory.config(of: "other", createdAt: createdAt).version == 1)
            templates.letGo()
            #expect(try await slow.value == 8)
            #expect(try await memory.config(of: "shop", createdAt: createdAt).version == 8)
            #expect(templates.asked.count { $0 == "current shop" } == 2)
        }
    }

    @Test("A query that is not answered fails in time")
    func noAnswer() async throws {
        templates.publish("shop", 7)
        let (templates, createdAt) = (templates, createdAt)
        let bounds = TemplateCache.Bounds(trust: .zero, timeLimit: .milliseconds(50))
        try await onLoop(bounds) { (memory, _) async throws in
            _ = try await memory.config(of: "shop", createdAt: createdAt)
            templates.hold()
            await #expect(throws: ConfigUnavailable.self) {
                _ = try await memory.config(of: "shop", createdAt: createdAt)
            }
            templates.letGo()
            #expect(try await memory.config(of: "shop", createdAt: createdAt).version == 7)
            templates.breakDown()
            await #expect(throws: Templates.Broken.self) {
                _ = try await memory.config(of: "shop", createdAt: createdAt)
            }
        }
    }

    @Test("A notification is enough to learn of a change")
    func notices() async throws {
        templates.publish("shop", 7)
        let (templates, createdAt) = (templates, createdAt)
        try await onLoop(Self.trusting) { (memory, _) async throws in
            _ = try await memory.config(of: "shop", createdAt: createdAt)
            templates.publish("shop", 8)
            #expect(try await memory.config(of: "shop", createdAt: createdAt).version == 7)
            memory.noticed()
            while templates.asked.count(where: { $0 == "current shop" }) < 2 { await Task.yield() }
            #expect(try await memory.config(of: "shop", createdAt: createdAt).version == 8)
        }
    }

    @Test("A recreated app of the same id, or a restored database, is queried again")
    func otherWorlds() async throws {
        templates.publish("shop", 7)
        let (templates, createdAt) = (templates, createdAt)
        try await onLoop(Self.doubting) { (memory, _) async throws in
            #expect(try await memory.config(of: "shop", createdAt: createdAt).version == 7)
            templates.restore("shop", 3)
            #expect(try await memory.config(of: "shop", createdAt: createdAt).version == 3)
        }
        try await onLoop(Self.trusting) { (memory, _) async throws in
            #expect(try await memory.config(of: "shop", createdAt: createdAt).version == 3)
            templates.restore("shop", 1)
            let later = Instant(seconds: 2)
            #expect(try await memory.config(of: "shop", createdAt: later).version == 1)
        }
    }

    @Test("The cache has a budget in bytes, and the least recently used template is evicted first")
    func isBounded() async throws {
        for app in ["a", "b", "c"] { templates.publish(app, 1) }
        let (templates, createdAt) = (templates, createdAt)
        var bounds = Self.trusting
        // Two of these small ones fit.
        bounds.weight = 150 << 10
        try await onLoop(bounds) { (memory, _) async throws in
            for app in ["a", "b", "a", "c", "a", "b"] {
                #expect(try await memory.config(of: app, createdAt: createdAt).version == 1)
            }
            let loads = templates.asked.filter { $0.hasPrefix("current") }
            #expect(loads == ["current a", "current b", "current c", "current b"])
        }
    }
}
