import Testing

@testable import Cryptography

@Suite("HPKE", .timeLimit(.minutes(1)))
struct HPKETests {
    private static let info = "4f6465206f6e2061204772656369616e2055726e"
    private static let plaintext = "4265617574792069732074727574682c20747275746820626561757479"

    /// The first vector of RFC 9180 with mode 0, KEM 0x0020, KDF 0x0001 and AEAD 0x0002.
    @Test("Sealing and opening match the vector of the RFC")
    func vector() throws {
        let privateKey = try Hex.decode(
            "497b4502664cfea5d5af0b39934dac72242a74f8480451e1aee7d6a53320333d"
        )
        let publicKey = try Hex.decode(
            "430f4b9859665145a6b1ba274024487bd66f03a2dd577d7753c68d7d7d00c00c"
        )
        let ephemeral = try X25519Key(
            privateBytes: Hex.decode(
                "179d4b53b6365c45b600c4163b61d95cbc2f4d9e36f1695558dce265ab8bab11"
            )
        )
        let (info, aad) = (try Hex.decode(Self.info), try Hex.decode("436f756e742d30"))
        let sealed = try HPKE.seal(
            Hex.decode(Self.plaintext),
            to: publicKey,
            info: info,
            authenticating: aad,
            ephemeral: ephemeral
        )
        #expect(
            Hex.encode(sealed) == "6c93e09869df3402d7bf231bf540fadd35cd56be14f97178f0954db94b7fc256"
                + "e5d84cd531cfb583096e7cfa9641bd3079cf3a91cda813c52deb5f512be9931980a41de125a925"
                + "cdad859d5b7a"
        )
        let opened = try HPKE.open(sealed, with: privateKey, info: info, authenticating: aad)
        #expect(Hex.encode(opened) == Self.plaintext)
    }

    /// RFC 9180, appendix A.1.1, has the same KEM with another cipher.
    @Test("The shared secret is that of appendix A.1")
    func sharedSecret() throws {
        let ephemeral = try X25519Key(
            privateBytes: Hex.decode(
                "52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736"
            )
        )
        let publicKey = try Hex.decode(
            "3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d"
        )
        let encapsulated = try ephemeral.publicBytes()
        #expect(
            Hex.encode(encapsulated)
                == "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"
        )
        let secret = HPKE.sharedSecret(
            try ephemeral.secretShared(with: publicKey),
            encapsulated: encapsulated,
            recipient: publicKey
        )
        #expect(
            Hex.encode(secret)
                == "fe0e18c9f024ce43799ae393c7e8fe8fce9d218875e8227b0187c04e7d2ea1fc"
        )
    }

    @Test("Two seals of the same plaintext differ, and both open to it", arguments: [0, 1, 70_000])
    func roundTrip(count: Int) throws {
        let (privateKey, publicKey) = try HPKE.generateKeys()
        let plaintext = randomBytes(count)
        let sealed = try [1, 2].map { _ in
            try HPKE.seal(plaintext, to: publicKey, info: [1], authenticating: [2])
        }
        #expect(sealed[0] != sealed[1])
        #expect(sealed.allSatisfy { $0.count == 32 + count + 16 })
        for one in sealed {
            let opened = try HPKE.open(one, with: privateKey, info: [1], authenticating: [2])
            #expect(opened == plaintext)
        }
    }

    @Test("A value that was cut, changed, or sealed for another key, use or place does not open")
    func notAuthentic() throws {
        let (privateKey, publicKey) = try HPKE.generateKeys()
        let (other, _) = try HPKE.generateKeys()
        let sealed = try HPKE.seal([1, 2, 3], to: publicKey, info: [1], authenticating: [2])
        func refuses(_ sealed: [UInt8], _ key: [UInt8], _ info: [UInt8], _ aad: [UInt8]) -> Bool {
            do throws(CryptographyError) {
                _ = try HPKE.open(sealed, with: key, info: info, authenticating: aad)
                return false
            } catch { return error == .notAuthentic }
        }
        #expect(refuses(sealed, other, [1], [2]))
        #expect(refuses(sealed, privateKey, [2], [2]))
        #expect(refuses(sealed, privateKey, [1], []))
        for count in 0..<sealed.count {
            #expect(refuses(Array(sealed[..<count]), privateKey, [1], [2]))
        }
        for index in sealed.indices {
            var changed = sealed
            changed[index] ^= 1
            #expect(refuses(changed, privateKey, [1], [2]), "byte \(index)")
        }
        #expect(refuses([UInt8](repeating: 0, count: 60), privateKey, [1], [2]))
    }

    /// The points of small order, as RFC 7748 and libsodium list them, also with the highest bit
    /// set, which X25519 ignores.
    private static let lowOrder = [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "0100000000000000000000000000000000000000000000000000000000000080",
    ]

    @Test("A point of low order is refused, as its shared secret is public")
    func lowOrder() throws {
        for point in Self.lowOrder {
            let point = try Hex.decode(point)
            #expect(!HPKE.isUsable(publicKey: point), "\(Hex.encode(point))")
            #expect(throws: CryptographyError.self) {
                try HPKE.seal([1], to: point, info: [], authenticating: [])
            }
        }
    }

    @Test("A key of another length is refused, and any other string of 32 bytes is accepted")
    func usable() throws {
        for count in [0, 1, 31, 33, 64] {
            #expect(!HPKE.isUsable(publicKey: [UInt8](repeating: 9, count: count)))
        }
        for _ in 0..<20 { #expect(HPKE.isUsable(publicKey: randomBytes(32))) }
        #expect(HPKE.isUsable(publicKey: try HPKE.generateKeys().publicKey))
    }
}
