import Postgres
import Storage

/// Advisory locks of pushes by their ids, until a transaction ends.
enum PushLock {
    /// Returns a statement that locks some pushes. Another transaction that plans or writes one of
    /// them waits for the lock, and then sees the rows of this one.
    static func take(_ ids: [String]) -> (String, [PostgresValue]) {
        (
            """
            SELECT count(*) FROM (SELECT pg_advisory_xact_lock(i.key)
                FROM unnest($1::bigint[]) AS i(key)) AS locked
            """,
            [.integerArray(Set(ids.map(key)).sorted())]
        )
    }

    /// Returns the first half of the id as a key. Two pushes with the same key wait for each other.
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
