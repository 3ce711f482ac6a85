import Cryptography
import JSON
import Observability
import PushCore
import PushProviders
import PushStorage
import Storage

/// A cache of the known apps, and of the credentials and settings that choose a delivery's provider
/// client.
///
/// Authority: the last read of apps and credentials, for 30 s or until a NOTIFY reports a change.
@DispatchLoop
final class CredentialCache: ClientDirectory {
    enum Choice {
        case client(any ProviderClient)
        /// A mistake of the operator. The delivery fails, and no token is disabled.
        case misconfigured(String)
    }

    private struct AppCredentials {
        var readAt: MonotonicInstant
        var all: [StoredCredential]
        var settings: AppSettings
    }

    private static let freshMilliseconds: Int64 = 30_000
    /// The most apps in the cache; beyond that it is cleared.
    private static let maximumApps = 10_000

    private let database: PushDatabase
    private let providers: ProviderClients
    private let connections: ConnectionProvider
    private let keys: KeyRing
    private let isMPNSEnabled: Bool
    private let log: Log
    private var credentials: [String: AppCredentials] = [:]
    /// The number of notified changes.
    private var changes = 0
    private var knownApps: [String: MonotonicInstant] = [:]
    /// Credentials whose failure was logged, each with its version.
    private var reported: Set<String> = []

    init(
        database: PushDatabase,
        providers: ProviderClients,
        connections: ConnectionProvider,
        keys: KeyRing,
        isMPNSEnabled: Bool,
        log: Log
    ) {
        self.database = database
        self.providers = providers
        self.connections = connections
        self.keys = keys
        self.isMPNSEnabled = isMPNSEnabled
        self.log = log
    }

    /// Returns which of these ids are known apps. An unknown app is looked up again each time.
    func known(among ids: Set<String>) async throws -> Set<String> {
        let limit = MonotonicInstant.now().adding(milliseconds: -Self.freshMilliseconds)
        var known: Set<String> = []
        var asked: Set<String> = []
        for id in ids {
            if let seen = knownApps[id], seen > limit {
                known.insert(id)
            } else {
                asked.insert(id)
            }
        }
        guard !asked.isEmpty else { return known }
        let found = try await database.apps.known(among: asked)
        if knownApps.count + found.count > Self.maximumApps { knownApps = [:] }
        let now = MonotonicInstant.now()
        for id in found { knownApps[id] = now }
        return known.union(found)
    }

    /// Loads the credentials of these apps for `client`, unless they are fresh.
    func load(_ apps: Set<String>) async throws {
        let limit = MonotonicInstant.now().adding(milliseconds: -Self.freshMilliseconds)
        for app in apps {
            if let known = credentials[app], known.readAt > limit { continue }
            var readAt: MonotonicInstant
            var all: [StoredCredential]
            var settings: JSONObject
            var tries = 0
            var before: Int
            repeat {
                (before, readAt) = (changes, MonotonicInstant.now())
                all = try await database.credentials.list(app: app)
                settings = try await database.apps.find(app)?.settings ?? [:]
                tries += 1
                // If a change was notified meanwhile, the read may have missed it.
            } while changes != before && tries < 3
            if credentials.count >= Self.maximumApps { credentials = [:] }
            credentials[app] = AppCredentials(
                readAt: readAt,
                all: all,
                settings: AppSettings(settings)
            )
        }
    }

    /// Whether the cache has fresh credentials of this app.
    func isLoaded(_ app: String) -> Bool {
        guard let known = credentials[app] else { return false }
        return known.readAt > MonotonicInstant.now().adding(milliseconds: -Self.freshMilliseconds)
    }

    /// Withdraws the notifications that wait at the clients: the session under which they were to
    /// be sent is lost.
    func withdrawAll() {
        providers.withdrawAll()
        connections.withdrawAll()
    }

    /// Returns the apps whose pushes include their ids.
    func includingPushIDs(among apps: Set<String>) async throws -> Set<String> {
        try await load(apps)
        return apps.filter { includesPushIDs($0) }
    }

