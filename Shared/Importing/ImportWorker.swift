import Cryptography
import Observability
import PushCore
package import Storage

/// Does the tasks of uploaded imports: one at a time. Any replica may; one that ends in any way loses its
/// claim after the lease, and another continues after the last committed batch.
package struct ImportWorker: Sendable {
    private let database: PushDatabase

    package init(_ database: PushDatabase) { self.database = database }

    /// Claims a task and works on it until its end, a pause or a stop. If the caller is cancelled, the
    /// import pauses after its batch, and any replica may claim it at once.
    ///
    /// - Returns: Whether there was one.
    package func round() async throws -> Bool {
        let claim = Claim()
        // A cancelled task could not store where the import paused.
        let work = Task { try await round(claim) }
        return try await withTaskCancellationHandler {
            try await work.value
        } onCancel: {
            claim.end()
        }
    }

    private func round(_ claim: Claim) async throws -> Bool {
        guard !claim.isEnding else { return false }
        let runner = PushIdentity.uuidText(randomBytes(16))
        guard let upload = try await database.importUploads.claim(runner),
            let task = upload.task
        else { return false }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await keep(upload, runner, claim) }
            defer { group.cancelAll() }
            switch task {
            case .run: try await run(upload, runner, claim)
            case .dryRun: try await dryRun(upload, runner, claim)
            }
        }
        return true
    }

    /// Renews the claim until its task is cancelled. If the claim is lost, the work has to end.
    private func keep(_ upload: ImportUpload, _ runner: String, _ claim: Claim) async throws {
        var last = ContinuousClock.now
        while !Task.isCancelled {
            do { try await Task.sleep(for: ImportUploadStore.heartbeat) } catch { return }
            do {
                guard try await database.importUploads.renew(upload.id, runner) else {
                    return claim.end()
                }
                last = .now
            } catch {
                guard .now < last + ImportUploadStore.lease else { return claim.end() }
            }
        }
    }

    private func run(_ upload: ImportUpload, _ runner: String, _ claim: Claim) async throws {
        let uploads = database.importUploads
        let state: ImportJob.State
        do {
            let run = ImportRun(
                database,
                .parts(uploads.parts(of: upload)),
                isStopping: { claim.isEnding }
            )
            state = try await run.run(upload.id, app: upload.app).job.state
        } catch let error as ImportError where error.kind == .taken {
            // It was stopped or paused, or another replica continues it.
            return try await uploads.release(upload.id, runner, isDone: false)
        } catch is ImportError {
            // The job has the reason.
            return try await uploads.release(upload.id, runner, isDone: true)
        }
        switch state {
        case .finished: try await uploads.delete(upload.id, runner)
        case .running, .paused, .stopped, .failed:
            try await uploads.release(upload.id, runner, isDone: false)
        }
    }

    private func dryRun(_ upload: ImportUpload, _ runner: String, _ claim: Claim) async throws {
        let uploads = database.importUploads
        guard let job = try await database.imports.find(app: upload.app, id: upload.id) else {
            return
        }
        let run = ImportRun(
            database,
            .parts(uploads.parts(of: upload)),
            isStopping: { claim.isEnding }
        )
        let result: ImportDryRun
        do {
            result = ImportDryRun(
                try await run.dryRun(app: upload.app, format: job.format, options: job.options)
            )
        } catch let error as ImportError {
            result = ImportDryRun(failure: error.description)
        }
        // A dry run that was cut short has counted only a part.
        let isWhole = !claim.isEnding
        try await uploads.release(
            upload.id,
            runner,
            isDone: isWhole,
            dryRun: isWhole ? result : nil
        )
    }
}

/// Whether a replica should end its work: it has lost its claim, or it stops.
private final class Claim: Sendable {
    private let lock = Lock()
    nonisolated(unsafe) private var ending = false

    var isEnding: Bool { lock.withLock { unsafe ending } }
    func end() { lock.withLock { unsafe ending = true } }
}
