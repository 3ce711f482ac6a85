import InstallationStorage
import JSON
import PushCore
package import Storage

/// Runs an import in this process: reads and validates a batch while the two before it are written.
package struct ImportRun: Sendable {
    /// The end of a run.
    package struct End: Sendable {
        /// Running if `isDryRun`: then it is not stored.
        package let job: ImportJob
        /// The reasons of rejected lines, the most frequent first.
        package let reasons: [ImportReason]
    }

    private let database: PushDatabase
    private let input: ImportInput
    private let report: ImportReport?
    private let isStopping: @Sendable () -> Bool
    private let progress: @Sendable (ImportJob) -> Void

    /// - Parameters:
    ///   - database: The single database of the process.
    ///   - input: The file of the job.
    ///   - report: Gets all rejected records.
    ///   - isStopping: Whether the run should pause after the current batch.
    ///   - progress: Called after each batch.
    package init(
        _ database: PushDatabase,
        _ input: ImportInput,
        report: ImportReport? = nil,
        isStopping: @escaping @Sendable () -> Bool = { false },
        progress: @escaping @Sendable (ImportJob) -> Void = { _ in }
    ) {
        (self.database, self.input, self.report) = (database, input, report)
        (self.isStopping, self.progress) = (isStopping, progress)
    }

    /// Runs a job to its end. It continues after the last committed batch of an earlier run.
    ///
    /// - Parameters:
    ///   - id: A stored job of this file.
    ///   - app: Its app.
    /// - Returns: The job: finished, or paused or stopped by someone.
    /// - Throws: `ImportError`, `StorageError`; then the job has failed, unless another process runs it.
    package func run(_ id: Int, app: String) async throws -> End {
        let (job, runner) = try await database.imports.begin(
            id,
            app: app,
            evenIfStopped: input.resumesStopped
        )
        do {
            let reader = try await ImportReader(
                input,
                format: job.format,
                app: app,
                options: job.options,
                from: job.position,
                now: .now()
            )
            try await report?.begin(before: job.position.line)
            let ended = try await follow(job, runner, reader)
            return End(job: ended, reasons: try await database.imports.reasons(id))
        } catch let error as ImportError where error.kind == .taken {
            guard let now = try await database.imports.find(app: app, id: id),
                now.state == .paused || now.state == .stopped
            else { throw error }
            return End(job: now, reasons: try await database.imports.reasons(id))
        } catch {
            let isCancelled = error is CancellationError
            // If the database cannot be reached, the job stays as it is, and can be taken over.
            try? await database.imports.leave(
                job,
                runner,
                as: isCancelled ? .paused : .failed,
                failure: isCancelled ? nil : "\(error)"
            )
            throw error
        }
    }

    private func follow(
        _ job: ImportJob,
        _ runner: String,
        _ reader: ImportReader
    ) async throws -> ImportJob {
        let writer = try await writer(job.app, job.options)
        let reasons = ExactStringSet(try await database.imports.reasons(job.id).map(\.reason))
        var write = BatchWrite(startingAt: ImportState(job: job, reasons: reasons))
        do {
            return try await follow(&write, runner, reader, writer)
        } catch {
            await write.cancel()
            throw error
        }
    }

    /// Writes two batches at a time.
    private func follow(
        _ write: inout BatchWrite,
        _ runner: String,
        _ reader: ImportReader,
        _ writer: InstallationImport
    ) async throws -> ImportJob {
        var reading = Self.read(reader)
        while true {
            let batch = await reading.value
            let isEnd = batch.isLast || batch.failure != nil
            if !isEnd { reading = Self.read(reader) }
            try Task.checkCancellation()
            let prepared = try await writer.prepare(batch.installations, isDryRun: false)
            let before = write
            write = BatchWrite(
                batch,
                prepared,
                after: before,
                by: writer,
                runner: runner,
                report: report
            )
            progress(try await before.state.job)
            guard isEnd || isStopping() else { continue }
            var job = try await write.state.job
            progress(job)
            if let failure = batch.failure { throw failure }
            if !isEnd {
                try await database.imports.leave(job, runner, as: .paused)
                job.state = .paused
            }
            return job
        }
    }

    private func writer(_ app: String, _ options: ImportOptions) async throws -> InstallationImport
    {
        guard let stored = try await database.apps.find(app) else {
            throw ImportError(.unusable, "there is no app \(app)")
        }
        return InstallationImport(
            database,
            app: app,
            version: stored.fieldsVersion,
            existing: options.existing
        )
    }

    /// Reads the next batch on a thread of its own: reading is long work.
    private static func read(_ reader: ImportReader) -> Task<ImportReader.Batch, Never> {
        Task.detached { await reader.batch() }
    }

    // MARK: Without writing

    /// Validates a whole file, and decides what an import would do. Changes nothing. Two lines of
    /// the file with the same device are both counted as imported if they are in different batches.
    package func dryRun(
        app: String,
        format: ImportFormat,
        options: ImportOptions
    ) async throws -> End {
        let reader = try await ImportReader(
            input,
            format: format,
            app: app,
            options: options,
            now: .now()
        )
        let file = try input.open().fingerprint
        var job = ImportJob(dryRunOf: app, format, file, options)
        let writer = try await writer(app, options)
        try await report?.begin(before: 1)
        var reasons: ExactStringMap<ImportProgress.Reason> = [:]
        var reading = Self.read(reader)
        while true {
            let batch = await reading.value
            let isEnd = batch.isLast || batch.failure != nil
            if !isEnd { reading = Self.read(reader) }
            let prepared = try await writer.prepare(batch.installations, isDryRun: true)
            let outcomes = try await writer.run(prepared, isDryRun: true)
            let done = batch.progress(outcomes, known: ExactStringSet(reasons.keys))
            try report?.write(batch.rejected(done), before: job.position.line)
            for (reason, more) in done.reasons {
                var entry = reasons[reason] ?? ImportProgress.Reason()
                entry.lines += more.lines
                entry.examples += more.examples.prefix(
                    ImportLimits.examples - entry.examples.count
                )
                reasons[reason] = entry
            }
            job.position = done.position
            job.counts = job.counts + done.counts
            progress(job)
            if let failure = batch.failure {
                job.state = .failed
                job.failure = failure.description
            }
            guard !isEnd, !isStopping() else { break }
        }
        let list = reasons.sortedByKey().map {
            ImportReason(reason: $0.key, lines: $0.value.lines, examples: $0.value.examples)
        }
        return End(job: job, reasons: list.sorted { $0.lines > $1.lines })
    }
}

