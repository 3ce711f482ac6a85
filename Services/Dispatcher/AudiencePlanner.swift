import EventLoop
import JSON
import Observability
import PushCore
import PushProviders
import PushStorage
import ServiceKit

/// Writes large audiences down, page by page; each page and its cursor in one transaction, so that
/// a crash repeats nothing and another replica goes on where this one stood (promise 3).
///
/// One push after the other, and those with a condition by a planner of their own: the database may
/// take long to answer one, and nobody else's push waits for that.
///
/// Authority: the pushes in planning that it claimed; they are nobody's again when the session ends.
///
/// Shutdown: stops between two pages.
actor AudiencePlanner: ServicePart {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    nonisolated let name: String
    private nonisolated let trouble = Trouble()
    nonisolated func notReadyReason() -> String? { trouble.reason }

    private static let idleWait: Duration = .seconds(1)
    /// Members of a shard: enough that its beginning and its end cost little beside it, few enough
    /// that every replica gets some.
    private static let shardSize = 10_000
    private static let cannotPlan = "audiences cannot be planned"

    private let kind: AudienceKind
    private let database: PushDatabase
    private let engine: DeliveryEngine
    private let bell: Bell
    private let onPage: @Sendable () -> Void
    private let planned: Counter
    private let log: Log

    init(
        _ kind: AudienceKind,
        database: PushDatabase,
        engine: DeliveryEngine,
        bell: Bell,
        runtime: ServiceRuntime,
        onPage: @escaping @Sendable () -> Void
    ) {
        loop = runtime.mainLoop
        name = "planner of \(kind) audiences"
        self.kind = kind
        self.database = database
        self.engine = engine
        self.bell = bell
        self.onPage = onPage
        planned = runtime.metrics.counter(.pushDeliveriesPlanned, ["lane": "broadcast"])
        log = runtime.log
    }

    func run() async throws {
        var pause = Pause()
        while !Task.isCancelled {
            do {
                let wasBusy = try await planNext()
                trouble.clear(Self.cannotPlan)
                pause = Pause()
                if !wasBusy { await bell.wait(atMost: Self.idleWait) }
            } catch is CancellationError {
                return
            } catch {
                if Task.isCancelled { return }
                trouble.set(Self.cannotPlan)
                log.warning("an audience cannot be planned", [.error: .string("\(error)")])
                await pause.wait(on: loop)
            }
        }
    }

    /// - Returns: Whether there was a push to plan.
    private func planNext() async throws -> Bool {
        guard let session = await engine.workingSession else { return false }
        guard let push = try await claim(session) else { return false }
        do {
            if push.request.isDryRun {
                try await rehearse(push, session: session)
            } else {
                try await plan(push, session: session)
            }
            return true
        } catch let error as WhereError {
            try await fail(push, "where: \(error.description)", session: session)
            return true
        } catch let error as StorageError where error.kind == .sessionLost {
            // The session is another's, or the push was cancelled meanwhile.
            return false
        } catch let failure as PlanningFailure {
            try await fail(push, failure.reason, session: session)
            return true
        } catch let error as StorageError where !error.isRetryable {
            try await fail(push, error.description, session: session)
            return true
        }
    }

    private func claim(_ session: Int) async throws -> PlanningPush? {
        do {
            return try await database.deliveries.claimPlanning(kind, session: session)
        } catch let error as StorageError where error.kind == .sessionLost {
            await engine.abandon(session: session)
            return nil
        }
    }

    private func fail(
        _ push: PlanningPush,
        _ reason: String,
        session: Int
    ) async throws {
        log.error(
            "a push cannot be planned",
            [.pushID: .string(push.id), .error: .string(reason)]
        )
        try await database.pushes.fail(push.id, error: reason, planner: session)
    }

    private func plan(_ push: PlanningPush, session: Int) async throws {
        var pause = Pause()
        var total = 0
        var troubles = PlanningTroubles(of: push)
        var isCareful = false
        while !Task.isCancelled {
            do {
                let page = try await database.deliveries.planPage(
                    session: session,
                    pushID: push.id,
                    shardSize: Self.shardSize,
                    looksAt: isCareful ? DeliveryStore.carefulPage : nil
                )
                troubles.reset()
                planned.add(page.inserted)
                total += page.inserted
                if page.inserted > 0 { onPage() }
                guard !page.isFinished else { break }
            } catch let error as StorageError where error.isRetryable {
                // The claim is ours as long as the session is.
                if error.isStatementTimeout { isCareful = true }
                try await wait(&pause, after: error, &troubles)
            }
        }
        log.info(
            "audience planned",
            [.pushID: .string(push.id), .app: .string(push.app), .count: .integer(total)]
        )
    }

    /// Tries again what is worth it.
    private func retrying<Value: Sendable>(
        _ push: PlanningPush,
        _ body: () async throws -> Value
    ) async throws -> Value {
        var pause = Pause()
        var troubles = PlanningTroubles(of: push)
        while true {
            try Task.checkCancellation()
            do {
                return try await body()
            } catch let error as StorageError where error.isRetryable {
                try await wait(&pause, after: error, &troubles)
            }
        }
    }

    /// Waits before another try, and, where the connection was lost, until the database answers.
    ///
    /// - Throws: `PlanningFailure` where the database fails at this push too often.
    private func wait(
        _ pause: inout Pause,
        after error: StorageError,
        _ troubles: inout PlanningTroubles
    ) async throws {
        // What takes too long is this push's trouble, not this replica's.
        if !error.isStatementTimeout { trouble.set(Self.cannotPlan) }
        await pause.wait(on: loop)
        while troubles.hasCondition, error.sqlState == nil {
            try Task.checkCancellation()
            do {
                _ = try await database.deliveries.nextDue(lane: 0)
                break
            } catch let other as StorageError where other.isRetryable {
                await pause.wait(on: loop)
            }
        }
        try troubles.add(error)
    }

    /// Everything but sending: how many of each platform there are, and what one would get.
    private func rehearse(_ push: PlanningPush, session: Int) async throws {
        let counts = try await retrying(push) {
            try await database.deliveries.countAudience(push)
        }
        let context = PushContext(pushID: push.id, eventID: "", request: push.request)
        var result: JSONObject = [:]
        for platform in Platform.allCases {
            guard let count = counts[platform], count > 0 else { continue }
            var entry: JSONObject = ["count": .integer(Int64(count))]
            do throws(RenderingError) {
                entry["payload"] = .object(try context.payload(platform).shown)
            } catch {
                entry["error"] = .string(error.description)
            }
            result[platform.rawValue] = .object(entry)
        }
        try await retrying(push) {
            try await database.deliveries.finishDryRun(
                session: session,
                pushID: push.id,
                result: result
            )
        }
        log.info("dry run", [.pushID: .string(push.id), .app: .string(push.app)])
    }
}

