import Apps
package import PushCore

/// Which app a caller names, what he asks to be, and how it shows that he has the key: what the door
/// needs to know of him. Each surface makes one from credentials of its own form.
package struct Proof: Sendable {
    let app: AppName
    package let rights: CallerRights
    private let isProved: @Sendable (String) -> Bool
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
        self.isProved = isProved
        self.isTooOld = isTooOld
    }

    /// Whether it shows that its sender has the key. In the same time for each.
    func shows(_ key: String) -> Bool { isProved(key) }

    /// Whether the app, of all ages, takes this one no more.
    func isTooOld(for app: AppAccess) -> Bool {
        isTooOld(app.settings.signatureMaxAgeSeconds, .now())
    }
}
