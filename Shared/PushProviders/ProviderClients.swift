internal import Cryptography
package import HTTPTransport
package import JSON
package import Observability
package import PushCore

/// The clients in use, one for each credential and environment.
///
/// Authority: creates the clients, replaces a client when its credential has changed, and owns the
/// shared resources: the connections to FCM, WNS and the token endpoints, and one provider token
/// for each team and key at Apple. Confined to one loop.
///
/// Shutdown: `close` closes all clients. Until then its owner keeps it alive: the connections of
/// its clients do not.
package final class ProviderClients: @unchecked Sendable {
    /// The key of a client: one credential of an app in one environment.
    package struct Key: Hashable, Sendable {
        package var app: String
        package var provider: Platform
        /// `.none` except for APNs.
        package var environment: PushEnvironment
        /// APNs: the credential's topic; else empty.
        package var name: String

        package init(
            app: String,
            provider: Platform,
            environment: PushEnvironment = .none,
            name: String = ""
        ) {
            self.app = app
            self.provider = provider
            self.environment = environment
            self.name = name
        }
    }

    private struct Entry {
        var client: any ProviderClient
        var version: Int64
        var lastUse: Int
    }

    private struct TokenKey: Hashable {
        var team: String
        var key: String
        /// If a key id is used with another key, it needs another token.
        var publicKey: String
    }

    private let configuration: ProviderConfiguration
    private let loop: HTTPClient.Loop
    private let log: Log
    private let clock: DatabaseClock
    private let channelHosts: HostPolicy
    private let mpnsHosts: HostPolicy
    private let mpnsChannels = SharedMPNSChannels()
    private let fcmOrigin: HTTP2Origin
    private let fcmPool: HTTP2Pool
    private let fcmTokenSlot: ConnectionSlot
    private let wnsSlot: ConnectionSlot
    private let wnsTokenSlot: ConnectionSlot
    /// The connections for apps without a certificate.
    private let mpnsSlot: ConnectionSlot
    private let wnsShare: ConnectionShare
    private let mpnsShare: ConnectionShare
    private var entries: [Key: Entry] = [:]
    private var retired: [any ProviderClient] = []
    private var apnsTokens: [TokenKey: APNsTokenSource] = [:]
    private var uses = 0

    /// The limit of shared connections, as a multiple of the limit of one app.
    private static let sharing = 2

    /// The most clients; above it, the least recently used client is closed.
    private static let maximumClients = 1000

    /// - Throws: `ProviderConfiguration.InvalidSetting`, or `HTTPTransportError` if libcurl cannot
    ///   be set up.
    package init(
        _ configuration: ProviderConfiguration,
        on loop: HTTPClient.Loop,
        log: Log = .disabled,
        clock: DatabaseClock = DatabaseClock()
    ) throws {
        try configuration.validate()
        self.configuration = configuration
        self.loop = loop
        self.log = log
        self.clock = clock
        channelHosts = try HostPolicy(configuration.wnsChannelHosts)
        mpnsHosts = try HostPolicy(configuration.mpnsChannelHosts, allowsPlainHTTP: true)
        let wnsTokenHosts = [configuration.wnsLiveTokenURL, configuration.wnsEntraTokenURL]
        fcmOrigin = try HTTP2Origin(configuration.fcmURL)
        fcmPool = try HTTP2Pool(
            try configuration.pool(configuration.fcmURL),
            on: loop,
            log: log
        )
        fcmTokenSlot = try ConnectionSlot(
            configuration.transport(
                try HostPolicy(configuration.fcmTokenHosts),
                version: .preferHTTP2,
                connections: 4
            ),
            on: loop,
            log: log
        )
        let wnsConnections = configuration.wnsConnections * Self.sharing
        wnsShare = ConnectionShare(wnsConnections)
        wnsSlot = try ConnectionSlot(
            configuration.transport(
                channelHosts,
                version: .http1Only,
                connections: wnsConnections
            ),
            on: loop,
            log: log
        )
        wnsTokenSlot = try ConnectionSlot(
            configuration.transport(
                try HostPolicy(origins: wnsTokenHosts),
                version: .preferHTTP2,
                connections: 4
            ),
            on: loop,
            log: log
        )
        let mpnsConnections = configuration.mpnsConnections * Self.sharing
        mpnsShare = ConnectionShare(mpnsConnections)
        mpnsSlot = try ConnectionSlot(
            configuration.transport(
                mpnsHosts,
                version: .http1Only,
                connections: mpnsConnections
            ),
            on: loop,
            log: log
        )
    }

    /// Returns the client for MPNS' unauthenticated channels, for an app without a credential.
    package func unauthenticatedMPNSClient(app: String) throws -> any ProviderClient {
        try client(for: Key(app: app, provider: .mpns), version: 0) { [:] }
    }

    /// Returns the client for the current version of a credential.
    ///
    /// - Parameters:
    ///   - key: The credential and its environment.
    ///   - version: The credential's `updated_at`. If it has changed, a new client is created. The
    ///     old one completes its deliveries and takes no more.
    ///   - secret: Opens the sealed credential. Called only to create a client.
    /// - Returns: A client that is valid until its credential changes. Call this again for each
    ///   batch.
    /// - Throws: `CredentialError`, or an error of `secret`.
    package func client(
        for key: Key,
        version: Int64,
        secret: () throws -> JSONObject
    ) throws -> any ProviderClient {
        uses += 1
        if var entry = entries[key], entry.version == version {
            entry.lastUse = uses
            entries[key] = entry
            return entry.client
        }
        let client = try makeClient(key, try secret())
        if let old = entries.removeValue(forKey: key) { retire(old.client) }
        if entries.count >= Self.maximumClients, let oldest = entries.min(by: isLessRecentlyUsed) {
            entries.removeValue(forKey: oldest.key)
            retire(oldest.value.client)
        }
        entries[key] = Entry(client: client, version: version, lastUse: uses)
        return client
    }

    /// Withdraws the waiting deliveries of all clients, see `ProviderClient.withdrawAll`. For a
    /// caller that may no longer send them. On the loop.
    package func withdrawAll() {
        for entry in entries.values { entry.client.withdrawAll() }
        for client in retired { client.withdrawAll() }
    }

    /// Ends every delivery and closes every connection. On the loop.
    package func close() {
        for entry in entries.values { entry.client.close() }
        for client in retired { client.close() }
        entries = [:]
        retired = []
        fcmPool.close()
        for slot in [fcmTokenSlot, wnsSlot, wnsTokenSlot, mpnsSlot] { slot.close() }
    }

    private func isLessRecentlyUsed(
        _ left: (key: Key, value: Entry),
        _ right: (key: Key, value: Entry)
    ) -> Bool {
        left.value.lastUse < right.value.lastUse
    }

    private func retire(_ client: any ProviderClient) {
        client.closeAfterLastDelivery()
        retired.removeAll { $0.deliveriesInside == 0 }
        if client.deliveriesInside > 0 { retired.append(client) }
    }

    private func makeClient(_ key: Key, _ secret: JSONObject) throws -> any ProviderClient {
        switch key.provider {
        case .apns: try makeAPNsClient(try APNsCredential(secret: secret), key.environment)
        case .fcm:
            try makeFCMClient(secret)
        case .wns: try makeWNSClient(secret)
        case .mpns:
            try makeMPNSClient(secret.isEmpty ? nil : try MPNSCredential(secret: secret))
        case .connection: throw CredentialError("provider", "has no credential")
        }
    }

    private func makeAPNsClient(
        _ credential: APNsCredential,
        _ environment: PushEnvironment
    ) throws -> any ProviderClient {
        let origin =
            environment == .sandbox
            ? configuration.apnsSandboxURL : configuration.apnsProductionURL
        let tokens = try tokenSource(credential)
        let pool = try HTTP2Pool(
            try configuration.pool(
                origin,
                certificate: credential.clientCertificate,
                provesFirst: tokens != nil
            ),
            on: loop,
            log: log
        )
        return APNsClient(
            credential,
            origin: try HTTP2Origin(origin),
            tokens: tokens,
            pool: pool,
            timeout: configuration.requestTimeout,
            clock: clock
        )
    }

    private func tokenSource(_ credential: APNsCredential) throws -> APNsTokenSource? {
        guard case .token(let key, _, let keyID, let teamID) = credential.method else { return nil }
        let tokenKey = TokenKey(team: teamID, key: keyID, publicKey: try key.publicKeyPEM())
        if let source = apnsTokens[tokenKey] { return source }
        let source = APNsTokenSource(
            key: key,
            keyID: keyID,
            teamID: teamID,
            clock: clock.now
        )
        apnsTokens[tokenKey] = source
        return source
    }

    func makeFCMTokens(_ secret: JSONObject) throws -> (FCMCredential, AccessTokenSource) {
        let credential = try FCMCredential(secret: secret, tokenHosts: configuration.fcmTokenHosts)
        let timeout = configuration.requestTimeout
        let tokens = AccessTokenSource(
            of: .fcm,
            through: fcmTokenSlot,
            clock: clock,
            log: log
        ) {
            [clock] in try credential.tokenRequest(at: clock.now(), timeout: timeout)
        }
        return (credential, tokens)
    }

    private func makeFCMClient(_ secret: JSONObject) throws -> any ProviderClient {
        let timeout = configuration.requestTimeout
        let (credential, tokens) = try makeFCMTokens(secret)
        return FCMClient(
            credential,
            origin: fcmOrigin,
            tokens: tokens,
            pool: fcmPool,
            timeout: timeout,
            clock: clock.now
        )
    }

    func makeWNSTokens(_ secret: JSONObject) throws -> AccessTokenSource {
        let credential = try WNSCredential(secret: secret)
        return AccessTokenSource(of: .wns, through: wnsTokenSlot, clock: clock, log: log) {
            [configuration] in credential.tokenRequest(configuration)
        }
    }

    private func makeWNSClient(_ secret: JSONObject) throws -> any ProviderClient {
        WNSClient(
            channelHosts: channelHosts,
            tokens: try makeWNSTokens(secret),
            slot: wnsSlot,
            share: wnsShare,
            configuration: configuration,
            clock: clock.now
        )
    }

    private func makeMPNSClient(_ credential: MPNSCredential?) throws -> any ProviderClient {
        let slot =
            if let credential {
                try ConnectionSlot(
                    configuration.transport(
                        mpnsHosts,
                        version: .http1Only,
                        connections: configuration.mpnsConnections,
                        certificate: credential.clientCertificate
                    ),
                    on: loop,
                    log: log
                )
            } else {
                mpnsSlot
            }
        return MPNSClient(
            channelHosts: mpnsHosts,
            slot: slot,
            share: credential == nil ? mpnsShare : nil,
            isAuthenticated: credential != nil,
            channels: mpnsChannels,
            configuration: configuration,
            clock: clock.now
        )
    }
}