/// Errors that a condition may be the cause of, though they could be the database's own: a timeout,
/// a want of memory, a connection that was lost. Often enough, and the push has to go.
private struct PlanningTroubles {
    private static let maximum = 3

    let hasCondition: Bool
    /// One that goes to people and asks no condition is tried until it succeeds, by smaller parts:
    /// the database is what keeps it, and half of its audience may have got it.
    private let mayFail: Bool
    private var count = 0

    init(of push: PlanningPush) {
        hasCondition = push.hasCondition
        mayFail = push.hasCondition || push.request.isDryRun
    }

    mutating func reset() { count = 0 }

    mutating func add(_ error: StorageError) throws(PlanningFailure) {
        // A condition may be what the database goes down by.
        let isOfThePush =
            error.isStatementTimeout
            || hasCondition && error.sqlState?.hasPrefix("53") ?? true
        guard mayFail, isOfThePush else { return }
        count += 1
        guard count >= Self.maximum else { return }
        let subject = hasCondition ? "where: " : ""
        let reason =
            error.isStatementTimeout
            ? "the database takes longer than its statement timeout to ask it of the app's devices"
            : "the database cannot answer it: \(error.description)"
        throw PlanningFailure(reason: subject + reason)
    }
}

private struct PlanningFailure: Error {
    let reason: String
}

extension PlanningPush {
    fileprivate var hasCondition: Bool {
        if case .installations(let selectors) = request.audience {
            selectors.condition != nil
        } else {
            false
        }
    }
}

extension RenderedPayload {
    /// For people: the headers, and the body parsed where it is JSON. What is put in per device is
    /// left out.
    fileprivate var shown: JSONObject {
        var headers: JSONObject = [:]
        for header in self.headers { headers[header.name] = .string(header.value) }
        let text = String(decoding: body, as: UTF8.self)
        return [
            "headers": .object(headers),
            "body": (try? JSONValue.parse(body)) ?? .string(text),
        ]
    }
}