    /// Whether `receipts` is set, so that pushes include their ids. The app was loaded before.
    func includesPushIDs(_ app: String) -> Bool { credentials[app]?.settings.sendsPushIDs ?? false }

    /// Evicts one app, or all if `app` is empty, after a credential or a setting was changed.
    func forget(_ app: String) {
        changes += 1
        if app.isEmpty { credentials = [:] } else { credentials[app] = nil }
    }

    /// Returns why the operator has switched a provider off; `nil` if it is on. The delivery's app was
    /// loaded before.
    func switchedOff(_ provider: Platform, of app: String) -> String? {
        let settings = credentials[app]?.settings ?? AppSettings()
        switch provider {
        case .mpns where !isMPNSEnabled: return "MPNS is switched off"
        case .mpns: return settings.sendsToMPNS ? nil : "MPNS is switched off for this app"
        case .connection: return settings.sendsToConnections ? nil : "connections off"
        case .apns, .fcm, .wns: return nil
        }
    }

    /// Returns the client that sends a delivery. Its app was loaded before; `apnsTopic` is the
    /// installation's own, else the push's.
    func client(for delivery: Delivery, apnsTopic: String?) -> Choice {
        let platform = delivery.device.provider
        // Our own provider, which needs no credential.
        if platform == .connection { return .client(connections.client(of: delivery.app)) }
        let candidates = credentials[delivery.app]?.all.filter { $0.platform == platform } ?? []
        if platform == .mpns, candidates.isEmpty {
            do {
                return .client(try providers.unauthenticatedMPNSClient(app: delivery.app))
            } catch {
                return .misconfigured(LocalFailure.noMPNSClient.rawValue)
            }
        }
        let credential: StoredCredential
        switch Self.choose(candidates, topic: apnsTopic) {
        case .success(let chosen): credential = chosen
        case .failure(let problem): return .misconfigured(problem.reason.rawValue)
        }
        let environment: PushEnvironment =
            switch (platform, delivery.device.environment) {
            case (.apns, .none): .production
            case (.apns, let named): named
            case (.fcm, _), (.wns, _), (.mpns, _), (.connection, _): .none
            }
        let key = ProviderClients.Key(
            app: delivery.app,
            provider: platform,
            environment: environment,
            name: credential.name
        )
        do {
            return .client(
                try providers.client(for: key, version: credential.updatedAt.milliseconds) {
                    try open(credential)
                }
            )
        } catch {
            report(credential, error)
            return .misconfigured(LocalFailure.unusableCredential(of: platform).rawValue)
        }
    }

    struct NoCredential: Error, Equatable {
        let reason: LocalFailure
    }

    /// Chooses a credential. APNs credentials have topics: takes the one for `topic`, else the
    /// default, else the only one.
    nonisolated static func choose(
        _ candidates: [StoredCredential],
        topic: String?
    ) -> Result<StoredCredential, NoCredential> {
        guard let first = candidates.first else {
            return .failure(NoCredential(reason: .noCredential))
        }
        guard first.platform == .apns else { return .success(first) }
        if let topic {
            guard let named = candidates.first(where: { $0.name == topic }) else {
                return .failure(NoCredential(reason: .noCredentialOfTopic))
            }
            return .success(named)
        }
        let isOnly = candidates.count == 1
        guard let meant = isOnly ? first : candidates.first(where: \.isDefault) else {
            return .failure(NoCredential(reason: .noDefaultCredential))
        }
        return .success(meant)
    }

    private func open(_ credential: StoredCredential) throws -> JSONObject {
        let bytes = try keys.open(credential.sealed, context: credential.context)
        guard let object = try JSONValue.parse(bytes).object else {
            throw CredentialError("credential", "is not an object")
        }
        return object
    }

    private func report(_ credential: StoredCredential, _ error: any Error) {
        let name = "\(credential.context)@\(credential.updatedAt.milliseconds)"
        if reported.count > 1000 { reported = [] }
        guard reported.insert(name).inserted else { return }
        log.error(
            "a credential cannot be used",
            [
                .app: .string(credential.app), .provider: .string(credential.platform.rawValue),
                .credential: .string(credential.name), .error: .string("\(error)"),
            ]
        )
    }
}
