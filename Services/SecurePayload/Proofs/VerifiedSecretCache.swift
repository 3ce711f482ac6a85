import Cryptography
import Observability

/// A cache of secrets that were recently right, so that a device that reads again costs no hashing.
/// It stores HMACs under a random key of the process, so that its entries alone do not help to
/// guess a secret.
///
/// An entry is valid only for the hash with which the secret was compared: a changed secret has
/// another hash.
final class VerifiedSecretCache: Sendable {
    private struct Success {
        let hash: [UInt8]
        let at: ContinuousClock.Instant
    }

    private let lock = Lock()
    private let key = randomBytes(32)
    private let lifetime: Duration
    private let maximumOfGeneration: Int
    nonisolated(unsafe) private var young: [[UInt8]: Success] = [:]
    nonisolated(unsafe) private var old: [[UInt8]: Success] = [:]

    init(lifetime: Duration = .seconds(86_400), maximum: Int = 200_000) {
        self.lifetime = lifetime
        maximumOfGeneration = max(1, maximum / 2)
    }

    /// Returns the cache key of a secret; it differs for each app, identity and secret.
    func mark(_ app: String, _ identity: String, _ secret: [UInt8]) -> [UInt8] {
        // The parts cannot be confused, as names contain no NUL, and the secret comes last.
        hmacSHA256(key: key, Array(app.utf8) + [0] + Array(identity.utf8) + [0] + secret)
    }

    /// Whether the secret was right for some hash; `isRight` says whether it is right for the
    /// stored one.
    func holds(_ mark: [UInt8], now: ContinuousClock.Instant = .now) -> Bool {
        find(mark, now) != nil
    }

    func isRight(_ mark: [UInt8], for stored: String, now: ContinuousClock.Instant = .now) -> Bool {
        find(mark, now)?.hash == digest(stored)
    }

    func remember(_ mark: [UInt8], for stored: String, now: ContinuousClock.Instant = .now) {
        let success = Success(hash: digest(stored), at: now)
        lock.withLock {
            if unsafe young[mark] == nil, unsafe young.count >= maximumOfGeneration {
                unsafe old = young
                unsafe young = [:]
            }
            unsafe young[mark] = success
            unsafe old[mark] = nil
        }
    }

    private func find(_ mark: [UInt8], _ now: ContinuousClock.Instant) -> Success? {
        let found = lock.withLock { unsafe young[mark] ?? old[mark] }
        return found.flatMap { now - $0.at < lifetime ? $0 : nil }
    }

    private func digest(_ stored: String) -> [UInt8] {
        hmacSHA256(key: key, Array(stored.utf8))
    }
}
