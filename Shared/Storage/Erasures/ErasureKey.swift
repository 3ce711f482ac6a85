import Cryptography
import Observability
import Postgres

/// The key of the digests in `erased_names`, so that a list of names cannot be tested against them.
/// It is random, made once for a database, and stored sealed under the key ring. `keys rotate`
/// seals it again; the key itself stays, and every fence stays valid.
package final class ErasureKey: Sendable {
    /// The context that it is sealed for.
    package static let context = "erasure-key"
    private static let byteCount = 32

    private let ring: KeyRing?
    private let lock = Lock()
    nonisolated(unsafe) private var known: [UInt8]?

    init(_ ring: KeyRing?) { self.ring = ring }

    package var isUsable: Bool { ring != nil }

    /// Reads the key, and creates it if the database has none.
    ///
    /// - Returns: `nil` in a program without a key ring, which writes nothing late.
    /// - Throws: `StorageError`: of kind `corrupt` if no key of the ring opens it.
    package func bytes(in database: Database) async throws -> [UInt8]? {
        guard let ring else { return nil }
        if let known = lock.withLock({ unsafe known }) { return known }
        var rows = try await database.execute("SELECT sealed FROM erasure_key").rows
        if rows.isEmpty {
            let made = try Self.sealed(randomBytes(Self.byteCount), ring)
            _ = try await database.execute(
                "INSERT INTO erasure_key (sealed) VALUES ($1) ON CONFLICT DO NOTHING",
                [.bytes(made)]
            )
            rows = try await database.execute("SELECT sealed FROM erasure_key").rows
        }
        guard let row = rows.first else {
            throw StorageError(.corrupt, "the key of erased names was not stored")
        }
        let key = try Self.opened(try row.bytes("sealed"), ring)
        lock.withLock { unsafe known = key }
        return key
    }

    /// Reads the key for a caller that cannot continue without it.
    package func required(in database: Database) async throws -> [UInt8] {
        guard let key = try await bytes(in: database) else {
            throw StorageError(.corrupt, "the database's key needs CARILLON_MASTER_KEYS")
        }
        return key
    }

    /// Returns a key for something else than erasures, which stays the same as this one does.
    ///
    /// - Throws: `StorageError`.
    package func derived(for purpose: String, in database: Database) async throws -> [UInt8] {
        hmacSHA256(key: try await required(in: database), Array("carillon \(purpose)".utf8))
    }

    private static func sealed(_ key: [UInt8], _ ring: KeyRing) throws(StorageError) -> [UInt8] {
        do throws(CryptographyError) {
            return try ring.seal(key, context: context)
        } catch {
            throw StorageError(.corrupt, "the key of erased names cannot be sealed: \(error)")
        }
    }

    private static func opened(_ sealed: [UInt8], _ ring: KeyRing) throws(StorageError) -> [UInt8] {
        do throws(CryptographyError) {
            return try ring.open(sealed, context: context)
        } catch {
            throw StorageError(
                .corrupt,
                "the key of erased names cannot be opened with CARILLON_MASTER_KEYS: \(error)"
            )
        }
    }
}
