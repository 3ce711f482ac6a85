import Apps
import PushCore

/// Readers of an app's secure payloads come by proofs that are no keys of the app: a surface looks at
/// these itself, between what is counted here.
extension RequestLimits {
    /// Counts a request by where it comes from.
    func arrive(from address: NetworkAddress?) throws {
        guard let subscriber = address?.subscriber else { return }
        try take(addresses?.take(subscriber, now: .now), .address)
    }

    /// The seconds to wait where too many from there were wrong.
    func waitAfterFailures(from address: NetworkAddress?) -> Int? {
        address.flatMap { failures?.look($0.subscriber, now: .now) }
    }

    /// Beyond the limit of failures, what may be made up is looked for seldom.
    func find(_ name: AppName, from address: NetworkAddress?) async throws -> AppAccess? {
        guard name.isWellFormed else { return nil }
        if let app = apps.remembered(name) { return app }
        let over = waitAfterFailures(from: address)
        guard await maySearch(name, address?.subscriber, over, .now) else { return nil }
        return try await apps.find(name)
    }

    /// The app of those who name none.
    func unnamedApp() async throws -> AppAccess? { try await apps.unnamed() }

    /// Whose key a proof shows; neither counted nor refused. Beyond the limit of failures only keys
    /// count that nobody finds by trying.
    func app(of proof: Proof, from address: NetworkAddress?) async throws -> AppAccess? {
        guard let app = try await find(proof.app, from: address) else { return nil }
        let minimum = waitAfterFailures(from: address) == nil ? 0 : Self.unguessableKeyBytes
        return proof.credential(for: app, minimumKeyBytes: minimum) == nil ? nil : app
    }

    /// Counts a reader's request against what the app's clients may ask; they share no key, so there is
    /// no limit by key.
    func countReader(of app: AppAccess) throws {
        let limit = app.settings.maximumRequestsPerMinute
        try take(appLimits.take("requests \(app.id)/app", limit: limit, now: .now), .app)
    }
}
