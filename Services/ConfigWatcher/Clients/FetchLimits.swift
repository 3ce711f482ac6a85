import Cryptography
import Door
import Observability
import PushCore

/// How often one app instance may fetch, counted for all loops of a process together.
///
/// Instances are known by bytes of a bounded size, whatever they call themselves, and a bounded number
/// of them is remembered; see `TokenBuckets`.
final class FetchLimits: Sendable {
    private static let maximumInstances = 200_000
    /// Of limits that apps set.
    private static let maximumLimits = 16

    private let lock = Lock()
    nonisolated(unsafe) private var buckets: [Int: TokenBuckets<[UInt8]>] = [:]

    /// Who fetches.
    enum Fetcher {
        case instance(String)
        case address(String)
    }

    /// - Parameters:
    ///   - fetcher: Whose fetch it is.
    ///   - app: The app's id.
    ///   - limit: An hour; 0: none.
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

    /// An app's id has no blank.
    private static func key(_ fetcher: Fetcher, _ app: String) -> [UInt8] {
        let (kind, name) =
            switch fetcher {
            case .instance(let id): ("i", id)
            case .address(let address): ("a", address)
            }
        // Firebase's own have 22 bytes.
        let bytes = name.utf8.count <= 40 ? Array(name.utf8) : [0] + sha256(Array(name.utf8))
        return Array("\(kind) \(app) ".utf8) + bytes
    }
}
