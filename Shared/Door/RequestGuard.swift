package import Apps
import EventLoop
package import HTTPServer
package import JSON
package import Observability
import PushCore
import PushStorage

/// Why a request is refused before anybody looks at what it asks.
package enum RequestRefusal: Error, Equatable {
    /// An unknown app, and a wrong key alike.
    case unauthorized
    case tooManyRequests(retryAfterSeconds: Int)
}

/// The door of one loop's surfaces: who may come in, how often, and what is written down of it.
///
/// Each surface answers through `answer`, and lets its callers in by `Visit.admit`. Refusals are
/// thrown as `RequestRefusal`, for the surface to tell in its own form. Confined to its loop.
package final class RequestGuard: @unchecked Sendable {
    private let apps: AppDirectory
    private let limits: RateLimits
    private let appLimits: AppLimits
    private let audit: AuditTrail
    private let refused: [Reason: Counter]
    private var addresses: TokenBuckets<NetworkAddress>?
    private var failures: FailureLimit?
    private var keys: TokenBuckets<String>?

    package static let masterKeyActor = "master-key"

    private enum Reason: String, CaseIterable {
        case address, failures, key, app, pushes
    }

    package init(
        _ apps: AppDirectory,
        _ limits: RateLimits,
        appLimits: AppLimits,
        audit: AuditTrail,
        metrics: Metrics
    ) {
        self.apps = apps
        self.limits = limits
        self.appLimits = appLimits
        self.audit = audit
        refused = Dictionary(
            uniqueKeysWithValues: Reason.allCases.map {
                ($0, metrics.counter(.requestsLimited, ["limit": $0.rawValue]))
            }
        )
        addresses = Self.buckets(limits.perAddress, limits)
        if limits.failuresPerAddress > 0 {
            failures = FailureLimit(
                perSecond: Double(limits.failuresPerAddress),
                burst: Double(limits.failuresPerAddress * limits.burstSeconds)
            )
        }
        keys = Self.buckets(limits.perKey, limits)
    }

    private static func buckets<Key>(_ rate: Int, _ limits: RateLimits) -> TokenBuckets<Key>? {
        guard rate > 0 else { return nil }
        return TokenBuckets(perSecond: Double(rate), burst: Double(rate * limits.burstSeconds))
    }

    /// Has a request answered, and writes down what was done with a master key.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - action: The method and the route's pattern, as the audit shows it where the surface does
    ///     not say better (`Visit.action`).
    ///   - handler: Lets the caller in by the visit, and answers; errors in the surface's own form.
    /// - Returns: Its answer.
    /// - Throws: What the handler throws.
    package func answer(
        _ request: HTTPServerRequest,
        as action: String,
        _ handler: (Visit) async throws -> HTTPServerResponse
    ) async rethrows -> HTTPServerResponse {
        let visit = Visit(request, at: self)
        var response: HTTPServerResponse
        do {
            response = try await handler(visit)
        } catch {
            // The router answers for what no surface can tell.
            await writeDown(visit, action, Self.targets(of: request, nil), status: 500)
            throw error
        }
        if response.status == 429, let seconds = visit.retryAfterSeconds {
            response.headers["retry-after"] = String(seconds)
        }
        await writeDown(
            visit,
            action,
            Self.targets(of: request, response),
            status: response.status
        )
        return response
    }

    private func writeDown(
        _ visit: Visit,
        _ action: String,
        _ targets: [String],
        status: Int
    ) async {
        guard let app = visit.masterOf, !visit.isWrittenDown else { return }
        await audit.record(
            AuditEntry(
                app: app,
                actor: Self.masterKeyActor,
                action: visit.action ?? action,
                targets: visit.targets.isEmpty ? targets : visit.targets,
                address: visit.address,
                status: status,
                detail: visit.items.json
            )
        )
    }

    /// What nobody has noted: the ids in the path, and of what was made the one in its location.
    private static func targets(
        of request: HTTPServerRequest,
        _ response: HTTPServerResponse?
    ) -> [String] {
        let parameters = request.pathParameters.sorted { $0.key < $1.key }
        let named = parameters.flatMap { name, value -> [String] in
            switch name {
            case "id": value.split(separator: ",").map(String.init)
            // All of a path of Parse's: its surface notes what is an id in it.
            case "hub", "rest": []
            default: [value]
            }
        }
        guard let response, response.status == 201, let location = response.headers["location"]
        else { return named }
        let made = location.prefix { $0 != "?" }.split(separator: "/").last ?? ""
        return named + [String(made)]
    }

    fileprivate func address(of request: HTTPServerRequest) -> NetworkAddress? {
        // A proxy may add a line of its own; the lines are one list, in their order.
        let lines = limits.trustedProxies.isEmpty ? [] : request.headers.all("x-forwarded-for")
        return limits.caller(
            peer: request.remoteAddress,
            forwardedFor: lines.isEmpty ? nil : lines.joined(separator: ",")
        )
    }

    /// Keys of fewer bytes could be found by trying, so beyond the limit of failures they are not
    /// looked at; a longer one that is right is let in from anywhere, however many others fail.
    private static let unguessableKeyBytes = 20

    fileprivate func admit(
        from address: NetworkAddress?,
        app name: AppName,
        rights: CallerRights,
        isProved: (String) -> Bool
    ) async throws -> AppAccess {
        let now = ContinuousClock.now
        let subscriber = address?.subscriber
        if let subscriber {
            try take(addresses?.take(subscriber, now: now), .address)
        }
        let over = subscriber.flatMap { failures?.look($0, now: now) }
        var found: AppAccess?
        if AppID.isWellFormed(name.text), await maySearch(name, subscriber, over, now) {
            found = try await apps.find(name)
        }
        let isAccepted = found?.accepts(rights) { key in
            let isRight = isProved(key)
            return isRight && (over == nil || key.utf8.count >= Self.unguessableKeyBytes)
        }
        guard let app = found, isAccepted == true else {
            try take(over, .failures)
            if let subscriber { failures?.failed(subscriber, now: now) }
            throw RequestRefusal.unauthorized
        }
        try countRequest(of: app, rights, now: now)
        return app
    }

    /// A body may be searched for credentials up to here wherever it comes from.
    private static let shortBodyBytes = 16 * 1024

    /// Beyond the limit of failures, no long body is searched for credentials: headers cost less.
    fileprivate func beforeSearching(_ bytes: Int, from address: NetworkAddress?) throws {
        guard bytes > Self.shortBodyBytes, let subscriber = address?.subscriber else { return }
        try take(failures?.look(subscriber, now: .now), .failures)
    }

    /// Counts a failure of who did not even say who he is.
    fileprivate func fail(from address: NetworkAddress?) throws {
        guard let subscriber = address?.subscriber else { return }
        let now = ContinuousClock.now
        try take(failures?.look(subscriber, now: now), .failures)
        failures?.failed(subscriber, now: now)
    }

    /// Beyond the limit of failures, what may be made up is looked for seldom.
    private func maySearch(
        _ name: AppName,
        _ subscriber: NetworkAddress?,
        _ over: Int?,
        _ now: ContinuousClock.Instant
    ) async -> Bool {
        guard over != nil, let subscriber else { return true }
        if await apps.remembers(name) { return true }
        return failures?.maySearch(subscriber, now: now) ?? true
    }

    /// Counts a request, or an item of a batch, against what its key may ask.
    fileprivate func countRequest(
        of app: AppAccess,
        _ rights: CallerRights,
        now: ContinuousClock.Instant = .now
    ) throws {
        let key = rights == .master ? app.id + "/master" : app.id + "/app"
        try take(keys?.take(key, now: now), .key)
        let limit = app.settings.maximumRequestsPerMinute
        try take(appLimits.take("requests " + key, limit: limit, now: now), .app)
    }

    fileprivate func countPush(of app: AppAccess) throws {
        let limit = app.settings.maximumPushesPerMinute
        try take(
            appLimits.take("pushes " + app.id, limit: limit, now: .now),
            .pushes
        )
    }

    private func take(_ wait: Int?, _ reason: Reason) throws {
        guard let wait else { return }
        refused[reason]?.add()
        throw RequestRefusal.tooManyRequests(retryAfterSeconds: wait)
    }
}

