import Apps
import PushCore

/// Limits for readers of an app's secure payloads, whose proofs are not keys of the app: a surface
/// verifies them itself, between the counts here.
extension RequestLimits {
    /// Counts a request by its address.
    func countArrival(from address: NetworkAddress?) throws {
        guard let subscriber = address?.subscriber else { return }
        try take(addresses?.take(subscriber, now: .now), .address)
    }

    /// Returns the seconds to wait if the address had too many failures.
    func waitAfterFailures(from address: NetworkAddress?) -> Int? {
        address.flatMap { failures?.look($0.subscriber, now: .now) }
    }

    /// Finds an app. Beyond the failure limit, apps that may be made up are rarely searched.
    func find(_ name: AppName, from address: NetworkAddress?) async throws -> CachedApp? {
        guard name.isWellFormed else { return nil }
        if let app = apps.remembered(name) { return app }
        let over = waitAfterFailures(from: address)
        guard await maySearch(name, address?.subscriber, over, .now) else { return nil }
        return try await apps.find(name)
    }

    /// Finds the app for requests that name no app.
    func defaultApp() async throws -> CachedApp? { try await apps.unnamed() }

    /// Returns the app whose key a proof shows; neither counts nor refuses. Beyond the failure
    /// limit only keys that cannot be guessed are accepted.
    func app(of proof: Proof, from address: NetworkAddress?) async throws -> CachedApp? {
        guard let app = try await find(proof.app, from: address) else { return nil }
        let minimum = waitAfterFailures(from: address) == nil ? 0 : Self.unguessableKeyBytes
        return proof.credential(for: app, minimumKeyBytes: minimum) == nil ? nil : app
    }

    /// Counts a reader's request against the app's limit for clients; readers share no key, so
    /// there is no limit by key.
    func countReader(of app: CachedApp) throws {
        let limit = app.settings.maximumRequestsPerMinute
        try take(appLimits.take("requests \(app.id)/app", limit: limit, now: .now), .app)
    }
}
