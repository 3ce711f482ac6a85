import Apps
import Cryptography
import Gateway
import JSON
import PushCore
import Storage

/// A person who is signed in to one app. It is a sealed cookie, so every replica reads it, and
/// nothing is stored.
///
/// The cookie names the master key under which it was made, by a mark of the key: when the key is
/// rotated and its grace period has ended, the session ends.
struct Session: Sendable, Equatable {
    let app: String
    /// The name in the audit.
    let actor: String
    let role: Role
    /// The secret that each form of the session contains.
    let formToken: String
    let keyMark: String
    let expiresAt: Instant

    /// A working day.
    static let lifetimeMilliseconds: Int64 = 12 * 3_600_000

    /// Makes a new session, with new secrets.
    init(of app: CachedApp, actor: String, role: Role, now: Instant) {
        self.app = app.id
        self.actor = actor
        self.role = role
        formToken = Base64.encodeURL(randomBytes(24))
        keyMark = Self.mark(of: app.masterKey)
        expiresAt = now.adding(milliseconds: Self.lifetimeMilliseconds)
    }

    /// The proof for the gateway: the app still has the key.
    var proof: Proof {
        Proof(.id(app), rights: .master) { [keyMark, actor] app, _ in
            app.accepts(.master) { constantTimeEqual(Self.mark(of: $0), keyMark) }
                ? .person(actor) : nil
        }
    }

    /// Whether a form's token is this session's.
    func accepts(_ token: String?) -> Bool { constantTimeEqual(token ?? "", formToken) }

    private static func mark(of key: String) -> String {
        Hex.encode(Array(sha256(Array("console session of \(key)".utf8)).prefix(16)))
    }
}

/// Seals sessions into cookies and opens them.
struct Sessions: Sendable {
    let keys: KeyRing

    init(_ keys: KeyRing) { self.keys = keys }

    private static let context = "console/session"
    /// A sealed session has some 300 bytes.
    private static let maximumBytes = 4096

    func sealed(_ session: Session) throws -> String {
        let object: JSONObject = [
            "app": .string(session.app), "actor": .string(session.actor),
            "role": .string(session.role.rawValue), "form": .string(session.formToken),
            "key": .string(session.keyMark),
            "until": .integer(session.expiresAt.milliseconds),
        ]
        return Base64.encodeURL(
            try keys.seal(JSONValue.object(object).bytes, context: Self.context)
        )
    }

    /// - Returns: `nil` for a cookie that is not ours, is altered, or has expired.
    func open(_ cookie: String, now: Instant) -> Session? {
        guard cookie.utf8.count <= Self.maximumBytes,
            let bytes = try? Base64.decodeURL(cookie),
            let plain = try? keys.open(bytes, context: Self.context),
            let object = (try? JSONValue.parse(plain))?.object,
            let session = Session(object), session.expiresAt > now
        else { return nil }
        return session
    }
}

extension Session {
    fileprivate init?(_ object: JSONObject) {
        guard let app = object["app"]?.string, let actor = object["actor"]?.string,
            let role = object["role"]?.string.flatMap(Role.init(rawValue:)),
            let formToken = object["form"]?.string, let keyMark = object["key"]?.string,
            let until = object["until"]?.integer
        else { return nil }
        self.app = app
        self.actor = actor
        self.role = role
        self.formToken = formToken
        self.keyMark = keyMark
        expiresAt = Instant(milliseconds: Int64(until))
    }
}
