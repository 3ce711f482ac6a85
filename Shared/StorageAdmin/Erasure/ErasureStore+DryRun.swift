import JSON
import Postgres
import PushCore
import Storage

extension ErasureStore {
    /// Counts the rows that an erasure would affect now. Rows that it would delete are only counted
    /// (`Personal`). All other changes are made, in the same batches and by the same statements,
    /// and each batch is rolled back. So other writers of these rows wait as long as for an
    /// erasure. A dry run writes no receipt, and nothing to the audit.
    ///
    /// - Returns: The counts that `erase` would return; empty if the subject is not known. For a broadcast
    ///   in flight, an erasure may find one more delivery.
    package func dryRun(_ subject: Subject) async throws -> ErasureCounts {
        var counts = ErasureCounts()
        var cursor: (Int64?, String?) = (nil, nil)
        // An interrupted erasure resumes with the names that it has found.
        let known = try await ErasureJobs.find(subject, in: database)
        let (own, installations) = try await database.transaction { transaction in
            try await SubjectSearch.resolve(subject, isLocking: false, transaction)
        }
        var names = own
        if let known {
            counts = known.counts
            names.formUnion(known.names)
            if names == known.names { cursor = known.cursor }
        }
        let values = PersonalValues(subject, installations, names: names)
        let deleted = Personal.first + (try await Personal.batches(of: subject.app, in: database))
        for personal in deleted {
            guard let name = personal.count else { continue }
            counts[name] += try await database.transaction { transaction in
                try await IndexPlan.require(transaction)
                return try await personal.count(values, transaction)
            }
        }
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

    /// - Returns: The start of the next page; `nil` after the last.
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

    /// The result of a transaction that was rolled back.
    private struct RolledBack<Value: Sendable>: Error {
        let value: Value
    }

    private func undone<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresTransaction) async throws -> Value
    ) async throws -> Value {
        do {
            return try await database.transaction { transaction in
                throw RolledBack(value: try await body(transaction))
            }
        } catch let undone as RolledBack<Value> {
            return undone.value
        }
    }
}