/// One request on its way through the door. Confined to its loop.
package final class Visit: @unchecked Sendable {
    private let door: RequestGuard
    private let from: NetworkAddress?
    /// Where it came from: the peer, or what a trusted proxy says.
    package let address: String
    /// Whether anybody still waits for the answer.
    package let presence: CallerPresence
    /// The audit has its entry already.
    package var isWrittenDown = false
    /// The method and the route's pattern that are meant, once the surface knows them: a form may
    /// stand for any method, and not each surface has a route of the server's for each of its own.
    package var action: String?
    fileprivate private(set) var items = BatchedActions()
    /// The app whose master key the caller has.
    fileprivate private(set) var masterOf: String?
    fileprivate private(set) var targets: [String] = []
    /// Set where it was refused as one too many; the answer gets it as its `Retry-After`.
    fileprivate private(set) var retryAfterSeconds: Int?

    fileprivate init(_ request: HTTPServerRequest, at door: RequestGuard) {
        self.door = door
        presence = request.caller
        from = door.address(of: request)
        address = from?.description ?? request.remoteAddress
    }

    /// Lets the caller in.
    ///
    /// - Parameters:
    ///   - app: What the request calls the app.
    ///   - rights: What its credentials ask for.
    ///   - isProved: Whether the caller has the key that it is given. It is called with every key
    ///     that is accepted, and must take the same time for each.
    /// - Returns: The app.
    /// - Throws: `RequestRefusal`; `StorageError` when the database cannot answer.
    package func admit(
        app: AppName,
        rights: CallerRights,
        isProved: (String) -> Bool
    ) async throws -> AppAccess {
        let access: AppAccess
        do {
            access = try await door.admit(
                from: from,
                app: app,
                rights: rights,
                isProved: isProved
            )
        } catch {
            throw remembered(error)
        }
        if rights == .master { masterOf = access.id }
        return access
    }

    /// Before a body is searched for the credentials that the headers lack.
    ///
    /// - Throws: `RequestRefusal.tooManyRequests` for a long one from where too many were wrong.
    package func beforeSearching(bytes: Int) throws {
        do { try door.beforeSearching(bytes, from: from) } catch { throw remembered(error) }
    }

    /// The answer to a request whose sender cannot be told; it counts as a failure.
    package func refusal() -> any Error {
        do { try door.fail(from: from) } catch { return remembered(error) }
        return RequestRefusal.unauthorized
    }

    /// Counts a call that sends a push against `pushes-per-minute`.
    ///
    /// - Throws: `RequestRefusal.tooManyRequests`.
    package func countPush(of app: AppAccess) throws {
        do { try door.countPush(of: app) } catch { throw remembered(error) }
    }

    /// Counts an item of a batch as a request of its own.
    ///
    /// - Throws: `RequestRefusal.tooManyRequests`.
    package func countItem(of app: AppAccess, _ rights: CallerRights) throws {
        do { try door.countRequest(of: app, rights) } catch { throw remembered(error) }
    }

    private func remembered(_ error: any Error) -> any Error {
        if case RequestRefusal.tooManyRequests(let seconds) = error { retryAfterSeconds = seconds }
        return error
    }

    /// Notes what the request is about, for the audit. Where nothing is noted, the path's ids are.
    package func note(_ target: String) {
        if targets.count < AuditEntry.maximumTargets { targets.append(target) }
    }

    /// Notes what an item of a batch asks for: its method and its route's pattern.
    package func noteItem(_ action: String) { items.add(action) }
}

/// What the items of a batch asked for, done or not, as the audit tells it: how many went each route.
package struct BatchedActions: Sendable {
    /// Of routes; there are fewer.
    package static let maximumActions = 100
    package static let others = "others"

    private var counts: [String: Int] = [:]

    package init() {}

    package mutating func add(_ action: String) {
        let isKept = counts[action] != nil || counts.count < Self.maximumActions
        counts[isKept ? action : Self.others, default: 0] += 1
    }

    /// Empty where there were none.
    package var json: JSONObject {
        guard !counts.isEmpty else { return [:] }
        let sorted = counts.sorted { $0.key < $1.key }
        return ["items": .object(JSONObject(sorted.map { ($0.key, JSONValue($0.value)) }))]
    }
}
