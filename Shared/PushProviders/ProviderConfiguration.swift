internal import HTTPTransport
package import Observability

/// Where the providers are, and how they are reached.
package struct ProviderConfiguration: Sendable {
    /// A setting that cannot be used.
    package struct InvalidSetting: Error, Equatable, Sendable, CustomStringConvertible {
        package let variable: String
        package let problem: String

        package var description: String { "\(variable): \(problem)" }
    }

    /// `APNS_PRODUCTION_URL`, `APNS_SANDBOX_URL`, `FCM_URL`, `WNS_LIVE_TOKEN_URL`,
    /// `WNS_ENTRA_TOKEN_URL`: https origins without a path. Default: the providers' own.
    package var apnsProductionURL = "https://api.push.apple.com"
    package var apnsSandboxURL = "https://api.sandbox.push.apple.com"
    package var fcmURL = "https://fcm.googleapis.com"
    package var wnsLiveTokenURL = "https://login.live.com"
    package var wnsEntraTokenURL = "https://login.microsoftonline.com"
    /// `FCM_TOKEN_HOSTS`: hosts that a service account's `token_uri` may name.
    package var fcmTokenHosts = ["oauth2.googleapis.com"]
    /// `WNS_CHANNEL_HOSTS`: where channel URIs may lead; see `HostPolicy`.
    package var wnsChannelHosts = [".notify.windows.com"]
    /// `MPNS_CHANNEL_HOSTS`: likewise; MPNS' unauthenticated channels are plain http on port 80.
    package var mpnsChannelHosts = [".notify.live.net"]
    /// `PROVIDER_CA_FILE`: PEM certificates trusted beside the system's.
    package var caFile: String?
    /// `HTTPS_PROXY`, `NO_PROXY`.
    package var proxy: String?
    package var noProxy: String?
    /// From hand-over to answer. FCM asks for at least 10 s; longer holds more in flight while a
    /// provider is silent.
    package var requestTimeout: Duration = .seconds(20)
    package var connectTimeout: Duration = .seconds(10)
    /// Hears how long requests for single devices wait for a stream of APNs or FCM.
    package var streamWaits: Histogram?
    /// HTTP/2 connections of one APNs credential, and to FCM, at most. Each carries as many
    /// requests at once as the provider admits, 1000 at most.
    package var http2Connections = 8
    /// WNS speaks HTTP/1.1: connections of one credential at once. All together have twice as many.
    package var wnsConnections = 64
    /// MPNS too, which may be gone for good: one app's share of the process is small.
    package var mpnsConnections = 16

    package init() {}

    /// - Throws: `InvalidSetting`, naming the variable. Call it once, when the settings are read.
    package func validate() throws(InvalidSetting) {
        let origins = [
            ("APNS_PRODUCTION_URL", apnsProductionURL), ("APNS_SANDBOX_URL", apnsSandboxURL),
            ("FCM_URL", fcmURL), ("WNS_LIVE_TOKEN_URL", wnsLiveTokenURL),
            ("WNS_ENTRA_TOKEN_URL", wnsEntraTokenURL),
        ]
        for (variable, url) in origins {
            let rest = url.hasPrefix("https://") ? url.dropFirst(8) : ""
            let isOrigin =
                !rest.isEmpty && !rest.contains("?") && !rest.contains("#")
                && !rest.drop(while: { $0 != "/" }).dropFirst().contains(where: { _ in true })
            guard isOrigin, (try? HostPolicy(origin: url)) != nil else {
                throw InvalidSetting(
                    variable: variable,
                    problem: "must be an https origin without a path"
                )
            }
        }
        for (variable, hosts) in [
            ("FCM_TOKEN_HOSTS", fcmTokenHosts), ("WNS_CHANNEL_HOSTS", wnsChannelHosts),
            ("MPNS_CHANNEL_HOSTS", mpnsChannelHosts),
        ] {
            do {
                _ = try HostPolicy(hosts)
            } catch {
                throw InvalidSetting(variable: variable, problem: error.description)
            }
        }
    }

    /// The origin without the slash that may end it.
    static func origin(_ url: String) -> String {
        url.hasSuffix("/") ? String(url.dropLast()) : url
    }

    /// Connections of our own to one origin.
    func pool(
        _ origin: String,
        certificate: HTTPTransportConfiguration.ClientCertificate? = nil,
        provesFirst: Bool = false
    ) throws -> HTTP2PoolConfiguration {
        var pool = HTTP2PoolConfiguration(
            origin: origin,
            transport: transport(
                try HostPolicy(origin: origin),
                version: .http2Required,
                connections: http2Connections,
                certificate: certificate
            ),
            maximumConnections: http2Connections,
            provesFirst: provesFirst
        )
        pool.waits = streamWaits
        return pool
    }

    func transport(
        _ hosts: HostPolicy,
        version: HTTPTransportConfiguration.VersionPolicy,
        connections: Int,
        certificate: HTTPTransportConfiguration.ClientCertificate? = nil
    ) -> HTTPTransportConfiguration {
        HTTPTransportConfiguration(
            allowedHosts: hosts,
            version: version,
            clientCertificate: certificate,
            caFile: caFile,
            proxy: proxy,
            noProxy: noProxy,
            maximumConnectionsPerHost: connections,
            connectTimeout: connectTimeout
        )
    }
}
