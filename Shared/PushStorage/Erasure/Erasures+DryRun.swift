import JSON
import Postgres
import PushCore

extension Erasures {
    /// What an erasure would take away now: it is done, in the same portions and by the same
    /// statements, and each portion is taken back. Whoever needs one of its rows waits as long as
    /// an erasure would keep him. It writes no receipt, and nothing to the audit.
    ///
    /// - Returns: What `erase` would count; nothing where the subject is not known. Of a broadcast
    ///   that is on its way an erasure may meet a delivery more.
    package func dryRun(_ subject: Subject) async throws -> ErasureCounts {
        var counts = ErasureCounts()
        var cursor: (Int64?, String?) = (nil, nil)
        // One that was cut short goes on with what it has found.
        let known = try await ErasureNotes.find(subject, in: database)
        let (own, installations) = try await database.transaction { transaction in
            try await SubjectSearch.resolve(subject, isLocking: false, transaction)
        }
        var names = own
        if let known {
            counts = known.counts
            names.formUnion(known.names)
            if names == known.names { cursor = known.cursor }
        }
        counts["installations"] += installations.count
        counts["configFetches"] += try await fetches(of: installations, subject).count
        if subject.kind == .identity {
            counts["identities"] += try await database.execute(
                "SELECT id FROM identities WHERE app = $1 AND id = $2",
                [.text(subject.app), .text(subject.id)]
            ).rows.count
        }
        try await SubjectSecure.count(of: subject, own, &counts, in: database)
        try await SubjectSync.count(
            of: subject,
            installations: installations.map(\.objectID),
            &counts,
            in: database
        )
        try await SubjectIngest.count(of: subject, names, &counts, in: database)
        while let page = try await countPage(of: subject, names, after: cursor, &counts) {
            cursor = page
        }
        counts = try await undone { [counts, names] transaction in
            var counts = counts
            try await SubjectRows.cleanRest(of: subject, names, &counts, transaction)
            return counts
        }
        return counts
    }

    /// - Returns: Where the next page begins; `nil`: there is none.
    private func countPage(
        of subject: Subject,
        _ names: SubjectNames,
        after cursor: (Int64?, String?),
        _ counts: inout ErasureCounts
    ) async throws -> (Int64?, String?)? {
        let before = counts
        let (after, next) = try await undone { transaction in
            var counts = before
            try await IndexPlan.require(transaction)
            let page = try await SubjectSearch.page(
                of: subject.app,
                names,
                after: cursor,
                transaction
            )
            guard let last = page.last else { return (counts, (Int64, String)?.none) }
            try await SubjectRows.clean(page, names, &counts, transaction)
            return (counts, page.isFull ? last : nil)
        }
        counts = after
        return next.map { ($0.0, $0.1) }
    }

    /// What a transaction came to that was taken back.
    private struct Undone<Value: Sendable>: Error {
        let value: Value
    }

    private func undone<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresTransaction) async throws -> Value
    ) async throws -> Value {
        do {
            return try await database.transaction { transaction in
                throw Undone(value: try await body(transaction))
            }
        } catch let undone as Undone<Value> {
            return undone.value
        }
    }
}
