package import Apps
package import PushCore
import PushStorage

/// What let a caller in.
package enum Credential: Sendable, Equatable {
    /// One of the app's two keys, or what is signed with it.
    case key
    /// It publishes the app's remote config, or only reads it.
    case configToken(name: String, isReadOnly: Bool)
    /// A key of the app's clients elsewhere: it lets them fetch, and nothing else.
    case linkedKey
}

/// Which app a caller names, what he asks to be, and how it shows that he has the key: what the door
/// needs to know of him. Each surface makes one from credentials of its own form.
package struct Proof: Sendable {
    let app: AppName
    package let rights: CallerRights
    private let shown: @Sendable (AppAccess, _ minimumKeyBytes: Int) -> Credential?
    private let isTooOld: @Sendable (_ maximumSeconds: Int, _ now: Instant) -> Bool

    /// - Parameters:
    ///   - app: What the request calls the app.
    ///   - anyCase: Whether it may be written in another case than the app's id.
    ///   - rights: What its credentials ask for.
    ///   - isTooOld: Whether they were made more than so many seconds ago; 0: of any time. What has
    ///     no age is never too old.
    ///   - isProved: Whether the caller has the key that it is given. It is called with every key
    ///     that is accepted, and must take the same time for each.
    package init(
        app: String,
        anyCase: Bool = false,
        rights: CallerRights,
        isTooOld: @escaping @Sendable (_ maximumSeconds: Int, _ now: Instant) -> Bool = { _, _ in
            false
        },
        isProved: @escaping @Sendable (_ key: String) -> Bool
    ) {
        self.app = anyCase ? .folded(app) : .id(app)
        self.rights = rights
        self.isTooOld = isTooOld
        shown = { app, minimumKeyBytes in
            app.accepts(
                rights == .master ? .master : .app,
                ofBytes: minimumKeyBytes,
                isProved
            ) ? .key : nil
        }
    }

    /// By something else than the app's keys.
    ///
    /// - Parameters:
    ///   - app: What the request calls the app.
    ///   - rights: What the credentials ask for.
    ///   - shown: What of the app's they are; keys of fewer bytes than it is given do not count. It
    ///     must take the same time for each that could be meant.
    package init(
        _ app: AppName,
        rights: CallerRights,
        shown: @escaping @Sendable (AppAccess, _ minimumKeyBytes: Int) -> Credential?
    ) {
        self.app = app
        self.rights = rights
        self.shown = shown
        isTooOld = { _, _ in false }
    }

    /// The same proof, of a caller whose path names the app by a project as well.
    func about(project: String) -> Proof {
        Proof(naming: .project(project), in: self)
    }

    private init(naming name: AppName, in proof: Proof) {
        app = name
        rights = proof.rights
        isTooOld = proof.isTooOld
        shown = { app, minimumKeyBytes in
            app.id == proof.app.text ? proof.shown(app, minimumKeyBytes) : nil
        }
    }

    /// What it shows that its sender has.
    func credential(for app: AppAccess, minimumKeyBytes: Int) -> Credential? {
        shown(app, minimumKeyBytes)
    }

    /// Whether the app, of all ages, takes this one no more.
    func isTooOld(for app: AppAccess) -> Bool {
        isTooOld(app.settings.signatureMaxAgeSeconds, .now())
    }
}
