import Apps
import Cryptography
import Gateway
import JSON
import PushCore
import Storage

/// A person who is signed in to one app. It is a sealed cookie, so every replica reads it, and
/// nothing is stored.
///
/// The cookie has the basis of the session: a mark of the master key, or the stamp of the login by
/// which an operator signed in. When the key is rotated and its grace period has ended, or the login
/// is removed or set again, the session ends.
struct Session: Sendable, Equatable {
    enum Basis: Sendable, Equatable {
        /// A mark of the app's master key.
        case key(String)
        /// The stamp of a login of operators.
        case login(String)
    }

    let app: String
    /// The name in the audit.
    let actor: String
    let role: Role
    /// The secret that each form of the session contains.
    let formToken: String
    let basis: Basis
    let expiresAt: Instant

    /// A working day.
    static let lifetimeMilliseconds: Int64 = 12 * 3_600_000

    /// Makes a new session of someone with the master key.
    init(of app: CachedApp, actor: String, role: Role, now: Instant) {
        let basis = Basis.key(Self.mark(of: app.masterKey))
        self.init(app.id, actor: actor, role: role, basis, now: now)
    }

    /// Makes a new session of an operator.
    init(of login: StoredConsoleLogin, actor: String, role: Role, now: Instant) {
        self.init(login.app, actor: actor, role: role, .login(login.stamp), now: now)
    }

    /// Makes a session with new secrets.
    private init(_ app: String, actor: String, role: Role, _ basis: Basis, now: Instant) {
        self.app = app
        self.actor = actor
        self.role = role
        formToken = Base64.encodeURL(randomBytes(24))
        self.basis = basis
        expiresAt = now.adding(milliseconds: Self.lifetimeMilliseconds)
    }

    /// The proof for the gateway: the app still has the key. An operator's login is looked up by
    /// `ConsoleOperators` before.
    var proof: Proof {
        Proof(.id(app), rights: .master) { [basis, actor] app, _ in
            switch basis {
            case .key(let mark):
                app.accepts(.master) { constantTimeEqual(Self.mark(of: $0), mark) }
                    ? .person(actor) : nil
            case .login: .person(actor)
            }
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
        var object: JSONObject = [
            "app": .string(session.app), "actor": .string(session.actor),
            "role": .string(session.role.rawValue), "form": .string(session.formToken),
            "until": .integer(session.expiresAt.milliseconds),
        ]
        switch session.basis {
        case .key(let mark): object["key"] = .string(mark)
        case .login(let stamp): object["login"] = .string(stamp)
        }
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
            let formToken = object["form"]?.string, let basis = Basis(object),
            let until = object["until"]?.integer
        else { return nil }
        self.app = app
        self.actor = actor
        self.role = role
        self.formToken = formToken
        self.basis = basis
        expiresAt = Instant(milliseconds: Int64(until))
    }
}

extension Session.Basis {
    fileprivate init?(_ object: JSONObject) {
        switch (object["key"]?.string, object["login"]?.string) {
        case (let mark?, nil): self = .key(mark)
        case (nil, let stamp?): self = .login(stamp)
        case (nil, nil), (_?, _?): return nil
        }
    }
}