extension ImportReader.Batch {
    /// The valid installations, in order.
    fileprivate var installations: [ImportedInstallation] {
        records.compactMap { try? $0.content.get() }
    }

    /// Returns the progress with this batch.
    ///
    /// - Parameters:
    ///   - outcomes: The outcomes of the valid installations.
    ///   - known: The reasons that the import has already; beyond a number of them, new ones are
    ///     counted together.
    /// - Returns: The progress.
    func progress(
        _ outcomes: [ImportOutcome],
        known: ExactStringSet
    ) -> ImportProgress {
        var progress = ImportProgress(position: position, isLast: isLast)
        var rest = outcomes[...]
        for record in records {
            switch record.content {
            case .failure(let rejection):
                progress.add(.rejected(rejection.reason), line: record.line, known: known)
            case .success:
                if let outcome = rest.popFirst() {
                    progress.add(outcome, line: record.line, known: known)
                }
            }
        }
        return progress
    }

    /// Returns the rejected records of a batch, for the report.
    func rejected(_ progress: ImportProgress) -> [ImportReport.Entry] {
        var rest = progress.rejections[...]
        return records.compactMap { record in
            guard let first = rest.first, first.line == record.line else { return nil }
            rest.removeFirst()
            return ImportReport.Entry(
                line: record.line,
                reason: first.reason,
                record: record.bytes
            )
        }
    }
}
