internal import HTTPTransport
package import Observability

/// The addresses of the providers, and the connection settings.
package struct ProviderConfiguration: Sendable {
    /// An invalid setting.
    package struct InvalidSetting: Error, Equatable, Sendable, CustomStringConvertible {
        package let variable: String
        package let problem: String

        package var description: String { "\(variable): \(problem)" }
    }

    /// `APNS_PRODUCTION_URL`, `APNS_SANDBOX_URL`, `FCM_URL`, `WNS_LIVE_TOKEN_URL`,
    /// `WNS_ENTRA_TOKEN_URL`: https origins without a path. The defaults are the providers' own.
    package var apnsProductionURL = "https://api.push.apple.com"
    package var apnsSandboxURL = "https://api.sandbox.push.apple.com"
    package var fcmURL = "https://fcm.googleapis.com"
    package var wnsLiveTokenURL = "https://login.live.com"
    package var wnsEntraTokenURL = "https://login.microsoftonline.com"
    /// `FCM_TOKEN_HOSTS`: the hosts that a service account's `token_uri` may name.
    package var fcmTokenHosts = ["oauth2.googleapis.com"]
    /// `WNS_CHANNEL_HOSTS`: the allowed hosts of channel URIs; see `HostPolicy`.
    package var wnsChannelHosts = [".notify.windows.com"]
    /// `MPNS_CHANNEL_HOSTS`: the same for MPNS, whose unauthenticated channels are plain http on
    /// port 80.
    package var mpnsChannelHosts = [".notify.live.net"]
    /// `PROVIDER_CA_FILE`: PEM certificates that are trusted in addition to the system's.
    package var caFile: String?
    /// `HTTPS_PROXY`, `NO_PROXY`.
    package var proxy: String?
    package var noProxy: String?
    /// The time from hand-over to answer. FCM asks for at least 10 s. A longer time keeps more
    /// deliveries in flight while a provider does not answer.
    package var requestTimeout: Duration = .seconds(20)
    package var connectTimeout: Duration = .seconds(10)
    /// The metric of how long requests for single devices wait for a stream to APNs or FCM.
    package var streamWaits: Histogram?
    /// The most HTTP/2 connections of one APNs credential, and to FCM. Each carries as many
    /// concurrent requests as the provider allows, at most 1000.
    package var http2Connections = 8
    /// The most connections of one WNS credential, which uses HTTP/1.1. All credentials together
    /// have twice as many.
    package var wnsConnections = 64
    /// The most connections of one MPNS app, which also uses HTTP/1.1. The service may be gone for
    /// good, so its share of the process is small.
    package var mpnsConnections = 16

    package init() {}

    /// - Throws: `InvalidSetting` with the variable's name. Call it once, when the settings are
    ///   read.
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

    /// Returns the origin without a trailing slash.
    static func origin(_ url: String) -> String {
        url.hasSuffix("/") ? String(url.dropLast()) : url
    }

    /// Returns the configuration of a pool of connections to one origin.
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
