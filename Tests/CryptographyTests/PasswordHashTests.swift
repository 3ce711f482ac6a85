import Testing

@testable import Cryptography

@Suite("Hashes of secrets", .timeLimit(.minutes(1)))
struct PasswordHashTests {
    /// RFC 7914, section 12; the fourth takes a gigabyte.
    @Test("scrypt matches the vectors of the RFC")
    func vectors() throws {
        let vectors = [
            (
                "", "", 4, 1, 1,
                "77d6576238657b203b19ca42c18a0497f16b4844e3074ae8dfdffa3fede21442"
                    + "fcd0069ded0948f8326a753a0fc81f17e8d3e0fb2e0d3628cf35e20c38d18906"
            ),
            (
                "password", "NaCl", 10, 8, 16,
                "fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b373162"
                    + "2eaf30d92e22a3886ff109279d9830dac727afb94a83ee6d8360cbdfa2cc0640"
            ),
            (
                "pleaseletmein", "SodiumChloride", 14, 8, 1,
                "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
                    + "d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887"
            ),
        ]
        for (secret, salt, logN, r, p, expected) in vectors {
            let cost = try #require(ScryptCost(logN: logN, r: r, p: p))
            let hash = try cost.hash(Array(secret.utf8), salt: Array(salt.utf8), bytes: 64)
            #expect(Hex.encode(hash) == expected)
        }
    }

    @Test("Only the secret matches, also after the hash was stored and read")
    func matches() throws {
        let secret = Array("correct horse".utf8)
        let slow = try PasswordHash.scrypt(secret)
        #expect(slow.stored.hasPrefix("scrypt$15$8$1$") && slow.isSlow)
        #expect(try PasswordHash.scrypt(secret) != slow, "each has a salt of its own")
        let fast = PasswordHash.digest(secret)
        #expect(fast.stored.hasPrefix("sha256$") && !fast.isSlow)
        for hash in [slow, fast] {
            let read = try PasswordHash(stored: hash.stored)
            #expect(read == hash && read.matches(secret))
            #expect(!read.matches(Array("correct horsf".utf8)) && !read.matches([]))
        }
    }

    @Test("No secret matches the decoy, which costs as much as any other hash")
    func decoy() throws {
        #expect(PasswordHash.decoy.isSlow)
        #expect(PasswordHash.decoy.stored.hasPrefix("scrypt$15$8$1$"))
        #expect(!PasswordHash.decoy.matches([]) && !PasswordHash.decoy.matches(Array("a".utf8)))
    }

    @Test(
        "A row that would take too much time or memory, or is too weak, is not accepted as a hash"
    )
    func bounds() throws {
        let rest = "$" + Base64.encodeURL(randomBytes(16)) + "$" + Base64.encodeURL(randomBytes(32))
        for cost in ["15$8$1", "16$8$1", "17$8$2", "15$16$2"] {
            #expect(throws: Never.self) { try PasswordHash(stored: "scrypt$" + cost + rest) }
        }
        for cost in [
            "14$8$1", "15$7$1", "15$8$0", "21$8$1", "20$8$1", "15$33$1", "15$8$17", "63$8$1",
            "-1$8$1", "9999999999999999999$8$1", "15$8$9223372036854775807", "15$8", "$$",
        ] {
            #expect(throws: CryptographyError.self, "\(cost)") {
                try PasswordHash(stored: "scrypt$" + cost + rest)
            }
        }
        let salt = Base64.encodeURL(randomBytes(16))
        for stored in [
            "", "scrypt", "sha256$", "sha256$AAAA", "md5$AAAA", "scrypt$15$8$1$\(salt)$AAAA",
            "scrypt$15$8$1$$\(salt)", "scrypt$15$8$1$?$\(salt)",
            "scrypt$15$8$1$\(salt)$" + String(repeating: "A", count: 2000),
        ] {
            #expect(throws: CryptographyError.self) { try PasswordHash(stored: stored) }
        }
    }
}
