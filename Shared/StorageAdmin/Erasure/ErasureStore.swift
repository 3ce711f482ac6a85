import ConnectionStorage
import JSON
import Postgres
import PushCore
package import Storage

/// Erases a device or a user: all stored data about it, in one call.
///
/// First the installations and the identity are deleted, in one transaction that stores their names
/// as a job; so no later planning includes them. Then the erasure walks through the app's pushes,
/// page by page, each page in a transaction. Deliveries lose the data of the device and stay as
/// rows without a name, so that the ledgers of their pushes balance. Pending deliveries end.
/// Requests lose the names.
///
/// An interrupted erasure resumes its job at the next call, or in the maintenance loop. It may be
/// repeated: the counts include only rows that still exist. Rows that come in after the subject was
/// deleted stay: they belong to another subject, even with the same name. Late audit entries of
/// other services lose the names when they are written (`ErasureFence`).
///
/// This file has the steps, and `Personal` has all affected tables. `ErasureJobs`, `SubjectSearch`
/// and `SubjectRows` process their rows.
package struct ErasureStore: Sendable {
    let database: Database

    /// The number of checks of the shards in flight, a tenth of a second apart.
    private static let looks = 30

    /// - Parameters:
    ///   - subject: The subject.
    ///   - entry: The audit entry, with the requester and the action. It is written with the
    ///     receipt.
    ///   - unknown: The entry's status if the subject is not known.
    /// - Returns: The receipt; with only zeros if the subject is not known.
    /// - Throws: `StorageError`; then a further call resumes.
    package func erase(
        _ subject: Subject,
        by entry: AuditEntry,
        unknown: Int? = nil
    ) async throws -> ErasureReceipt {
        let key = try await database.erasureKey.required(in: database)
        let names = try await begin(subject, entry, key)
        try await database.transaction { transaction in
            try await ErasureFence.closeBarrier(of: subject.app, transaction)
        }
        let until = try await ErasureJobs.begun(subject, in: database)
        return try await resume(subject, names, until: until, entry, unknown: unknown)
    }

    private func resume(
        _ subject: Subject,
        _ names: SubjectNames,
        until: Int64?,
        _ entry: AuditEntry,
        unknown: Int? = nil
    ) async throws -> ErasureReceipt {
        let sent = try await SubjectSearch.inFlight(
            names,
            of: subject.app,
            until: until,
            database
        )
        for personal in try await Personal.batches(of: subject.app, in: database) {
            try await portions(of: subject) { note, transaction in
                let values = PersonalValues(subject, names: note.names, until: note.until)
                return try await personal.deleteBatch(values, &note.counts, transaction)
            }
        }
        try await portions(of: subject) { note, transaction in
            try await erasePage(of: subject, &note, transaction)
        }
        let late = try await erase(sent, names, of: subject)
        return try await finish(subject, entry, inFlight: late, unknown: unknown)
    }

    /// Finishes one interrupted erasure that no process has worked on for a minute. Any replica may
    /// call it at any time; each claims a different one.
    ///
    /// - Returns: Whether there was one; its receipt is in the audit, under the original requester.
    /// - Throws: `StorageError`; then it is retried a minute later.
    func finishAbandoned() async throws -> Bool {
        // A program without a key ring, such as `carillon migrate`, leaves the erasure to a
        // dispatcher.
        guard database.erasureKey.isUsable else { return false }
        guard let abandoned = try await ErasureJobs.takeAbandoned(in: database) else {
            return false
        }
        _ = try await resume(
            abandoned.subject,
            abandoned.names,
            until: abandoned.until,
            abandoned.entry
        )
        return true
    }

    // MARK: Steps

    private static let messages = "connectionMessages"

    /// Erases the rows that identify the subject first, and stores its names.
    private func begin(
        _ subject: Subject,
        _ entry: AuditEntry,
        _ key: [UInt8]
    ) async throws -> SubjectNames {
        try await database.transaction { transaction in
            try await ErasureJobs.requireKnownSchema(transaction)
            var note = try await ErasureJobs.open(subject, transaction)
            let (names, installations) = try await SubjectSearch.resolve(
                subject,
                isLocking: true,
                transaction
            )
            note.names.formUnion(names)
            let values = PersonalValues(subject, installations, names: note.names)
            let before = note.counts[Self.messages]
            for personal in Personal.first {
                try await personal.delete(values, &note, transaction)
            }
            let statement = ConnectionStore.counting(
                displaced: note.counts[Self.messages] - before,
                of: subject.app
            )
            _ = try await transaction.execute(statement.sql, statement.parameters)
            try await ErasureJobs.keep(note, of: subject, for: entry, transaction)
            try await ErasureFence.note(
                note.names.texts.sorted(),
                of: subject.app,
                key: key,
                transaction
            )
            return note.names
        }
    }

    /// Runs a transaction for each batch, until no rows are left.
    private func portions(
        of subject: Subject,
        _ erase:
            @escaping @Sendable (inout ErasureJobs.Job, PostgresTransaction) async throws -> Bool
    ) async throws {
        var isMore = true
        while isMore {
            isMore = try await database.transaction { transaction in
                guard var note = try await ErasureJobs.lock(subject, transaction) else {
                    return false
                }
                try await IndexPlan.require(transaction)
                let isMore = try await erase(&note, transaction)
                try await ErasureJobs.advance(note, of: subject, transaction)
                return isMore
            }
        }
    }

    /// - Returns: Whether there are more.
    private func erasePage(
        of subject: Subject,
        _ note: inout ErasureJobs.Job,
        _ transaction: PostgresTransaction
    ) async throws -> Bool {
        let page = try await SubjectSearch.page(
            of: subject.app,
            note.names,
            after: note.cursor,
            until: note.until,
            transaction
        )
        guard let last = page.last else { return false }
        try await SubjectRows.clean(page, note.names, &note.counts, transaction)
        note.cursor = (last.0, last.1)
        return page.isFull
    }

    /// Waits until these shards have stored the deliveries that they had read, and erases these.
    ///
    /// - Returns: The number of shards that did not finish in time.
    private func erase(
        _ sent: [(pushID: String, shard: Int)],
        _ names: SubjectNames,
        of subject: Subject
    ) async throws -> Int {
        guard !sent.isEmpty else { return 0 }
        var open = sent
        for look in 0..<Self.looks where !open.isEmpty {
            if look > 0 { try await Task.sleep(for: .milliseconds(100)) }
            let now = try await SubjectSearch.inFlight(
                names,
                of: subject.app,
                until: nil,
                database
            )
            open = open.filter { shard in now.contains { $0 == shard } }
        }
        let pushIDs = Set(sent.map(\.pushID)).sorted()
        try await database.transaction { transaction in
            var note = try await ErasureJobs.lock(subject, transaction)
            var counts = note?.counts ?? ErasureCounts()
            try await IndexPlan.require(transaction)
            try await SubjectRows.clean(pushIDs, names, &counts, transaction)
            note?.counts = counts
            if let note { try await ErasureJobs.advance(note, of: subject, transaction) }
        }
        return open.count
    }

    /// Erases from outbox and audit, and deletes the job.
    private func finish(
        _ subject: Subject,
        _ entry: AuditEntry,
        inFlight: Int,
        unknown: Int?
    ) async throws -> ErasureReceipt {
        let key = try await database.erasureKey.required(in: database)
        return try await database.transaction { transaction in
            // If a newer version has migrated the schema meanwhile, a process of that version
            // finishes the erasure.
            try await ErasureJobs.requireKnownSchema(transaction)
            let note = try await ErasureJobs.close(subject, transaction)
            var counts = note?.counts ?? ErasureCounts()
            if let note {
                try await ErasureFence.note(
                    note.names.texts.sorted(),
                    of: subject.app,
                    key: key,
                    until: note.until,
                    transaction
                )
                // Rows that were being written when the subject was deleted were not visible then.
                let values = PersonalValues(subject, names: note.names, until: note.until)
                for personal in Personal.secure {
                    while try await personal.deleteBatch(values, &counts, transaction) {}
                }
                try await SubjectRows.cleanRest(
                    of: subject,
                    note.names,
                    until: note.until,
                    &counts,
                    transaction
                )
            }
            let hash = try await transaction.execute(
                "SELECT encode(sha256(convert_to($1, 'UTF8')), 'hex') AS subject",
                [.text("\(subject.app)/\(subject.kind.rawValue)/\(subject.id)")]
            )
            let receipt = ErasureReceipt(
                app: subject.app,
                kind: subject.kind,
                subject: try hash.first?.text("subject") ?? "",
                erased: counts,
                inFlight: inFlight,
                at: .now()
            )
            var entry = entry
            entry.detail = receipt.json
            entry.at = receipt.at
            if let unknown, receipt.isUnknownSubject { entry.status = unknown }
            let (sql, parameters) = AuditStore.insertion(of: [entry], key: key)
            _ = try await transaction.execute(sql, parameters)
            return receipt
        }
    }
}
