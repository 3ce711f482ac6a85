import InstallationStorage
import Postgres
import PushCore
import Storage

/// The result of planning one page of an audience.
package struct PlannedPage: Sendable, Equatable {
    /// The deliveries that were added to the ledger, due now and without an owner, as rows or as
    /// members of shards.
    package var inserted: Int
    /// The total, including the pages before.
    package var total: Int
    package var isFinished: Bool
}

/// Plans audiences, page by page: as shards of a broadcast (`CutShards`, `ChosenShards`), or as rows
/// (`RowPages`). The caller has claimed the push (`PlanningStore+Claim.swift`).
package struct PlanningStore: Sendable {
    let database: Database
    let zoneNames: ZoneNames

    /// The number of installations that a page reads, after a page took too long to find all
    /// members that it may have.
    package static let carefulPage = 200_000

    /// Writes the next page of an audience and moves the cursor, in one transaction. The audience is
    /// fixed: installations created after the push are not in it. An audience that names neither
    /// devices nor identities is cut into shards, ten at a time; the others become rows.
    ///
    /// - Parameters:
    ///   - session: The session that has claimed the push.
    ///   - pushID: The push.
    ///   - limit: The rows of a page.
    ///   - shardSize: The members of a shard; `nil` for rows only.
    ///   - pageSize: After a page that took too long: the number of the app's installations that a
    ///     statement reads, whatever it finds; `nil` for no limit.
    ///   - keepsClaim: Whether the session keeps its claim if the push is not finished.
    /// - Returns: The result of the page.
    /// - Throws: `StorageError` of kind `sessionLost` if the session has not claimed the push.
    package func planPage(
        session: Int,
        pushID: String,
        limit: Int = 5000,
        shardSize: Int? = nil,
        pageSize: Int? = nil,
        keepsClaim: Bool = true
    ) async throws -> PlannedPage {
        try await database.transaction { transaction in
            try await SessionStore.hold(session, transaction)
            let found = try await transaction.execute(
                """
                SELECT id, app, request, lane, cursor, planned_until, release_at FROM pushes
                WHERE id = $1 AND planner = $2 AND status = \(PushStatus.planning.sql)
                """,
                [.uuid(pushID), .integer(session)]
            )
            guard let row = found.first else { throw StorageError.sessionLost }
            let push = try PlanningPush(row)
            let start = PageStart(
                cursor: try row.textOrNil("cursor"),
                plannedUntil: try row.timestampMicroseconds("planned_until"),
                limit: max(1, min(limit, pageSize.map { $0 / 100 } ?? limit))
            )
            let isLarge = try row.integer("lane") > 0 || pageSize != nil
            let zones = try await zoneNames.times(
                of: push.request,
                releasedAt: try row.instantOrNil("release_at"),
                transaction
            )
            var page: AudiencePage
            var topicRows = 0
            switch push.request.audience {
            case .tokens(let tokens):
                page = try await RowPages.page(push, tokens, start, zones, transaction)
            case .topic(let topic):
                if start.cursor == nil {
                    topicRows = try await TopicRows.insert(push, topic, zones, transaction)
                }
                page = try await Self.page(
                    push,
                    topic.selectors,
                    start,
                    zones,
                    PageSize(shard: shardSize, isLarge: isLarge, pageSize: pageSize),
                    transaction
                )
            case .installations(let selectors):
                page = try await Self.page(
                    push,
                    selectors,
                    start,
                    zones,
                    PageSize(shard: shardSize, isLarge: isLarge, pageSize: pageSize),
                    transaction
                )
            }
            page.inserted += topicRows
            let isFinished = page.cursor == nil
            if isFinished { try await CutShards.begin(push, zones, transaction) }
            // The push is not locked before this statement, as the checkpoints of its first shards
            // would wait for the whole page. A cancellation clears its planner, so that no row
            // matches here.
            let changed = try await transaction.execute(
                """
                UPDATE pushes p SET
                    \(LedgerSQL.planned(members: "$2", shards: "$5", isLast: "$4")),
                    cursor = coalesce($3, p.cursor),
                    planner = CASE WHEN $4 OR NOT $7 THEN NULL ELSE p.planner END
                WHERE p.id = $1 AND p.planner = $6 AND p.status = \(PushStatus.planning.sql)
                RETURNING p.targeted
                """,
                [
                    .uuid(pushID), .integer(page.inserted), .optional(text: page.cursor),
                    .boolean(isFinished), .integer(page.shards), .integer(session),
                    .boolean(keepsClaim),
                ]
            )
            guard let books = changed.first else { throw StorageError.sessionLost }
            return PlannedPage(
                inserted: page.inserted,
                total: try books.integer("targeted"),
                isFinished: isFinished
            )
        }
    }

    /// The values that decide how many members a page has.
    private struct PageSize {
        let shard: Int?
        let isLarge: Bool
        let pageSize: Int?
    }

    /// Writes a page of installations: as shards, chosen or cut, or as rows.
    private static func page(
        _ push: PlanningPush,
        _ selectors: PushRequest.Selectors,
        _ start: PageStart,
        _ zones: ZoneTimes?,
        _ size: PageSize,
        _ transaction: PostgresTransaction
    ) async throws -> AudiencePage {
        if !selectors.isDirect, start.cursor == nil,
            try await CutShards.becomesRows(push, selectors, size: start.limit, transaction)
        {
            return try await RowPages.page(push, selectors, start, zones, transaction)
        }
        if let shard = size.shard, selectors.isChosen(isLarge: size.isLarge) {
            return try await ChosenShards.page(
                push,
                selectors,
                start,
                size: max(1, shard),
                zones,
                pageSize: size.pageSize,
                transaction
            )
        }
        if let shard = size.shard, !selectors.isDirect {
            return try await CutShards.page(
                push,
                selectors,
                start,
                size: max(1, shard),
                zones,
                pageSize: size.pageSize,
                transaction
            )
        }
        return try await RowPages.page(push, selectors, start, zones, transaction)
    }
}
