/// The keys under which secrets are encrypted at rest: the first seals, all open.
///
/// A sealed value is `1 ‖ length of the key's id ‖ id ‖ nonce (12) ‖ ciphertext ‖ tag (16)`,
/// AES-256-GCM. The bytes before the nonce, and the caller's context, are authenticated with it: a
/// value that was moved to another row, column or app does not open. Nonces are random, so a key
/// should seal fewer than 2³² values (NIST SP 800-38D, section 8.3).
package struct KeyRing: Sendable {
    private struct Key: Sendable {
        let id: String
        let bytes: [UInt8]
    }

    private static let version: UInt8 = 1

    private let keys: [Key]

    /// Parses `id:base64(32 bytes),…`, the form of `CARILLON_MASTER_KEYS`.
    ///
    /// - Throws: `CryptographyError.badKeyRing`, which counts entries from 1 and shows no key.
    package init(_ text: String) throws(CryptographyError) {
        var keys: [Key] = []
        for (index, entry) in text.split(separator: ",", omittingEmptySubsequences: false)
            .enumerated()
        {
            let parts = entry.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.count == 2, Self.isID(parts[0]) else {
                throw .badKeyRing(
                    "entry \(index + 1) is not <id>:<base64>, the id 1 to 32 of A-Z a-z 0-9 . _ -"
                )
            }
            guard let bytes = try? Base64.decode(String(parts[1])), bytes.count == 32 else {
                throw .badKeyRing("entry \(index + 1) does not hold 32 bytes in base64")
            }
            guard !keys.contains(where: { $0.id == parts[0] }) else {
                throw .badKeyRing("entry \(index + 1) repeats an id")
            }
            keys.append(Key(id: String(parts[0]), bytes: bytes))
        }
        self.keys = keys
    }

    /// The id of the key that seals.
    package var primaryKeyID: String { keys[0].id }

    /// The ids of all keys, the one that seals first.
    package var keyIDs: [String] { keys.map(\.id) }

    /// The prefix of all values sealed with the first key, and of no others.
    package var primaryHead: [UInt8] {
        [Self.version, UInt8(primaryKeyID.utf8.count)] + Array(primaryKeyID.utf8)
    }

    /// Encrypts under the first key.
    ///
    /// - Parameters:
    ///   - plaintext: At most 2³⁰ bytes.
    ///   - context: The kind and owner of the value, as `credential/shop/apns/com.example.shop`.
    /// - Returns: The sealed value, in the format of this type's comment.
    /// - Throws: `library`, if OpenSSL itself fails.
    package func seal(_ plaintext: [UInt8], context: String) throws(CryptographyError) -> [UInt8] {
        let key = keys[0]
        let head = [Self.version, UInt8(key.id.utf8.count)] + Array(key.id.utf8)
        let nonce = randomBytes(AESGCM.nonceByteCount)
        let (ciphertext, tag) = try AESGCM.encrypt(
            plaintext,
            key: key.bytes,
            nonce: nonce,
            authenticating: head + Array(context.utf8)
        )
        return head + nonce + ciphertext + tag
    }

    /// Decrypts a value of `seal`, with the key that it names.
    ///
    /// - Throws: `unknownKey`, or `notAuthentic` for everything else.
    package func open(_ sealed: [UInt8], context: String) throws(CryptographyError) -> [UInt8] {
        guard let id = Self.keyID(of: sealed) else { throw .notAuthentic }
        guard let key = keys.first(where: { $0.id == id }) else { throw .unknownKey(id) }
        let headEnd = 2 + Int(sealed[1])
        let nonceEnd = headEnd + AESGCM.nonceByteCount
        let tagStart = sealed.count - AESGCM.tagByteCount
        guard tagStart >= nonceEnd else { throw .notAuthentic }
        return try AESGCM.decrypt(
            Array(sealed[nonceEnd..<tagStart]),
            tag: Array(sealed[tagStart...]),
            key: key.bytes,
            nonce: Array(sealed[headEnd..<nonceEnd]),
            authenticating: sealed[..<headEnd] + Array(context.utf8)
        )
    }

    /// Returns marks by which equal messages are found. Without the keys they reveal nothing, while
    /// a plain digest of a short message could be found by trying.
    ///
    /// - Parameters:
    ///   - message: Of any length.
    ///   - context: The kind and owner of the message; marks differ between contexts.
    /// - Returns: Its marks under all keys, the sealing one first. Each is `1 ‖ length of the key's
    ///   id ‖ id ‖ HMAC-SHA256 (32)`.
    package func marks(of message: [UInt8], context: String) -> [[UInt8]] {
        let marked = sha256(Array(context.utf8)) + message
        return keys.map { key in
            // Marks use a derived key, as the key itself encrypts.
            let own = hmacSHA256(key: key.bytes, Array("carillon mark".utf8))
            let head = [Self.version, UInt8(key.id.utf8.count)] + Array(key.id.utf8)
            return head + hmacSHA256(key: own, marked)
        }
    }

    /// Returns the id of the key that sealed a value or made a mark; `nil` if the bytes are
    /// neither.
    package static func keyID(of sealed: [UInt8]) -> String? {
        guard sealed.count > 2, sealed[0] == version, 1...32 ~= sealed[1],
            sealed.count >= 2 + Int(sealed[1])
        else { return nil }
        let id = String(decoding: sealed[2..<2 + Int(sealed[1])], as: UTF8.self)
        return isID(id[...]) ? id : nil
    }

    private static func isID(_ text: Substring) -> Bool {
        1...32 ~= text.utf8.count
            && text.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "_"),
                    UInt8(ascii: "-"):
                    true
                default: false
                }
            }
    }
}
