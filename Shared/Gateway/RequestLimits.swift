package import Apps
import HTTPServer
package import Observability
import PushCore

/// Counts the requests of one loop by address and by key, and the failures of each address, and
/// authenticates the callers. Confined to its loop.
package final class RequestLimits: @unchecked Sendable {
    let apps: AppCache
    private let limits: RateLimits
    let appLimits: AppLimits
    private let refused: [Reason: Counter]
    var addresses: TokenBuckets<NetworkAddress>?
    var failures: FailureLimit?
    private var keys: TokenBuckets<String>?

    enum Reason: String, CaseIterable {
        case address, failures, key, app, pushes
    }

    package init(
        _ apps: AppCache,
        _ limits: RateLimits,
        appLimits: AppLimits,
        metrics: Metrics
    ) {
        self.apps = apps
        self.limits = limits
        self.appLimits = appLimits
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

    func address(of request: HTTPServerRequest) -> NetworkAddress? {
        guard limits.trustedProxies.isEmpty else {
            // Each proxy may add a header line; the lines form one list, in their order.
            let lines = request.headers.all("x-forwarded-for")
            return limits.caller(
                peer: request.remoteAddress,
                forwardedFor: lines.isEmpty ? nil : lines.joined(separator: ",")
            )
        }
        if let known = peers[request.remoteAddress] { return known }
        let address = NetworkAddress(request.remoteAddress)
        if peers.count >= Self.maximumPeers { peers = [:] }
        peers[request.remoteAddress] = .some(address)
        return address
    }

    /// A cache of parsed addresses, as most come again on the same connection. The strings come
    /// from the kernel.
    private var peers: [String: NetworkAddress?] = [:]
    private static let maximumPeers = 4096

    /// Shorter keys could be guessed, so beyond the failure limit they are ignored; a longer valid
    /// key is accepted from any address, however many other requests fail.
    static let unguessableKeyBytes = 20

    func admit(
        from address: NetworkAddress?,
        _ proof: Proof
    ) async throws -> (app: CachedApp, by: AuthenticationMethod) {
        if let known = try admitAtOnce(from: address, proof) { return known }
        let now = ContinuousClock.now
        let subscriber = address?.subscriber
        let over = try countAddress(subscriber, now)
        var found: CachedApp?
        if proof.app.isWellFormed, await maySearch(proof.app, subscriber, over, now) {
            found = try await apps.find(proof.app)
        }
        return try admit(proof, to: found, subscriber, over, now)
    }

    /// Authenticates a caller if the app is cached, so that it needs no waiting.
    ///
    /// - Returns: `nil` if the app is not cached; then nothing is counted.
    func admitAtOnce(
        from address: NetworkAddress?,
        _ proof: Proof
    ) throws -> (app: CachedApp, by: AuthenticationMethod)? {
        guard proof.app.isWellFormed, let app = apps.remembered(proof.app) else { return nil }
        let now = ContinuousClock.now
        let subscriber = address?.subscriber
        let over = try countAddress(subscriber, now)
        return try admit(proof, to: app, subscriber, over, now)
    }

    /// - Returns: `nil`, or the seconds to wait if the address had too many failures.
    private func countAddress(
        _ subscriber: NetworkAddress?,
        _ now: ContinuousClock.Instant
    ) throws -> Int? {
        guard let subscriber else { return nil }
        try take(addresses?.take(subscriber, now: now), .address)
        return failures?.look(subscriber, now: now)
    }

    private func admit(
        _ proof: Proof,
        to found: CachedApp?,
        _ subscriber: NetworkAddress?,
        _ over: Int?,
        _ now: ContinuousClock.Instant
    ) throws -> (app: CachedApp, by: AuthenticationMethod) {
        let credential = found.flatMap { app in
            proof.credential(
                for: app,
                minimumKeyBytes: over == nil ? 0 : Self.unguessableKeyBytes
            )
        }
        guard let app = found, let credential else {
            try take(over, .failures)
            if let subscriber { failures?.failed(subscriber, now: now) }
            throw Refusal.unauthorized
        }
        try countRequest(of: app, proof.rights, now: now)
        return (app, credential)
    }

    /// The size up to which any body may be searched for credentials.
    private static let shortBodyBytes = 16 * 1024

    /// Checks whether a body may be searched for credentials. Beyond the failure limit long bodies
    /// are not searched, as headers cost less.
    func requireBodySearchAllowed(_ bytes: Int, from address: NetworkAddress?) throws {
        guard bytes > Self.shortBodyBytes, let subscriber = address?.subscriber else { return }
        try take(failures?.look(subscriber, now: .now), .failures)
    }

    /// Counts the failure of a request without any credentials.
    func fail(from address: NetworkAddress?) throws {
        guard let subscriber = address?.subscriber else { return }
        let now = ContinuousClock.now
        try take(failures?.look(subscriber, now: now), .failures)
        failures?.failed(subscriber, now: now)
    }

    /// Whether an app may be searched in the database. Beyond the failure limit, apps that may be
    /// made up are rarely searched.
    func maySearch(
        _ name: AppName,
        _ subscriber: NetworkAddress?,
        _ over: Int?,
        _ now: ContinuousClock.Instant
    ) async -> Bool {
        guard over != nil, let subscriber else { return true }
        if await apps.remembers(name) { return true }
        return failures?.maySearch(subscriber, now: now) ?? true
    }

    /// Counts a request, or a batch item, against the limit of its key.
    func countRequest(
        of app: CachedApp,
        _ rights: CallerRights,
        now: ContinuousClock.Instant = .now
    ) throws {
        let limit = app.settings.maximumRequestsPerMinute
        guard keys != nil || limit > 0 else { return }
        let key = rights == .master ? app.id + "/master" : app.id + "/app"
        try take(keys?.take(key, now: now), .key)
        try take(appLimits.take("requests " + key, limit: limit, now: now), .app)
    }

    func countPush(of app: CachedApp) throws {
        let limit = app.settings.maximumPushesPerMinute
        try take(
            appLimits.take("pushes " + app.id, limit: limit, now: .now),
            .pushes
        )
    }

    func take(_ wait: Int?, _ reason: Reason) throws {
        guard let wait else { return }
        refused[reason]?.add()
        throw Refusal.tooManyRequests(retryAfterSeconds: wait)
    }
}
