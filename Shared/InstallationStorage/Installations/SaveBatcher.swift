import JSON
import Observability
import Postgres
import PushCore
import Storage

/// The saves of one loop, in batches: saves that arrive while others are being written become one
/// transaction. A lone save starts at once.
///
/// Authority: which saves are in which batch, and in what order. A batch that fails is split, so that
/// no save fails because of another; an error of a save's own change fails only that save.
///
/// States: a save waits, is in a batch, is answered. Bounds: the waiting saves, the saves of a
/// batch, the concurrent transactions; a batch ends early once it is large. A save that may take
/// long, because of a condition or a locked row, is in a slow queue with a transaction for each
/// save. So it delays only other slow saves.
///
/// Shutdown: needs nothing here. A closing pool ends the transactions, which answer their saves.
final class SaveBatcher: Sendable {
    private static let maximumWaiting = 20_000
    private static let maximumRounds = 8

    private typealias Answer = CheckedContinuation<SavedInstallation?, any Error>

    private struct Waiting {
        var save: InstallationSave
        var rounds = 0
        let answer: Answer
    }

    /// A queue of saves for batches.
    private struct Queue {
        let maximumBatch: Int
        let maximumConcurrent: Int
        /// The saves that must wait before another batch starts beside a running one.
        let worthABatch: Int
        var waiting: [Waiting] = []
        var running = 0

        var wantsAnother: Bool {
            running < maximumConcurrent && (running == 0 || waiting.count >= worthABatch)
        }
    }

    private enum QueueKey: Int { case plain, slow }

    private let lock = Lock()
    nonisolated(unsafe) private var lines = [
        Queue(maximumBatch: 64, maximumConcurrent: 2, worthABatch: 32),
        Queue(maximumBatch: 1, maximumConcurrent: 1, worthABatch: 1),
    ]
    private let database: Database
    private let types: FieldTypeCache
    private let loop: PostgresLoop

    init(_ database: Database, _ types: FieldTypeCache, on loop: PostgresLoop) {
        self.database = database
        self.types = types
        self.loop = loop
    }

    /// - Returns: `nil` if it names an object that does not exist.
    func save(_ save: InstallationSave) async throws -> SavedInstallation? {
        try Task.checkCancellation()
        return try await withCheckedThrowingContinuation { answer in
            add(Waiting(save: save, answer: answer))
        }
    }

    private func add(_ waiting: Waiting) {
        let isSlow = waiting.save.condition != nil || waiting.save.hasToWait
        let name = isSlow ? QueueKey.slow : .plain
        let (isRefused, starts) = lock.withLock {
            guard unsafe lines[name.rawValue].waiting.count < Self.maximumWaiting else {
                return (true, false)
            }
            unsafe lines[name.rawValue].waiting.append(waiting)
            guard unsafe lines[name.rawValue].wantsAnother else { return (false, false) }
            unsafe lines[name.rawValue].running += 1
            return (false, true)
        }
        if isRefused {
            waiting.answer.resume(
                throwing: StorageError(.database, "too many saves wait", isRetryable: true)
            )
        }
        guard starts else { return }
        // The batches do not run in the caller's task, as its cancellation must not end saves of
        // other callers.
        Task(executorPreference: loop) {
            while let batch = self.next(in: name) { await self.run(batch, of: name) }
        }
    }

    private func next(in name: QueueKey) -> [Waiting]? {
        lock.withLock {
            let (waiting, limit) = unsafe (
                lines[name.rawValue].waiting.count, lines[name.rawValue].maximumBatch
            )
            let count = min(waiting, limit)
            guard count > 0 else {
                unsafe lines[name.rawValue].running -= 1
                return nil
            }
            let batch = unsafe Array(lines[name.rawValue].waiting[..<count])
            unsafe lines[name.rawValue].waiting.removeFirst(count)
            return batch
        }
    }

    private func run(_ batch: [Waiting], of name: QueueKey) async {
        var turns = [batch]
        // A row must not change between the test of a condition and the write, so the slow queue
        // locks it.
        var locksRows = name == .slow
        var decided = DecidedFields()
        while let turn = turns.popLast() {
            do {
                let saves = turn.map(\.save)
                let outcomes = try await database.transaction { [locksRows, decided] transaction in
                    try await InstallationBatch.run(
                        saves,
                        locksRows: locksRows,
                        decided: decided,
                        transaction
                    )
                }
                for (save, outcome) in zip(saves, outcomes) {
                    guard case .saved = outcome, let fields = save.fields else { continue }
                    types.learned(fields)
                }
                settle(turn, outcomes, in: name)
            } catch let others as InstallationBatch.FieldTypeConflict {
                decided.merge(others.fields)
                for save in turn.map(\.save) {
                    guard let fields = save.fields else { continue }
                    types.learned(decided.known(of: fields))
                }
                turns.append(turn)
            } catch is InstallationBatch.NeedsLocks {
                locksRows = true
                turns.append(turn)
            } catch {
                if turn.count == 1, name == .plain, Self.isWaitForOne(error) {
                    var waiting = turn[0]
                    waiting.save.hasToWait = true
                    add(waiting)
                    continue
                }
                guard turn.count > 1, Self.mayBeCausedByOne(error) else {
                    let failure = Self.failure(error, of: name)
                    for waiting in turn { waiting.answer.resume(throwing: failure) }
                    continue
                }
                if Self.isWaitForOne(error) {
                    turns += turn.reversed().map { [$0] }
                } else {
                    let half = turn.count / 2
                    turns += [Array(turn[half...]), Array(turn[..<half])]
                }
            }
        }
    }

    private func settle(_ batch: [Waiting], _ outcomes: [SaveOutcome], in name: QueueKey) {
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
        guard !back.isEmpty else { return }
        lock.withLock { unsafe lines[name.rawValue].waiting.insert(contentsOf: back, at: 0) }
    }

    /// Whether one of the saves may have caused the error, so that the others would succeed without
    /// it. False if the connection failed: the batch may have been committed, and must not run
    /// twice.
    private static func mayBeCausedByOne(_ error: any Error) -> Bool {
        guard let error = error as? StorageError else { return false }
        guard let sqlState = error.sqlState else { return !error.isRetryable }
        return !["08", "53", "57P"].contains { sqlState.hasPrefix($0) }
    }

    /// Whether a lock, or the statement, took too long. Then the saves run one by one, as each half
    /// of the batch could take that long again.
    private static func isWaitForOne(_ error: any Error) -> Bool {
        ["55P03", "57014"].contains((error as? StorageError)?.sqlState ?? "")
    }

    private static func failure(_ error: any Error, of name: QueueKey) -> any Error {
        guard name == .slow, (error as? StorageError)?.sqlState == "57014" else {
            return error
        }
        return InstallationError(code: 124, "the save takes too long")
    }
}
