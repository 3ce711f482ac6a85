import Cryptography
import Gateway
import Observability

/// The limits of readers' failures, shared by all loops of a process: wrong secrets of an identity from an
/// address, and ids that are not the reader's.
final class ReaderLimits: Sendable {
    /// The limit of unknown ids, as a multiple of the limit of wrong secrets.
    private static let missesForEachGuess = 10

    private let lock = Lock()
    /// A random key of this process: counters under it reveal no names or secrets.
    private let key = randomBytes(32)
    nonisolated(unsafe) private var failedAttempts: FailedAttempts
    nonisolated(unsafe) private var misses: TokenBuckets<[UInt8]>?

    /// - Parameter failuresPerIdentity: Per minute; 0: no limit.
    init(failuresPerIdentity: Int) {
        unsafe failedAttempts = FailedAttempts(perMinute: failuresPerIdentity)
        guard failuresPerIdentity > 0 else { return }
        let perMinute = Double(failuresPerIdentity * Self.missesForEachGuess)
        unsafe misses = TokenBuckets(perSecond: perMinute / 60, burst: perMinute)
    }

    /// An attempt to use a secret of an identity, from one address.
    struct Attempt {
        fileprivate let subject: [UInt8]
        fileprivate let secret: [UInt8]
    }

    /// - Returns: An attempt, which must be passed to `end`, or the seconds to wait.
    func begin(
        _ app: String,
        _ identity: String,
        from address: String,
        secret: [UInt8]
    ) -> (attempt: Attempt?, waitSeconds: Int) {
        let subject = hmacSHA256(key: key, Self.joined(["guess", app, identity, address]))
        let attempt = Attempt(subject: subject, secret: hmacSHA256(key: key, subject + secret))
        let wait = lock.withLock {
            unsafe failedAttempts.begin(attempt.subject, attempt.secret, now: .now)
        }
        return wait.map { (nil, $0) } ?? (attempt, 0)
    }

    func end(_ attempt: Attempt, hasFailed: Bool) {
        lock.withLock {
            unsafe failedAttempts.end(
                attempt.subject,
                attempt.secret,
                hasFailed: hasFailed,
                now: .now
            )
        }
    }

    /// Returns the key under which a reader's unknown ids are counted.
    func key(ofReader names: [String]) -> [UInt8] {
        hmacSHA256(key: key, Self.joined(["miss"] + names))
    }

    /// - Returns: `nil`, or the seconds to wait before the reader's next id.
    func waitAfterMisses(_ reader: [UInt8]) -> Int? {
        lock.withLock { unsafe misses?.look(reader, now: .now) }
    }

    func countNotFound(_ reader: [UInt8]) {
        lock.withLock { _ = unsafe misses?.take(reader, now: .now) }
    }

    /// Joins names by NUL, which no name contains.
    private static func joined(_ names: [String]) -> [UInt8] {
        Array(names.map { Array($0.utf8) }.joined(separator: [0]))
    }
}
