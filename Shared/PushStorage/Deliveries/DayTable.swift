import Postgres
package import PushCore
package import Storage

/// A table that is partitioned by days: expired rows are dropped with their partition. A partition
/// is named by its last day. So the previous version, whose partitions have one day, drops no
/// partition too early.
package enum DayTable: String, CaseIterable {
    case deliveries
    case eventPushes = "event_pushes"
    case deliveryChunks = "delivery_chunks"

    /// Returns the days of its retention.
    package func days(_ retention: Retention) -> Int {
        switch self {
        case .deliveries, .deliveryChunks: retention.deliveryDays
        // The row of an event also serves to recognise its duplicates.
        case .eventPushes: max(retention.deliveryDays, retention.eventKeyDays)
        }
    }

    /// Returns the days of one partition. Partitions of `event_pushes` have several, as the
    /// duplicate check searches each partition.
    package func daysTogether(_ retention: Retention) -> Int {
        switch self {
        case .deliveries, .deliveryChunks: 1
        case .eventPushes: min(7, days(retention))
        }
    }

    /// Returns SQL for whether a partition must stay, as it has rows or shards that have not ended.
    /// `$1` is its name.
    package func isOpen(_ partition: String) -> String {
        switch self {
        case .deliveries:
            """
            EXISTS (SELECT FROM \(quotedIdentifier(partition)) WHERE state = \(DeliveryState.pending.sql))
                OR EXISTS (SELECT FROM shards
                    WHERE NOT finished AND day = to_date(right($1, 8), 'YYYYMMDD'))
            """
        // Chunks stay as long as the rows of their day: the ledger of a push that is still being
        // sent needs both.
        case .deliveryChunks:
            """
            EXISTS (SELECT FROM deliveries
                    WHERE day = to_date(right($1, 8), 'YYYYMMDD') AND state = \(DeliveryState.pending.sql))
                OR EXISTS (SELECT FROM shards
                    WHERE NOT finished AND day = to_date(right($1, 8), 'YYYYMMDD'))
            """
        case .eventPushes: "$1::text IS NULL"
        }
    }

    package func partition(of time: Instant) -> String {
        "\(rawValue)_" + time.day.split(separator: "-").joined()
    }
}
