import Postgres
import Storage

/// Advisory locks of pushes by their ids, until a transaction ends.
enum PushLock {
    /// Returns a statement that locks some pushes: another transaction that plans or writes one of them
    /// waits, and then sees what was written.
    static func take(_ ids: [String]) -> (String, [PostgresValue]) {
        (
            """
            SELECT count(*) FROM (SELECT pg_advisory_xact_lock(i.key)
                FROM unnest($1::bigint[]) AS i(key)) AS locked
            """,
            [.integerArray(Set(ids.map(key)).sorted())]
        )
    }

    /// Returns the first half of the id: of two pushes that share it, one waits for the other.
    static func key(of id: String) -> Int {
        let digits = id.utf8.lazy.filter { $0 != UInt8(ascii: "-") }.prefix(16)
        var key: UInt64 = 0
        for digit in digits {
            let value =
                switch digit {
                case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
                case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
                case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
                default: UInt8(0)
                }
            key = key << 4 | UInt64(value)
        }
        return Int(bitPattern: UInt(key))
    }
}
