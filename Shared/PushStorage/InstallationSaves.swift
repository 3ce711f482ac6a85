import Observability
import Postgres
import PushCore

/// One save on its way into the database.
struct InstallationSave: Sendable {
    let app: String
    let request: SaveRequest
    /// Asked of the database, so such a save is a batch of its own.
    var condition: Where?
    /// Gets the installation that is meant, or `nil`; returns the one to keep. May be called again.
    let change: @Sendable (Installation?) throws -> Installation
    /// Keys that the change turned out to set although the body did not name them.
    var furtherKeys = DeviceKeys()

    init(
        app: String,
        request: SaveRequest,
        condition: Where? = nil,
        change: @escaping @Sendable (Installation?) throws -> Installation
    ) {
        self.app = app
        self.request = request
        self.condition = condition
        self.change = change
    }

    /// What it may find an installation by, or take from another.
    var keys: DeviceKeys {
        var keys = furtherKeys
        if let id = request.effectiveInstallationID { keys.installationIDs.insert(id) }
        if let platform = request.keys.platform, let token = request.keys.token {
            keys.routes.insert(DeviceKeys.Route(platform: platform, token: token))
        }
        if case .parse = request.rule, let token = request.keys.deviceToken {
            keys.unroutedTokens.insert(token)
        }
        return keys
    }
}

/// What became of a save in its batch.
enum SaveOutcome: Sendable {
    case saved(InstallationStore.Saved)
    case unknownObject
    case failed(any Error)
    /// It needs more keys than it held.
    case again(DeviceKeys)
    /// The batch was full before its turn came.
    case postponed
}

/// The saves of one loop, done by the batch: those that come while others are under way become one
/// transaction. A lone save goes at once.
///
/// Authority: who is in which batch, and in what order. A batch that fails is split, so that nobody
/// fails for his neighbour; what a save's own change throws is its own failure alone.
///
/// States: a save waits, is in a batch, is answered. Bounds: `waiting` saves, `batch` of them in a
/// transaction, `concurrent` transactions; a batch ends early where it has become large.
///
/// Shutdown: none of its own. A pool that closes answers the transactions, and they the saves.
final class InstallationSaves: Sendable {
    private static let maximumWaiting = 20_000
    private static let maximumBatch = 64
    private static let maximumConcurrent = 2
    /// As many must wait before another batch starts beside one that is under way.
    private static let worthABatch = 16
    private static let maximumRounds = 8

    private typealias Answer = CheckedContinuation<InstallationStore.Saved?, any Error>

    private struct Waiting {
        var save: InstallationSave
        var rounds = 0
        let answer: Answer
    }

    private struct State {
        var waiting: [Waiting] = []
        var running = 0
    }

    private let lock = Lock()
    nonisolated(unsafe) private var state = State()
    nonisolated(unsafe) private weak var database: PushDatabase?
    nonisolated(unsafe) private var loop: PostgresLoop?

    /// Once, before the first save.
    func open(_ database: PushDatabase, on loop: PostgresLoop) {
        lock.withLock {
            unsafe self.database = database
            unsafe self.loop = loop
        }
    }

    /// - Returns: `nil` where it names an object that there is none of.
    func save(_ save: InstallationSave) async throws -> InstallationStore.Saved? {
        try Task.checkCancellation()
        return try await withCheckedThrowingContinuation { answer in
            add(Waiting(save: save, answer: answer))
        }
    }

    private func add(_ waiting: Waiting) {
        let (isRefused, starts) = lock.withLock {
            guard unsafe state.waiting.count < Self.maximumWaiting else { return (true, false) }
            unsafe state.waiting.append(waiting)
            let isWanted = unsafe state.running == 0 || state.waiting.count >= Self.worthABatch
            guard unsafe isWanted && state.running < Self.maximumConcurrent else {
                return (false, false)
            }
            unsafe state.running += 1
            return (false, true)
        }
        if isRefused {
            waiting.answer.resume(
                throwing: StorageError(.database, "too many saves wait", isRetryable: true)
            )
        }
        guard starts, let (database, loop) = home else { return }
        // Not in the caller's task: his cancellation must not end what others wait for.
        Task(executorPreference: loop) {
            while let batch = self.next() { await self.run(batch, in: database) }
        }
    }

    private var home: (PushDatabase, PostgresLoop)? {
        lock.withLock {
            guard let database = unsafe database, let loop = unsafe loop else { return nil }
            return (database, loop)
        }
    }

    private func next() -> [Waiting]? {
        lock.withLock {
            var count = 0
            for waiting in unsafe state.waiting {
                let isAlone = waiting.save.condition != nil
                if isAlone && count > 0 || count == Self.maximumBatch { break }
                count += 1
                if isAlone { break }
            }
            guard count > 0 else {
                unsafe state.running -= 1
                return nil
            }
            let batch = unsafe Array(state.waiting[..<count])
            unsafe state.waiting.removeFirst(count)
            return batch
        }
    }

    private func run(_ batch: [Waiting], in database: PushDatabase) async {
        var turns = [batch]
        while let turn = turns.popLast() {
            do {
                let saves = turn.map(\.save)
                let outcomes = try await database.transaction { transaction in
                    try await InstallationBatch.run(saves, transaction)
                }
                settle(turn, outcomes)
            } catch {
                guard turn.count > 1, Self.mayBeOneOfThem(error) else {
                    for waiting in turn { waiting.answer.resume(throwing: error) }
                    continue
                }
                let half = turn.count / 2
                turns += [Array(turn[half...]), Array(turn[..<half])]
            }
        }
    }

    private func settle(_ batch: [Waiting], _ outcomes: [SaveOutcome]) {
        var back: [Waiting] = []
        for (var waiting, outcome) in zip(batch, outcomes) {
            switch outcome {
            case .saved(let saved): waiting.answer.resume(returning: saved)
            case .unknownObject: waiting.answer.resume(returning: nil)
            case .failed(let error): waiting.answer.resume(throwing: error)
            case .postponed: back.append(waiting)
            case .again(let keys):
                waiting.save.furtherKeys.formUnion(keys)
                waiting.rounds += 1
                if waiting.rounds < Self.maximumRounds {
                    back.append(waiting)
                } else {
                    waiting.answer.resume(
                        throwing: StorageError(
                            .conflict,
                            "the installation changed under each attempt to save it",
                            isRetryable: true
                        )
                    )
                }
            }
        }
        if !back.isEmpty { lock.withLock { unsafe state.waiting.insert(contentsOf: back, at: 0) } }
    }

    /// Whether without one of them the others might succeed. Not where the connection failed: what
    /// was sent may have happened, and must not happen twice.
    private static func mayBeOneOfThem(_ error: any Error) -> Bool {
        guard let error = error as? StorageError else { return false }
        guard let sqlState = error.sqlState else { return !error.isRetryable }
        return !["08", "53", "57P"].contains { sqlState.hasPrefix($0) }
    }
}
