import Cryptography
import JSON
import PushCore
import SyncStorage

/// Tokens that clients send back: for a session, and for the next page of a list. They are not
/// stored. A key that all replicas derive from the key ring authenticates them, each for its owner
/// only.
struct CognitoTokens: Sendable {
    let keys: KeyRing

    private static let sessionLifetime = Duration.seconds(3600)
    private static let maximumBytes = 8192

    // MARK: Sessions

    func session(of dataset: SyncDatasetName, at now: Instant) -> String {
        make(
            [
                "e": .integer(now.adding(Self.sessionLifetime).milliseconds),
                "s": .string(Hex.encode(randomBytes(8))),
            ],
            Self.context("session", dataset)
        )
    }

    /// - Throws: `CognitoError` if the token is not of this dataset, or has expired.
    func checkSession(
        _ token: String?,
        of dataset: SyncDatasetName,
        at now: Instant
    ) throws(CognitoError) {
        guard let token, let content = open(token, Self.context("session", dataset)),
            let end = content["e"]?.integer, Int64(end) > now.milliseconds
        else { throw .invalid("SyncSessionToken not valid for these inputs") }
    }

    // MARK: Pages

    func page(_ cursor: SyncCursor, of dataset: SyncDatasetName) -> String {
        make(
            ["c": .integer(Int64(cursor.syncCount)), "k": .string(cursor.key)],
            Self.context("records", dataset)
        )
    }

    func cursor(_ token: String, of dataset: SyncDatasetName) throws(CognitoError) -> SyncCursor {
        guard let content = open(token, Self.context("records", dataset)),
            let count = content["c"]?.integer, let key = content["k"]?.string
        else { throw Self.badPage }
        return SyncCursor(syncCount: count, key: key)
    }

    /// Returns the token of the page that follows `name` in a list of names.
    func page(after name: String, of list: [String]) -> String {
        make(["n": .string(name)], Self.context(["list"] + list))
    }

    func name(_ token: String, of list: [String]) throws(CognitoError) -> String {
        guard let name = open(token, Self.context(["list"] + list))?["n"]?.string else {
            throw Self.badPage
        }
        return name
    }

    private static let badPage = CognitoError.invalid("nextToken is invalid")

    // MARK: Form

    private static func context(_ kind: String, _ dataset: SyncDatasetName) -> String {
        let owner = dataset.owner
        return context([kind, owner.app, owner.pool, owner.identity, dataset.name])
    }

    /// Joins parts by slashes, which they do not contain.
    private static func context(_ parts: [String]) -> String {
        "sync/" + parts.joined(separator: "/")
    }

    private func make(_ content: JSONObject, _ context: String) -> String {
        let bytes = content.bytes
        let mark = keys.marks(of: bytes, context: context)[0]
        return Base64.encodeURL([UInt8(mark.count)] + mark + bytes)
    }

    private func open(_ token: String, _ context: String) -> JSONObject? {
        guard token.utf8.count <= Self.maximumBytes, let bytes = try? Base64.decodeURL(token),
            let length = bytes.first, bytes.count > 1 + Int(length)
        else { return nil }
        let mark = Array(bytes[1..<1 + Int(length)])
        let content = Array(bytes[(1 + Int(length))...])
        let isOurs = keys.marks(of: content, context: context).reduce(false) { known, expected in
            constantTimeEqual(mark, expected) || known
        }
        guard isOurs else { return nil }
        return try? JSONValue.parse(content).object
    }
}
