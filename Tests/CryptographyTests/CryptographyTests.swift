import Cryptography
import JSON
import Testing

@Suite("Cryptography: digests and encodings", .timeLimit(.minutes(1)))
struct DigestTests {
    @Test("Digests match the published answers")
    func knownAnswers() {
        let abc = Array("abc".utf8)
        #expect(
            Hex.encode(sha256(abc))
                == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        )
        #expect(
            Hex.encode(sha256([]))
                == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        )
        #expect(Hex.encode(sha1(abc)) == "a9993e364706816aba3e25717850c26c9cd0d89d")
        #expect(Hex.encode(md5(abc)) == "900150983cd24fb0d6963f7d28e17f72")
        // RFC 4231, test case 2.
        #expect(
            Hex.encode(
                hmacSHA256(key: Array("Jefe".utf8), Array("what do ya want for nothing?".utf8))
            )
                == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        )
        #expect(
            Hex.encode(hmacSHA256(key: [], []))
                == "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad"
        )
    }

    @Test("Signatures match the vectors of LeanCloud's clients")
    func leanCloudSign() {
        #expect(
            Hex.encode(md5(Array("1700000000000appkey".utf8)))
                == "54c13acf6ac04dd9585fe202a973c7cc"
        )
        #expect(
            Hex.encode(md5(Array("1700000000000masterkey".utf8)))
                == "640409e79b290dc96eb56fd5f17814f9"
        )
    }

    @Test("Base64 matches the vectors of RFC 4648 in both directions")
    func base64Vectors() throws {
        for (plain, text) in [
            ("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="), ("foobar", "Zm9vYmFy"),
        ] {
            let bytes = Array(plain.utf8)
            #expect(Base64.encode(bytes) == text)
            #expect(try Base64.decode(text) == bytes)
            let bare = text.replacing("=", with: "")
            #expect(Base64.encodeURL(bytes) == bare)
            #expect(try Base64.decodeURL(bare) == bytes)
        }
        #expect(Base64.encode([0xFB, 0xFF]) == "+/8=")
        #expect(Base64.encodeURL([0xFB, 0xFF]) == "-_8")
    }

    @Test(
        "Base64 that is not strict is refused",
        arguments: [
            "Zg", "Zg=", "Zh==", "Z===", "====", "Zm 9v", "Zm9v\n", "-_8=", "Zg==Zg==", "é",
        ]
    )
    func base64Strict(text: String) {
        #expect(throws: CryptographyError.self) { try Base64.decode(text) }
    }

    @Test(
        "Hexadecimal is read in either case, and an odd length or foreign character is refused"
    )
    func hexadecimal() throws {
        #expect(try Hex.decode("00fFAb") == [0x00, 0xFF, 0xAB])
        #expect(throws: CryptographyError.self) { try Hex.decode("0") }
        #expect(throws: CryptographyError.self) { try Hex.decode("0g") }
    }

    @Test("Comparison in constant time gives the right result, and random bytes differ")
    func comparison() {
        #expect(constantTimeEqual([1, 2], [1, 2]))
        #expect(!constantTimeEqual([1, 2], [1, 3]))
        #expect(!constantTimeEqual([1, 2], [1, 2, 3]))
        #expect(constantTimeEqual("key", "key"))
        #expect(randomBytes(32) != randomBytes(32))
        #expect(randomBytes(7).count == 7)
    }
}

@Suite("Cryptography: the key ring", .timeLimit(.minutes(1)))
struct KeyRingTests {
    private static let first = "a:" + Base64.encode([UInt8](repeating: 1, count: 32))
    private static let second = "b:" + Base64.encode([UInt8](repeating: 2, count: 32))
    private let secret = Array("a secret of some length".utf8)

    @Test("A value that the first key sealed opens under every ring that still has the key")
    func rotation() throws {
        let old = try KeyRing(Self.first)
        let sealed = try old.seal(secret, context: "credential/shop/apns/x")
        let rotated = try KeyRing(Self.second + "," + Self.first)
        #expect(try rotated.open(sealed, context: "credential/shop/apns/x") == secret)
        #expect(rotated.primaryKeyID == "b")
        #expect(KeyRing.keyID(of: sealed) == "a")
        let again = try rotated.seal([], context: "")
        #expect(KeyRing.keyID(of: again) == "b")
        #expect(try rotated.open(again, context: "") == [])
        #expect(throws: CryptographyError.unknownKey("b")) { try old.open(again, context: "") }
    }

    @Test("A mark depends on its key and context, and is not a plain digest")
    func marks() throws {
        let old = try KeyRing(Self.first)
        let rotated = try KeyRing(Self.second + "," + Self.first)
        let marks = rotated.marks(of: secret, context: "here")
        #expect(marks.map(KeyRing.keyID(of:)) == ["b", "a"])
        #expect(old.marks(of: secret, context: "here") == [marks[1]])
        #expect(old.marks(of: secret, context: "there") != [marks[1]])
        #expect(old.marks(of: secret + [0], context: "here") != [marks[1]])
        #expect(marks.allSatisfy { $0.suffix(32) != sha256(secret)[...] })
        #expect(marks[0].suffix(32) != marks[1].suffix(32))
    }

    @Test("A value with a changed byte, a missing byte or another context does not open")
    func tampering() throws {
        let ring = try KeyRing(Self.first)
        let sealed = try ring.seal(secret, context: "here")
        for index in sealed.indices {
            var changed = sealed
            changed[index] ^= 1
            #expect(throws: CryptographyError.self, "byte \(index)") {
                try ring.open(changed, context: "here")
            }
        }
        for length in 0..<sealed.count {
            #expect(throws: CryptographyError.self) {
                try ring.open(Array(sealed[..<length]), context: "here")
            }
        }
        #expect(throws: CryptographyError.notAuthentic) { try ring.open(sealed, context: "there") }
    }

    @Test("A different key under the same id does not open a value")
    func wrongKey() throws {
        let sealed = try KeyRing(Self.first).seal(secret, context: "here")
        let other = try KeyRing("a:" + Base64.encode([UInt8](repeating: 9, count: 32)))
        #expect(throws: CryptographyError.notAuthentic) { try other.open(sealed, context: "here") }
    }

    @Test("The same plaintext is sealed differently each time")
    func nonces() throws {
        let ring = try KeyRing(Self.first)
        #expect(try ring.seal(secret, context: "") != ring.seal(secret, context: ""))
    }

    @Test(
        "An invalid key ring is refused, and the error does not show a key",
        arguments: [
            "", "a", "a:", ":AAAA", "a:c2hvcnQ=", "a b:AAAA", Self.first + ",", "a:!!secret!!",
            Self.first + "," + Self.first,
        ]
    )
    func badRings(text: String) {
        let error = #expect(throws: CryptographyError.self) { try KeyRing(text) }
        for part in text.split(whereSeparator: { ":,".contains($0) }) where part.count > 2 {
            #expect(error?.description.contains(part) == false)
        }
    }
}
