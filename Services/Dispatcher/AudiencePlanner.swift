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
/// Authority: the pushes in planning that it claimed; they are nobody's again when the session ends.
///
/// Shutdown: stops between two pages.
actor AudiencePlanner: ServicePart {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    nonisolated let name = "planner"
    private nonisolated let trouble = Trouble()
    nonisolated func notReadyReason() -> String? { trouble.reason }

    private static let idleWait: Duration = .seconds(1)
    /// Members of a shard: enough that its beginning and its end cost little beside it, few enough
    /// that every replica gets some.
    private static let shardSize = 10_000
    private static let cannotPlan = "audiences cannot be planned"
    private static let conditionTooSlow =
        "where: the database takes longer than its statement timeout to ask it of the app's devices"

    private let database: PushDatabase
    private let engine: DeliveryEngine
    private let bell: Bell
    private let onPage: @Sendable () -> Void
    private let planned: Counter
    private let log: Log

    init(
        database: PushDatabase,
        engine: DeliveryEngine,
        bell: Bell,
        runtime: ServiceRuntime,
        onPage: @escaping @Sendable () -> Void
    ) {
        loop = runtime.mainLoop
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
        } catch let error as StorageError where error.isOfTheValues {
            try await fail(push, error.description)
            return true
        } catch let error as WhereError {
            try await fail(push, "where: \(error.description)")
            return true
        } catch let error as StorageError where error.isStatementTimeout && push.hasCondition {
            try await fail(push, Self.conditionTooSlow)
            return true
        } catch let error as StorageError where error.kind == .sessionLost {
            // The session is another's, or the push was cancelled meanwhile.
            return false
        }
    }

    private func claim(_ session: Int) async throws -> PlanningPush? {
        do {
            return try await database.deliveries.claimPlanning(session: session)
        } catch let error as StorageError where error.kind == .sessionLost {
            await engine.abandon(session: session)
            return nil
        }
    }

    private func fail(_ push: PlanningPush, _ reason: String) async throws {
        log.error(
            "a push cannot be planned",
            [.pushID: .string(push.id), .error: .string(reason)]
        )
        try await database.pushes.fail(push.id, error: reason)
    }

    private func plan(_ push: PlanningPush, session: Int) async throws {
        var pause = Pause()
        var total = 0
        var timeouts = 0
        while !Task.isCancelled {
            do {
                let page = try await database.deliveries.planPage(
                    session: session,
                    pushID: push.id,
                    shardSize: Self.shardSize
                )
                planned.add(page.inserted)
                total += page.inserted
                if page.inserted > 0 { onPage() }
                guard !page.isFinished else { break }
            } catch let error as StorageError where error.isRetryable {
                if error.isStatementTimeout, push.hasCondition {
                    timeouts += 1
                    // Once it may have been the database's fault.
                    if timeouts > 1 { throw error }
                }
                // The claim is ours as long as the session is.
                trouble.set(Self.cannotPlan)
                await pause.wait(on: loop)
            }
        }
        log.info(
            "audience planned",
            [.pushID: .string(push.id), .app: .string(push.app), .count: .integer(total)]
        )
    }

    /// Everything but sending: how many of each platform there are, and what one would get.
    private func rehearse(_ push: PlanningPush, session: Int) async throws {
        let counts = try await database.deliveries.countAudience(push)
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
        try await database.deliveries.finishDryRun(
            session: session,
            pushID: push.id,
            result: result
        )
        log.info("dry run", [.pushID: .string(push.id), .app: .string(push.app)])
    }
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
