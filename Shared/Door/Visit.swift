package import Apps
package import HTTPServer
package import PushCore
package import PushStorage

/// One request on its way through the door. Confined to its loop.
package final class Visit: @unchecked Sendable {
    let limits: RequestLimits
    let from: NetworkAddress?
    private let peer: String
    /// Where it came from: the peer, or what a trusted proxy says.
    package var address: String { from?.description ?? peer }
    /// Whether anybody still waits for the answer.
    package let presence: CallerPresence
    /// The audit has its entry already.
    package var isWrittenDown = false
    /// The method and the route's pattern that are meant, once the surface knows them: a form may
    /// stand for any method, and not each surface has a route of the server's for each of its own.
    package var action: String?
    private(set) var items = BatchedActions()
    /// Whose call it is that the audit keeps: by the app's master key, what publishes for it, or who
    /// reads what is kept for him alone.
    var audited: (app: String, actor: String)?
    private(set) var targets: [String] = []
    /// Set where it was refused as one too many; the answer gets it as its `Retry-After`.
    private(set) var retryAfterSeconds: Int?
    private let startedAt = ContinuousClock.now
    /// Its credentials were refused, or could not be judged.
    private(set) var isRefused = false

    /// Refusals are answered at multiples of this time after their start. An app that is remembered, one
    /// that has to be read and one that does not exist cost different times; unless those were hidden,
    /// the time of a 401 would tell which apps there are.
    private static let refusalPeriod: Duration = .milliseconds(25)

    init(_ request: HTTPServerRequest, _ limits: RequestLimits) {
        self.limits = limits
        presence = request.caller
        from = limits.address(of: request)
        peer = request.remoteAddress
    }

    /// Lets the caller in.
    ///
    /// - Parameter proof: What the surface reads of him.
    /// - Returns: Who he is.
    /// - Throws: `Refusal`; `StorageError` when the database cannot answer.
    package func admit(_ proof: Proof) async throws -> Caller {
        let (app, credential): (AppAccess, Credential)
        do {
            (app, credential) = try await limits.admit(from: from, proof)
        } catch {
            isRefused = true
            throw remembered(error)
        }
        return try admitted(proof, to: app, by: credential)
    }

    /// The same where it takes no waiting.
    ///
    /// - Returns: `nil` where the app has to be read first; then nothing is counted.
    /// - Throws: `Refusal`.
    package func admitAtOnce(_ proof: Proof) throws -> Caller? {
        do {
            guard let (app, credential) = try limits.admitAtOnce(from: from, proof) else {
                return nil
            }
            return try admitted(proof, to: app, by: credential)
        } catch {
            isRefused = true
            throw remembered(error)
        }
    }

    private func admitted(
        _ proof: Proof,
        to app: AppAccess,
        by credential: Credential
    ) throws -> Caller {
        switch credential {
        case .configToken(let name, _): audited = (app.id, "config-token:" + name)
        case .key where proof.rights == .master: audited = (app.id, AuditTrail.masterKeyActor)
        case .key, .linkedKey: break
        }
        guard !proof.isTooOld(for: app) else { throw Refusal.signatureTooOld }
        return Caller(app: app, rights: proof.rights, credential: credential, visit: self)
    }

    /// What stands for a caller who has no name: all from one address, or, of IPv6, one /64.
    package var subscriber: String { from?.subscriber.description ?? address }

    /// Before a body is searched for the credentials that the headers lack.
    ///
    /// - Throws: `Refusal.tooManyRequests` for a long one from where too many were wrong.
    package func beforeSearching(bytes: Int) throws {
        do { try limits.beforeSearching(bytes, from: from) } catch { throw remembered(error) }
    }

    /// The answer to a request whose sender cannot be told; it counts as a failure.
    package func refusal() -> any Error {
        do { try limits.fail(from: from) } catch { return remembered(error) }
        return Refusal.unauthorized
    }

    /// Counts a call that sends a push against `pushes-per-minute`.
    ///
    /// - Throws: `Refusal.tooManyRequests`.
    func countPush(of app: AppAccess) throws {
        do { try limits.countPush(of: app) } catch { throw remembered(error) }
    }

    /// Counts an item of a batch as a request of its own.
    ///
    /// - Throws: `Refusal.tooManyRequests`.
    func countItem(of app: AppAccess, _ rights: CallerRights) throws {
        do { try limits.countRequest(of: app, rights) } catch { throw remembered(error) }
    }

    /// How long the answer to a refused request has to wait.
    func untilRefusal(at now: ContinuousClock.Instant = .now) -> Duration {
        let elapsed = now - startedAt
        let periods = (elapsed / Self.refusalPeriod).rounded(.down) + 1
        return Self.refusalPeriod * periods - elapsed
    }

    func remembered(_ error: any Error) -> any Error {
        if case Refusal.tooManyRequests(let seconds) = error { retryAfterSeconds = seconds }
        return error
    }

    /// Notes what the request is about, for the audit. Where nothing is noted, the path's ids are.
    package func note(_ target: String) {
        if targets.count < AuditEntry.maximumTargets { targets.append(target) }
    }

    /// Notes what an item of a batch asks for: its method and its route's pattern.
    package func noteItem(_ action: String) { items.add(action) }
}

/// Who called: an app, and what its key lets the caller do.
package struct Caller: Sendable {
    package let app: AppAccess
    package let rights: CallerRights
    /// What let him in.
    package let credential: Credential
    /// The request that the caller came by.
    package var visit: Visit?

    package init(
        app: AppAccess,
        rights: CallerRights,
        credential: Credential = .key,
        visit: Visit? = nil
    ) {
        self.app = app
        self.rights = rights
        self.credential = credential
        self.visit = visit
    }

    package var appID: String { app.id }
    /// What the app's owner has set.
    package var settings: AppSettings { app.settings }
    /// The Firebase projects that are linked to the app, by their ids and numbers.
    package var projectNames: [String] {
        app.links.compactMap { $0.kind == .fcmProject ? $0.name : nil }
    }
    /// Which state of its fields' types counts.
    package var fieldsVersion: FieldsVersion { app.fieldsVersion }
    package var isMaster: Bool { rights == .master }
    /// For who has it anyway.
    package var masterKey: String? { isMaster ? app.masterKey : nil }

    package var mayFind: Bool { isMaster || app.settings.clientsMayFind }
    package var mayDelete: Bool { isMaster || app.settings.clientsMayDelete }
    package var mayPush: Bool { isMaster || app.settings.clientsMayPush }
    /// `receipts`: whether devices are told the ids of the app's pushes.
    package var tellsPushIDs: Bool { app.settings.sendsPushIDs }

    /// Counts a call that sends a push against `pushes-per-minute`.
    ///
    /// - Throws: `Refusal.tooManyRequests`.
    package func countPush() throws { try visit?.countPush(of: app) }

    /// Counts an item of a batch as a request of its own.
    ///
    /// - Throws: `Refusal.tooManyRequests`.
    package func countItem() throws { try visit?.countItem(of: app, rights) }
}
