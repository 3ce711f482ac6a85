package import Apps
package import HTTPServer
package import PushCore
package import Storage

/// The context of one request: its address, its caller, and its audit entry. Confined to its loop.
package final class RequestContext: @unchecked Sendable {
    let limits: RequestLimits
    let from: NetworkAddress?
    private let peer: String
    /// The address of the request: the peer, or the client that a trusted proxy names.
    package var address: String { from?.description ?? peer }
    /// Tracks whether the client still waits for the response.
    package let presence: ClientPresence
    /// Whether the audit has the request's entry already.
    package var isAudited = false
    /// The method and the route's pattern, once the surface knows them. The server's route may not
    /// show them: a form may stand for any method, and one route of the server may serve several
    /// routes of a surface.
    package var action: String?
    private(set) var items = BatchedActions()
    /// The app and actor of the audit entry: master key, publisher or reader; `nil` if the call is
    /// not audited.
    var audited: (app: String, actor: String)?
    private(set) var targets: [String] = []
    /// Set if a rate limit refused the request; sent as `Retry-After`.
    private(set) var retryAfterSeconds: Int?
    private let startedAt = ContinuousClock.now
    /// Whether the request's credentials were refused, or could not be verified.
    private(set) var isRefused = false

    /// Refusals are sent at multiples of this time after the request's start. A cached app, an app
    /// that must be read and an unknown app take different times. If those times showed, the time
    /// of a 401 would reveal which apps exist.
    private static let refusalPeriod: Duration = .milliseconds(25)

    init(_ request: HTTPServerRequest, _ limits: RequestLimits) {
        self.limits = limits
        presence = request.caller
        from = limits.address(of: request)
        peer = request.remoteAddress
    }

    /// Authenticates and counts the caller.
    ///
    /// - Parameter proof: The surface's reading of the credentials.
    /// - Returns: The caller.
    /// - Throws: `Refusal`; `StorageError` if the database cannot answer.
    package func admit(_ proof: Proof) async throws -> Caller {
        let (app, credential): (CachedApp, AuthenticationMethod)
        do {
            (app, credential) = try await limits.admit(from: from, proof)
        } catch {
            isRefused = true
            throw notingRetryAfter(error)
        }
        return try admitted(proof, to: app, by: credential)
    }

    /// Authenticates the caller if that needs no waiting.
    ///
    /// - Returns: `nil` if the app must be read first; then nothing is counted.
    /// - Throws: `Refusal`.
    package func admitAtOnce(_ proof: Proof) throws -> Caller? {
        do {
            guard let (app, credential) = try limits.admitAtOnce(from: from, proof) else {
                return nil
            }
            return try admitted(proof, to: app, by: credential)
        } catch {
            isRefused = true
            throw notingRetryAfter(error)
        }
    }

    private func admitted(
        _ proof: Proof,
        to app: CachedApp,
        by credential: AuthenticationMethod
    ) throws -> Caller {
        switch credential {
        case .configToken(let name, _): audited = (app.id, "config-token:" + name)
        case .person(let name): audited = (app.id, name)
        case .key where proof.rights == .master: audited = (app.id, AuditTrail.masterKeyActor)
        case .key, .linkedKey: break
        }
        guard !proof.isTooOld(for: app) else { throw Refusal.signatureTooOld }
        return Caller(app: app, rights: proof.rights, credential: credential, context: self)
    }

    /// The identity of an anonymous caller: one address, or, for IPv6, one /64.
    package var subscriber: String { from?.subscriber.description ?? address }

    /// Checks the failure limit before a body is searched for credentials that the headers lack.
    ///
    /// - Throws: `Refusal.tooManyRequests` for a long body from an address with too many failures.
    package func requireBodySearchAllowed(bytes: Int) throws {
        do { try limits.requireBodySearchAllowed(bytes, from: from) } catch {
            throw notingRetryAfter(error)
        }
    }

    /// Returns the refusal of a request without a known sender; it counts as a failure.
    package func refusal() -> any Error {
        do { try limits.fail(from: from) } catch { return notingRetryAfter(error) }
        return Refusal.unauthorized
    }

    /// Counts a call that sends a push against `pushes-per-minute`.
    ///
    /// - Throws: `Refusal.tooManyRequests`.
    func countPush(of app: CachedApp) throws {
        do { try limits.countPush(of: app) } catch { throw notingRetryAfter(error) }
    }

    /// Counts an item of a batch as a request of its own.
    ///
    /// - Throws: `Refusal.tooManyRequests`.
    func countItem(of app: CachedApp, _ rights: CallerRights) throws {
        do { try limits.countRequest(of: app, rights) } catch { throw notingRetryAfter(error) }
    }

    /// Returns how long the response to a refused request has to wait.
    func untilRefusal(at now: ContinuousClock.Instant = .now) -> Duration {
        let elapsed = now - startedAt
        let periods = (elapsed / Self.refusalPeriod).rounded(.down) + 1
        return Self.refusalPeriod * periods - elapsed
    }

    func notingRetryAfter(_ error: any Error) -> any Error {
        if case Refusal.tooManyRequests(let seconds) = error { retryAfterSeconds = seconds }
        return error
    }

    /// Records a target of the request, for the audit. If no target is recorded, the audit gets the
    /// ids in the path.
    package func note(_ target: String) {
        if targets.count < AuditEntry.maximumTargets { targets.append(target) }
    }

    /// Records the action of a batch item: its method and its route's pattern.
    package func noteItem(_ action: String) { items.add(action) }
}

/// An authenticated caller: an app, and the rights of its key.
package struct Caller: Sendable {
    package let app: CachedApp
    package let rights: CallerRights
    /// The credential that authenticated the caller.
    package let credential: AuthenticationMethod
    /// The context of the request.
    package var context: RequestContext?

    package init(
        app: CachedApp,
        rights: CallerRights,
        credential: AuthenticationMethod = .key,
        context: RequestContext? = nil
    ) {
        self.app = app
        self.rights = rights
        self.credential = credential
        self.context = context
    }

    package var appID: String { app.id }
    /// The app's settings, as its owner has set them.
    package var settings: AppSettings { app.settings }
    /// The Firebase projects that are linked to the app, by their ids and numbers.
    package var projectNames: [String] {
        app.links.compactMap { $0.kind == .fcmProject ? $0.name : nil }
    }
    /// The valid version of the app's field types.
    package var fieldsVersion: FieldsVersion { app.fieldsVersion }
    package var isMaster: Bool { rights == .master }
    /// The master key, for callers that have it anyway.
    package var masterKey: String? { isMaster ? app.masterKey : nil }

    package var mayFind: Bool { isMaster || app.settings.clientsMayFind }
    package var mayDelete: Bool { isMaster || app.settings.clientsMayDelete }
    package var mayPush: Bool { isMaster || app.settings.clientsMayPush }
    /// Whether devices get the ids of the app's pushes: the setting `receipts`.
    package var includesPushIDs: Bool { app.settings.sendsPushIDs }

    /// Counts a call that sends a push against `pushes-per-minute`.
    ///
    /// - Throws: `Refusal.tooManyRequests`.
    package func countPush() throws { try context?.countPush(of: app) }

    /// Counts an item of a batch as a request of its own.
    ///
    /// - Throws: `Refusal.tooManyRequests`.
    package func countItem() throws { try context?.countItem(of: app, rights) }
}
