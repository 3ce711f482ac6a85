import InstallationStorage
import JSON
import Observability
import PushCore
import Storage

/// An import after one of its batches.
struct ImportState: Sendable {
    var job: ImportJob
    /// The reasons of its rejected lines.
    var reasons: ExactStringSet
}

/// The write of one batch. Its transaction runs beside that of the batch before, so that Postgres works
/// while the next rows are prepared, and commits after it.
///
/// A batch with new fields does not begin before the other has ended. If the transaction before fails,
/// this one ends, too: it may hold locks that the other needs when it
/// is repeated.
final class BatchWrite: Sendable {
    private let first = FirstAttempt()
    private let locks = FirstAttempt()
    private let task: Task<ImportState, any Error>

    /// Ends at once: the state before the first batch.
    init(startingAt state: ImportState) {
        first.end(state)
        locks.end(nil)
        task = Task { state }
    }

    /// Starts to write a batch after another one, which is not awaited.
    init(
        _ batch: ImportReader.Batch,
        _ prepared: InstallationImport.Batch,
        after before: BatchWrite,
        by writer: InstallationImport,
        runner: String,
        report: ImportReport?
    ) {
        let (first, locks) = (first, locks)
        task = Task {
            defer {
                first.end(nil)
                locks.end(nil)
            }
            let (known, committed) = (KnownState(), KnownState())
            if prepared.hasNewFields { known.set(try await before.state) }
            // A device of both batches: this transaction waits for the other, never the other way.
            _ = await before.locks.state
            _ = try await writer.run(prepared) {
                first.end(nil)
                known.set(try await before.state)
            } locked: {
                locks.end(nil)
            } progress: { outcomes, transaction in
                var start = known.state
                if start == nil { start = await before.first.state }
                guard let start else {
                    throw StorageError(
                        .conflict,
                        "the batch before has to be repeated",
                        isRetryable: true
                    )
                }
                try await ImportStore.lock(start.job, runner, transaction)
                let progress = batch.progress(outcomes, known: start.reasons)
                try report?.write(batch.rejected(progress), before: start.job.position.line)
                try await ImportStore.advance(start.job, by: progress, transaction)
                committed.set(start.after(progress))
            }
            guard let state = committed.state else { throw CancellationError() }
            first.end(state)
            return state
        }
    }

    /// The import after this batch. Waits for its commit.
    ///
    /// - Throws: `ImportError`, `StorageError`.
    var state: ImportState {
        get async throws { try await task.value }
    }

    /// Rolls back, unless the commit has begun, and waits for the end.
    func cancel() async {
        task.cancel()
        _ = await task.result
    }
}

extension ImportState {
    fileprivate func after(_ progress: ImportProgress) -> ImportState {
        var state = self
        state.reasons.formUnion(ExactStringSet(progress.reasons.keys))
        state.job.position = progress.position
        state.job.counts = job.counts + progress.counts
        state.job.updatedAt = .now()
        if progress.isLast {
            state.job.state = .finished
            state.job.finishedAt = state.job.updatedAt
        }
        return state
    }
}

/// A state, once it is known.
private final class KnownState: Sendable {
    private let lock = Lock()
    nonisolated(unsafe) private var value: ImportState?

    var state: ImportState? { lock.withLock { unsafe value } }

    func set(_ state: ImportState) { lock.withLock { unsafe value = state } }
}

/// The end of the first attempt of a write: the state if it was committed, otherwise nil. The first end
/// counts.
private final class FirstAttempt: Sendable {
    private let stream: AsyncStream<ImportState?>
    private let ending: AsyncStream<ImportState?>.Continuation

    init() {
        (stream, ending) = AsyncStream.makeStream(bufferingPolicy: .bufferingOldest(1))
    }

    func end(_ state: ImportState?) {
        ending.yield(state)
        ending.finish()
    }

    /// Waits for the end. One caller at a time: that is the batch behind, whose first attempt alone asks.
    var state: ImportState? {
        get async {
            for await state in stream { return state }
            return nil
        }
    }
}
