import JSON
import Postgres
import PushCore

/// Erasing a device or a user: everything that is stored of it, in one call.
///
/// First the installations and the identity go, in one transaction with a note of their names; so
/// whatever is planned from then on does not meet them. Then the app's pushes are walked through,
/// page by page, each page a transaction: deliveries lose what they say of the device and stay as
/// rows without a name, so that the books of their pushes balance, and those that were pending end;
/// requests lose the names. An erasure that was cut short goes on from its note at the next call, or
/// in the maintenance loop. It may be repeated: what is not there is not erased again. What came in after
/// the subject was gone stays: whoever has its name then is somebody else. What other services write to the
/// audit later loses the names when it is written (`ErasedNames`).
///
/// The steps stand here; the rows are those of `ErasureNotes`, `SubjectSearch` and `SubjectRows`.
package struct Erasures: Sendable {
    let database: Database

    /// How often what is in flight is looked at, a tenth of a second apart.
    private static let looks = 30

    /// - Parameters:
    ///   - subject: Whom.
    ///   - entry: Who wants it and how: the receipt is added, and it is written to the audit.
    ///   - unknown: The entry's status where nothing was known.
    /// - Returns: The receipt; of nothing but zeros where nothing was known.
    /// - Throws: `StorageError`; then a further call goes on where this one stopped.
    package func erase(
        _ subject: Subject,
        by entry: AuditEntry,
        unknown: Int? = nil
    ) async throws -> ErasureReceipt {
        let key = try await database.erasureKey.required(in: database)
        let names = try await begin(subject, entry, key)
        try await database.transaction { transaction in
            try await ErasedNames.closeBarrier(of: subject.app, transaction)
        }
        let until = try await ErasureNotes.begun(subject, in: database)
        return try await goOn(subject, names, until: until, entry, unknown: unknown)
    }

    private func goOn(
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
        while try await eraseSecure(of: subject) {}
        try await eraseIngest(of: subject)
        while try await erasePage(of: subject) {}
        let late = try await erase(sent, names, of: subject)
        return try await finish(subject, entry, inFlight: late, unknown: unknown)
    }

    /// Finishes one erasure that was cut short: that nobody has worked at for a minute. Any replica
    /// may call it at any time; each takes another.
    ///
    /// - Returns: Whether there was one; its receipt is in the audit, for who had wanted it.
    /// - Throws: `StorageError`; then it is taken up again a minute later.
    func finishAbandoned() async throws -> Bool {
        // A program without a key ring, such as `carillon migrate`, leaves it to a dispatcher.
        guard database.erasureKey.isUsable else { return false }
        guard let abandoned = try await ErasureNotes.takeAbandoned(in: database) else {
            return false
        }
        _ = try await goOn(
            abandoned.subject,
            abandoned.names,
            until: abandoned.until,
            abandoned.entry
        )
        return true
    }

    // MARK: Steps

    /// Erases what the subject is known by first, and notes its names.
    private func begin(
        _ subject: Subject,
        _ entry: AuditEntry,
        _ key: [UInt8]
    ) async throws -> SubjectNames {
        try await database.transaction { transaction in
            try await ErasureNotes.requireKnownSchema(transaction)
            var note = try await ErasureNotes.open(subject, transaction)
            let (names, installations) = try await SubjectSearch.resolve(
                subject,
                isLocking: true,
                transaction
            )
            note.names.formUnion(names)
            let own: [PostgresValue] = [
                .text(subject.app), .textArray(installations.map(\.objectID)),
            ]
            // They would go with their installations, uncounted.
            note.counts["configFetches"] += try await transaction.execute(
                "DELETE FROM config_fetched WHERE app = $1 AND installation = ANY ($2::text[])",
                own
            ).affectedRows
            try await SubjectSecure.eraseProofs(
                of: subject,
                installations: installations.map(\.objectID),
                &note.counts,
                transaction
            )
            try await SubjectSync.erase(
                subject,
                installations: installations.map(\.objectID),
                &note,
                transaction
            )
            note.counts["installations"] += try await transaction.execute(
                "DELETE FROM installations WHERE app = $1 AND object_id = ANY ($2::text[])",
                own
            ).affectedRows
            if subject.kind == .identity {
                note.counts["identities"] += try await transaction.execute(
                    "DELETE FROM identities WHERE app = $1 AND id = $2",
                    [.text(subject.app), .text(subject.id)]
                ).affectedRows
            }
            try await ErasureNotes.keep(note, of: subject, for: entry, transaction)
            try await ErasedNames.note(
                note.names.texts.sorted(),
                of: subject.app,
                key: key,
                transaction
            )
            return note.names
        }
    }

    /// Content goes first of all.
    ///
    /// - Returns: Whether there is more.
    private func eraseSecure(of subject: Subject) async throws -> Bool {
        try await database.transaction { transaction in
            guard var note = try await ErasureNotes.lock(subject, transaction) else { return false }
            let isMore = try await SubjectSecure.erasePortion(
                of: subject,
                note.names,
                until: note.until,
                &note.counts,
                transaction
            )
            try await ErasureNotes.advance(note, of: subject, transaction)
            return isMore
        }
    }

    /// What devices have sent of it, until the erasure began: what comes from Kafka later meets its names.
    private func eraseIngest(of subject: Subject) async throws {
        for place in try await SubjectIngest.places(of: subject, in: database) {
            try await portions(of: subject) { note, transaction in
                try await SubjectIngest.erasePortion(of: subject, at: place, &note, transaction)
            }
        }
        try await portions(of: subject) { note, transaction in
            try await SubjectIngest.eraseReceipts(of: subject, &note, transaction)
        }
    }

    /// Each a transaction, as long as there is more.
    private func portions(
        of subject: Subject,
        _ erase:
            @escaping @Sendable (inout ErasureNotes.Note, PostgresTransaction) async throws -> Bool
    ) async throws {
        var isMore = true
        while isMore {
            isMore = try await database.transaction { transaction in
                guard var note = try await ErasureNotes.lock(subject, transaction) else {
                    return false
                }
                let isMore = try await erase(&note, transaction)
                try await ErasureNotes.advance(note, of: subject, transaction)
                return isMore
            }
        }
    }

    /// - Returns: Whether there is more.
    private func erasePage(of subject: Subject) async throws -> Bool {
        try await database.transaction { transaction in
            guard var note = try await ErasureNotes.lock(subject, transaction) else { return false }
            try await IndexPlan.require(transaction)
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
            try await ErasureNotes.advance(note, of: subject, transaction)
            return page.isFull
        }
    }

    /// Waits until those shards have written down what they had read, and erases that.
    ///
    /// - Returns: How many have not in time.
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
            var note = try await ErasureNotes.lock(subject, transaction)
            var counts = note?.counts ?? ErasureCounts()
            try await IndexPlan.require(transaction)
            try await SubjectRows.clean(pushIDs, names, &counts, transaction)
            note?.counts = counts
            if let note { try await ErasureNotes.advance(note, of: subject, transaction) }
        }
        return open.count
    }

    /// What waits for Kafka, what the audit names, and the end of the note.
    private func finish(
        _ subject: Subject,
        _ entry: AuditEntry,
        inFlight: Int,
        unknown: Int?
    ) async throws -> ErasureReceipt {
        let key = try await database.erasureKey.required(in: database)
        return try await database.transaction { transaction in
            // Whoever was upgraded meanwhile ends it.
            try await ErasureNotes.requireKnownSchema(transaction)
            let note = try await ErasureNotes.close(subject, transaction)
            var counts = note?.counts ?? ErasureCounts()
            if let note {
                try await ErasedNames.note(
                    note.names.texts.sorted(),
                    of: subject.app,
                    key: key,
                    until: note.until,
                    transaction
                )
                // What was being kept when the subject went, and was not there yet.
                while try await SubjectSecure.erasePortion(
                    of: subject,
                    note.names,
                    until: note.until,
                    &counts,
                    transaction
                ) {}
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
            if let unknown, receipt.isOfNobody { entry.status = unknown }
            let (sql, parameters) = AuditStore.insertion(of: [entry], key: key)
            _ = try await transaction.execute(sql, parameters)
            return receipt
        }
    }
}
