import JSON
import Postgres
import PushCore
import Storage

/// The reasons why deliveries of a push failed, counted in `pushes.failures` by the statement that
/// changes its ledger: a list of `{"provider", "reason", "count"}`, `NULL` until a delivery fails.
/// A separate row for each reason would be written by every batch of every push, and would have to
/// be deleted later.
enum FailureCounts {
    /// The most reasons that a push counts separately. Further reasons are counted as "other" of
    /// their provider.
    static let maximumReasons = 32
    static let other = "other"

    /// Returns the reason that is counted for a row of `deliveries`: the SQL of
    /// `FailureCount.reason`.
    static func reasonSQL(_ row: String) -> String {
        """
        CASE WHEN starts_with(\(row).last_reason, '\(FailureCount.tooLarge)')
                THEN '\(FailureCount.tooLarge)'
            WHEN \(row).last_reason <> '' THEN left(\(row).last_reason, 200)
            ELSE coalesce('status ' || \(row).last_status, 'no reason given') END
        """
    }

    /// Returns the sum of `known`, a `jsonb`, and `added`, a query of (provider, reason, count). A
    /// known reason keeps its place. The most frequent new reasons take the places that are left.
    static func mergeSQL(_ known: String, _ added: String) -> String {
        """
        (SELECT jsonb_agg(jsonb_build_object('provider', f.provider, 'reason', f.reason,
                'count', f.count) ORDER BY f.count DESC, f.provider, f.reason)
            FROM (SELECT s.provider,
                    CASE WHEN s.place <= \(maximumReasons) THEN s.reason ELSE '\(other)' END
                        AS reason,
                    sum(s.count)::bigint AS count
                FROM (SELECT u.provider, u.reason, sum(u.count) AS count,
                        row_number() OVER (ORDER BY u.reason = '\(other)' DESC,
                            bool_or(u.is_known) DESC, sum(u.count) DESC, u.provider, u.reason)
                            AS place
                    FROM (SELECT k.provider, k.reason, k.count, true AS is_known
                            FROM jsonb_to_recordset(coalesce(\(known), '[]'))
                                AS k(provider text, reason text, count bigint)
                        UNION ALL
                        SELECT a.provider, a.reason, a.count, false FROM (\(added))
                            AS a(provider, reason, count)) u
                    GROUP BY u.provider, u.reason) s
                GROUP BY 1, 2) f)
        """
    }

    /// Returns the query of the added counts, which reads a parameter.
    static func querySQL(_ parameter: String) -> String {
        """
        SELECT i.provider, i.reason, i.count FROM jsonb_to_recordset(\(parameter)::jsonb)
            AS i(provider text, reason text, count bigint)
        """
    }

    static func read(_ value: JSONValue?) -> [FailureCount] {
        (value?.array ?? []).compactMap { item in
            guard let provider = item["provider"]?.string.flatMap(Platform.init(rawValue:)),
                let reason = item["reason"]?.string, let count = item["count"]?.integer
            else { return nil }
            return FailureCount(provider: provider, reason: reason, count: count)
        }
    }
}

/// The failures of one batch, before they are written. Pure.
struct FailureTally: Equatable {
    private struct Key: Hashable {
        var provider: Platform
        /// The UTF-8 bytes, as reasons come from outside.
        var reason: [UInt8]
    }

    private var counts: [Key: Int] = [:]

    mutating func add(_ provider: Platform, reason: String?, status: Int?) {
        let reason = FailureCount.reason(reason, status: status)
        counts[Key(provider: provider, reason: Array(reason.utf8)), default: 0] += 1
    }

    mutating func add(_ other: FailureTally) {
        counts.merge(other.counts, uniquingKeysWith: +)
    }

    /// The parameter for `FailureCounts.querySQL`; `NULL` if nothing failed.
    var parameter: PostgresValue { .optional(json: json) }

    /// The value as a push stores it; `nil` if nothing failed.
    var json: JSONValue? {
        guard !counts.isEmpty else { return nil }
        return .array(
            counts.map { key, count in
                [
                    "provider": .string(key.provider.rawValue),
                    "reason": .string(String(decoding: key.reason, as: UTF8.self)),
                    "count": JSONValue(count),
                ]
            }
        )
    }
}
