import Postgres
import PushCore
import Storage

/// The reports of devices about a push.
package struct ReceiptCounts: Sendable, Equatable {
    package var opened = 0
    package var received = 0

    package init(opened: Int = 0, received: Int = 0) {
        self.opened = opened
        self.received = received
    }

    package var total: Int { opened + received }

    package static func += (counts: inout ReceiptCounts, others: ReceiptCounts) {
        counts.opened += others.opened
        counts.received += others.received
    }
}

/// The reports of devices about pushes. Each installation counts once for a push.
package struct ReceiptStore: Sendable {
    let database: Database

    /// - Parameter pushes: The pushes, with their ids and those of their events: a report names
    ///   either id.
    /// - Returns: The counts by the push's id. Pushes without reports are missing.
    /// - Throws: `StorageError`.
    package func counts(
        of pushes: [(app: String, id: String, eventID: String)]
    ) async throws -> [String: ReceiptCounts] {
        guard !pushes.isEmpty else { return [:] }
        let rows = try await database.execute(
            """
            SELECT p.id::text AS id, r.kind, count(DISTINCT r.who) AS number
            FROM unnest($1::text[], $2::uuid[], $3::text[]) AS p(app, id, event)
                JOIN push_receipts r ON r.app = p.app AND r.target IN (p.id::text, 'event/' || p.event)
            GROUP BY p.id, r.kind
            """,
            [
                .textArray(pushes.map(\.app)), .uuidArray(pushes.map(\.id)),
                .textArray(pushes.map(\.eventID)),
            ]
        ).rows
        var counts: [String: ReceiptCounts] = [:]
        for row in rows {
            let number = try row.integer("number")
            switch ReceiptKind(rawValue: try row.integer("kind")) {
            case .opened: counts[try row.text("id"), default: ReceiptCounts()].opened = number
            case .received: counts[try row.text("id"), default: ReceiptCounts()].received = number
            case nil: break
            }
        }
        return counts
    }

    /// Returns the pushes with the counts of their reports. If counting exceeds the time limit,
    /// returns them without counts: the rest of a record is worth more.
    package func added(to pushes: [StoredPush]) async throws -> [StoredPush] {
        let counts: [String: ReceiptCounts]
        do {
            counts = try await self.counts(of: pushes.map { ($0.app, $0.id, $0.eventID) })
        } catch let error as StorageError where error.isStatementTimeout {
            return pushes
        }
        guard !counts.isEmpty else { return pushes }
        return pushes.map { push in
            var push = push
            push.receipts = counts[push.id] ?? ReceiptCounts()
            return push
        }
    }

    package func added(to push: StoredPush) async throws -> StoredPush {
        try await added(to: [push])[0]
    }
}
