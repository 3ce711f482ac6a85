import Cryptography
import Gateway
import Observability
import PushCore

/// Limits the fetches of an app instance, counted for all loops of a process together.
///
/// The keys of instances have a bounded size, whatever name a client sends, and their number is bounded, too;
/// see `TokenBuckets`.
final class FetchLimits: Sendable {
    private static let maximumInstances = 200_000
    /// The number of different limits that are counted: apps may set any.
    private static let maximumLimits = 16

    private let lock = Lock()
    nonisolated(unsafe) private var buckets: [Int: TokenBuckets<[UInt8]>] = [:]

    /// The client that fetches.
    enum Fetcher {
        case instance(String)
        case address(String)
    }

    /// - Parameters:
    ///   - fetcher: The client that fetches.
    ///   - app: The app's id.
    ///   - limit: Fetches an hour; 0: no limit.
    ///   - now: The time.
    /// - Returns: `nil`, or the seconds to wait.
    func take(
        _ fetcher: Fetcher,
        of app: String,
        limit: Int,
        now: ContinuousClock.Instant = .now
    ) -> Int? {
        guard limit > 0 else { return nil }
        let key = Self.key(fetcher, app)
        return lock.withLock {
            if unsafe buckets[limit] == nil {
                if unsafe buckets.count >= Self.maximumLimits { unsafe buckets = [:] }
                unsafe buckets[limit] = TokenBuckets(
                    perSecond: Double(limit) / 3600,
                    burst: Double(limit),
                    maximumKeys: Self.maximumInstances
                )
            }
            return unsafe buckets[limit]?.take(key, now: now)
        }
    }

    /// Returns the key of a fetcher. Its parts are separated by blanks, as an app's id contains no
    /// blank.
    private static func key(_ fetcher: Fetcher, _ app: String) -> [UInt8] {
        let (kind, name) =
            switch fetcher {
            case .instance(let id): ("i", id)
            case .address(let address): ("a", address)
            }
        // Ids of Firebase have 22 bytes.
        let bytes = name.utf8.count <= 40 ? Array(name.utf8) : [0] + sha256(Array(name.utf8))
        return Array("\(kind) \(app) ".utf8) + bytes
    }
}
