internal import PushCore
import Storage

/// Recently verified tokens, by their SHA-256. There are two generations, so that unused entries
/// expire without a search for the oldest.
struct VerifiedTokenCache<Logins: AnyObject> {
    struct Entry {
        let reader: TokenIdentity
        /// The logins that verified the token. After a change, it is verified again.
        let logins: Logins
        /// The token's own expiry, by the wall clock.
        let end: Instant
        /// The end of the cache entry.
        let until: ContinuousClock.Instant
    }

    static var lifetime: Duration { .seconds(300) }

    /// The limit of one generation.
    let limit: Int
    private var young: [[UInt8]: Entry] = [:]
    private var old: [[UInt8]: Entry] = [:]

    init(limit: Int = 8192) { self.limit = limit }

    var count: Int { young.count + old.count }

    mutating func find(
        _ digest: [UInt8],
        at now: Instant,
        _ steady: ContinuousClock.Instant
    ) -> Entry? {
        if let entry = young[digest] {
            if now < entry.end, steady < entry.until { return entry }
            young[digest] = nil
            return nil
        }
        guard let entry = old.removeValue(forKey: digest) else { return nil }
        guard now < entry.end, steady < entry.until else { return nil }
        insert(digest, entry)
        return entry
    }

    mutating func insert(_ digest: [UInt8], _ entry: Entry) {
        if young.count >= limit, young[digest] == nil {
            old = young
            young = [:]
        }
        young[digest] = entry
    }

    mutating func remove(_ digest: [UInt8]) {
        young[digest] = nil
        old[digest] = nil
    }
}
