package import Apps
package import PushCore
import Storage

/// The credential that authenticated a caller.
package enum AuthenticationMethod: Sendable, Equatable {
    /// One of the app's two keys, or a signature made with it.
    case key
    /// A token that publishes the app's remote config, or only reads it.
    case configToken(name: String, isReadOnly: Bool)
    /// A linked client key of another platform: it allows fetching, and nothing else.
    case linkedKey
    /// A session of the console, of a person with this name in the audit.
    case person(String)
}

/// The named app, the requested rights, and the proof of the key: the input of the gateway's
/// authentication. Each surface makes a proof from credentials of its own form.
package struct Proof: Sendable {
    let app: AppName
    package let rights: CallerRights
    private let shown: @Sendable (CachedApp, _ minimumKeyBytes: Int) -> AuthenticationMethod?
    private let isTooOld: @Sendable (_ maximumSeconds: Int, _ now: Instant) -> Bool

    /// - Parameters:
    ///   - app: The request's name of the app.
    ///   - anyCase: Whether the name's case may differ from the app's id.
    ///   - rights: The rights that the credentials request.
    ///   - isTooOld: Whether the credentials were made more than the given seconds ago; 0: any age
    ///     is accepted. Credentials without an age are never too old.
    ///   - isProved: Whether the caller has the given key. It is called with every accepted key,
    ///     and must take the same time for each.
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

    /// Makes a proof by something other than the app's keys.
    ///
    /// - Parameters:
    ///   - app: The request's name of the app.
    ///   - rights: The rights that the credentials request.
    ///   - shown: Returns the matching credential of the app; keys shorter than the given number of
    ///     bytes do not count. It must take the same time for each candidate.
    package init(
        _ app: AppName,
        rights: CallerRights,
        shown: @escaping @Sendable (CachedApp, _ minimumKeyBytes: Int) -> AuthenticationMethod?
    ) {
        self.app = app
        self.rights = rights
        self.shown = shown
        isTooOld = { _, _ in false }
    }

    /// Returns the same proof, for a caller whose path also names the app by a project.
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

    /// Returns the credential that the proof shows.
    func credential(for app: CachedApp, minimumKeyBytes: Int) -> AuthenticationMethod? {
        shown(app, minimumKeyBytes)
    }

    /// Whether the proof exceeds the app's maximum age.
    func isTooOld(for app: CachedApp) -> Bool {
        isTooOld(app.settings.signatureMaxAgeSeconds, .now())
    }
}
