package import Apps
package import PushCore

/// Apps as they are now, for connections that outlive the request that opened them. Confined to its
/// loop.
package struct KnownApps: Sendable {
    private let limits: RequestLimits

    init(_ limits: RequestLimits) { self.limits = limits }

    /// Finds an app that an earlier request has named.
    ///
    /// - Returns: `nil` if the app was deleted.
    /// - Throws: `StorageError` if the app is not cached, and the database cannot answer.
    package func caller(ofApp id: String) async throws -> Caller? {
        try await limits.apps.find(.id(id)).map { Caller(app: $0, rights: .client) }
    }
}

/// Requests that prove nothing and leave no audit entry, because every device of an app sends them.
extension RequestContext {
    /// Finds the app of such a request. An unknown app counts as a failure of the address.
    ///
    /// - Returns: `nil` if there is no such app.
    /// - Throws: `Refusal.tooManyRequests`.
    package func publicApp(_ name: AppName) async throws -> Caller? {
        try countArrival()
        if let app = try await limits.find(name, from: from) {
            return Caller(app: app, rights: .client, context: self)
        }
        do { try limits.fail(from: from) } catch { throw notingRetryAfter(error) }
        return nil
    }

    /// Returns the settings of the app that such a request names.
    ///
    /// - Returns: `nil` if there is no such app.
    /// - Throws: `Refusal.tooManyRequests`.
    package func publicSettings(ofApp id: String) async throws -> AppSettings? {
        try await publicApp(.id(id))?.settings
    }

    package var knownApps: KnownApps { KnownApps(limits) }

    /// Gives the request an audit entry.
    package func audit(_ caller: Caller, as actor: String, target: String) {
        audited = (caller.appID, actor)
        note(target)
    }
}
