import Cryptography
import HTTPServer
import JSON
import PushCore
import SyncStorage
import Testing

@testable import Registration

@Suite("Cognito's tokens and names", .timeLimit(.minutes(1)))
struct CognitoTests {
    private static let owner = SyncIdentity(pool: "p:1", app: "shop", identity: "p:2")
    private let dataset = SyncDatasetName(owner, "notes")
    private let now = Instant(milliseconds: 1_700_000_000_000)

    private static func tokens(_ ids: String...) throws -> CognitoTokens {
        let key = Base64.encode([UInt8](repeating: 7, count: 32))
        let other = Base64.encode([UInt8](repeating: 9, count: 32))
        return CognitoTokens(
            keys: try KeyRing(ids.map { "\($0):\($0 == "b" ? other : key)" }.joined(separator: ","))
        )
    }

    @Test("A session's token serves its own dataset for an hour, on every replica with the keys")
    func sessions() throws {
        let token = try Self.tokens("a").session(of: dataset, at: now)
        try Self.tokens("a").checkSession(token, of: dataset, at: now)
        let soon = now.adding(.seconds(3599))
        try Self.tokens("b", "a").checkSession(token, of: dataset, at: soon)
        #expect(throws: CognitoError.self) {
            try Self.tokens("a").checkSession(token, of: dataset, at: now.adding(.seconds(3600)))
        }
        #expect(throws: CognitoError.self) {
            try Self.tokens("b").checkSession(token, of: dataset, at: now)
        }
        let stranger = SyncIdentity(pool: "p:1", app: "shop", identity: "p:3")
        for other in [SyncDatasetName(Self.owner, "note"), SyncDatasetName(stranger, "notes")] {
            #expect(throws: CognitoError.self) {
                try Self.tokens("a").checkSession(token, of: other, at: now)
            }
        }
    }

    @Test("A missing token, or one with any changed character, is refused")
    func altered() throws {
        let tokens = try Self.tokens("a")
        let token = tokens.session(of: dataset, at: now)
        for index in token.indices {
            var altered = token
            altered.replaceSubrange(index...index, with: altered[index] == "A" ? "B" : "A")
            #expect(throws: CognitoError.self) {
                try tokens.checkSession(altered, of: dataset, at: now)
            }
        }
        for text in [nil, "", "A", "////", String(repeating: "A", count: 20_000)] {
            #expect(throws: CognitoError.self) {
                try tokens.checkSession(text, of: dataset, at: now)
            }
        }
    }

    @Test("A page token is not valid for a session, nor for another list")
    func pages() throws {
        let tokens = try Self.tokens("a")
        let cursor = SyncCursor(syncCount: 7, key: "ключ")
        let token = tokens.page(cursor, of: dataset)
        #expect(try tokens.cursor(token, of: dataset) == cursor)
        #expect(throws: CognitoError.self) {
            try tokens.checkSession(token, of: dataset, at: now)
        }
        let list = tokens.page(after: "notes", of: ["shop", "p:1"])
        #expect(try tokens.name(list, of: ["shop", "p:1"]) == "notes")
        #expect(throws: CognitoError.self) { try tokens.name(list, of: ["shop", "p:2"]) }
        #expect(throws: CognitoError.self) { try tokens.name(token, of: ["shop", "p:1"]) }
    }

    @Test("Names of applications and roles follow the service's model")
    func names() {
        for name in ["arn:aws:sns:us-east-1:1:app/APNS_SANDBOX/com.example-x_1"] {
            #expect(AWSName.isApplication(name))
        }
        for name in [
            "", "arn:aws:sns:us-east-1:1:app/apns/x", "arn:aws:sns:us-east-1::app/GCM/x",
            "arn:aws:sns:us-east-1:1:app/GCM", "arn:aws:sqs:us-east-1:1:app/GCM/x",
            "arn:aws:sns:us_east:1:app/GCM/x", "arn:aws:sns:us-east-1:1:app/GCM/x/y",
        ] {
            #expect(!AWSName.isApplication(name), "\(name)")
        }
        #expect(AWSName.isRole("arn:aws:iam::123456789012:role/a/b"))
        for name in ["arn:aws:iam::1:role", "arn:aws:iam:us:123456789012:role/a", "role"] {
            #expect(!AWSName.isRole(name), "\(name)")
        }
    }

    @Test(
        "A device's id depends on its pool, identity, platform and token, but not the token's case"
    )
    func devices() throws {
        func id(_ identity: String, _ platform: SyncPlatform, _ token: String) throws -> String {
            let owner = SyncIdentity(pool: "p:1", app: "shop", identity: identity)
            return try SyncDevice(owner: owner, platform: platform, token: token).id
        }
        let one = try id("p:2", .apns, "ABCD")
        #expect(try id("p:2", .apns, "abcd") == one)
        #expect(try id("p:2", .apnsSandbox, "abcd") != one)
        #expect(try id("p:3", .apns, "abcd") != one)
        #expect(try id("p:2", .gcm, "abcd") != id("p:2", .gcm, "ABCD"))
        #expect(throws: CognitoError.self) { try id("p:2", .apns, "a b") }
        #expect(throws: CognitoError.self) { try id("p:2", .adm, "") }
    }
}
