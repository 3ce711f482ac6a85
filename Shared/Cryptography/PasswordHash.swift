internal import COpenSSL

/// A hash that verifies a secret. The hash itself gives no access.
///
/// A secret that a person chose is stored as scrypt, which takes about 0.13 s and 32 MiB each time.
/// A secret that Carillon generated, of 32 random bytes, cannot be guessed, so SHA-256 is enough.
///
/// - SeeAlso: RFC 7914.
package struct PasswordHash: Sendable, Equatable {
    private enum Form: Sendable, Equatable {
        case scrypt(ScryptCost, salt: [UInt8], hash: [UInt8])
        case digest([UInt8])
    }

    private let form: Form

    /// Hashes a secret chosen by a person. Blocks for about 0.13 s: never on a loop.
    package static func scrypt(_ secret: [UInt8]) throws(CryptographyError) -> PasswordHash {
        let salt = randomBytes(16)
        let hash = try ScryptCost.usual.hash(secret, salt: salt, bytes: 32)
        return PasswordHash(form: .scrypt(.usual, salt: salt, hash: hash))
    }

    /// Hashes a secret of 32 random bytes or more.
    package static func digest(_ secret: [UInt8]) -> PasswordHash {
        PasswordHash(form: .digest(sha256(secret)))
    }

    /// A hash for missing secrets: checking it takes as long as any other, and no secret matches.
    package static let decoy = PasswordHash(
        form: .scrypt(.usual, salt: randomBytes(16), hash: randomBytes(32))
    )

    private init(form: Form) { self.form = form }

    /// Parses `scrypt$<log2 N>$<r>$<p>$<salt>$<hash>` or `sha256$<hash>`, the format of `stored`.
    ///
    /// - Throws: `badEncoding` for anything else, and for a cost that is too low to be safe or too
    ///   high to wait for.
    package init(stored: String) throws(CryptographyError) {
        let parts = stored.split(separator: "$", omittingEmptySubsequences: false).map(String.init)
        guard stored.utf8.count <= 1024, let name = parts.first else {
            throw .badEncoding("no hash of a secret")
        }
        switch (name, parts.count) {
        case ("scrypt", 6):
            guard let logN = Int(parts[1]), let r = Int(parts[2]), let p = Int(parts[3]),
                let cost = ScryptCost(logN: logN, r: r, p: p), cost.isEnough
            else { throw .badEncoding("the cost of scrypt is out of bounds") }
            let (salt, hash) = (try Base64.decodeURL(parts[4]), try Base64.decodeURL(parts[5]))
            guard (8...64).contains(salt.count), (16...64).contains(hash.count) else {
                throw .badEncoding("scrypt's salt or hash has another length")
            }
            form = .scrypt(cost, salt: salt, hash: hash)
        case ("sha256", 2):
            let hash = try Base64.decodeURL(parts[1])
            guard hash.count == 32 else { throw .badEncoding("SHA-256 has 32 bytes") }
            form = .digest(hash)
        default: throw .badEncoding("no hash of a secret")
        }
    }

    /// The value for a column; it is not a secret, but should not be shown either.
    package var stored: String {
        switch form {
        case .scrypt(let cost, let salt, let hash):
            "scrypt$\(cost.logN)$\(cost.r)$\(cost.p)$" + Base64.encodeURL(salt) + "$"
                + Base64.encodeURL(hash)
        case .digest(let hash): "sha256$" + Base64.encodeURL(hash)
        }
    }

    /// Whether `matches` blocks for long, and so must not run on a loop.
    package var isSlow: Bool {
        switch form {
        case .scrypt: true
        case .digest: false
        }
    }

    /// Whether it matches the secret. The time does not reveal how similar a wrong secret is.
    package func matches(_ secret: [UInt8]) -> Bool {
        switch form {
        case .scrypt(let cost, let salt, let hash):
            guard let made = try? cost.hash(secret, salt: salt, bytes: hash.count) else {
                return false
            }
            return constantTimeEqual(made, hash)
        case .digest(let hash): return constantTimeEqual(sha256(secret), hash)
        }
    }
}

/// The cost of scrypt: 128 · N · r bytes, and time in proportion to N · r · p.
struct ScryptCost: Sendable, Equatable {
    let logN: Int
    let r: Int
    let p: Int

    static let usual = ScryptCost(unchecked: 15, 8, 1)

    /// The limit, sixteen times the usual cost, about 2 s: a stored cost must not stall a thread
    /// for ever, or take all memory.
    private static let maximumWork = 1 << 22

    private init(unchecked logN: Int, _ r: Int, _ p: Int) {
        self.logN = logN
        self.r = r
        self.p = p
    }

    /// - Returns: `nil` if it is not a valid cost of scrypt, or too high.
    init?(logN: Int, r: Int, p: Int) {
        guard (1...20).contains(logN), (1...32).contains(r), (1...16).contains(p),
            (1 << logN) * r * p <= Self.maximumWork
        else { return nil }
        self.init(unchecked: logN, r, p)
    }

    /// Whether it is no lower than the usual cost.
    var isEnough: Bool { logN >= Self.usual.logN && r >= Self.usual.r && p >= Self.usual.p }

    func hash(
        _ secret: [UInt8],
        salt: [UInt8],
        bytes: Int
    ) throws(CryptographyError) -> [UInt8] {
        var hash = [UInt8](repeating: 0, count: bytes)
        // OpenSSL's own limit is 32 MiB, a little less than the usual cost takes.
        let memory = 128 * (1 << logN) * r + 128 * r * p + (1 << 20)
        // An empty array may have no address, and OpenSSL prompts for a secret without one.
        let text = (secret.isEmpty ? [0] : secret).map { CChar(bitPattern: $0) }
        guard
            unsafe EVP_PBE_scrypt(
                text,
                secret.count,
                salt,
                salt.count,
                UInt64(1 << logN),
                UInt64(r),
                UInt64(p),
                UInt64(memory),
                &hash,
                hash.count
            ) == 1
        else { throw libraryFailure("EVP_PBE_scrypt") }
        return hash
    }
}
