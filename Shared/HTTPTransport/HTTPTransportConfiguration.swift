/// The common settings of all calls of one `HTTPClient`. Two clients share nothing, so connections
/// that must not mix (two client certificates, two credentials at APNs) need a client each.
package struct HTTPTransportConfiguration: Sendable {
    /// PEM strings in memory: keys are never written to a file.
    package struct ClientCertificate: Sendable {
        package var certificatePEM: String
        package var privateKeyPEM: String

        package init(certificatePEM: String, privateKeyPEM: String) {
            self.certificatePEM = certificatePEM
            self.privateKeyPEM = privateKeyPEM
        }
    }

    package enum VersionPolicy: Sendable {
        case http1Only
        case preferHTTP2
        /// Any other protocol version is an error.
        case http2Required
    }

    package var allowedHosts: HostPolicy
    package var version: VersionPolicy
    package var clientCertificate: ClientCertificate?
    /// The path of a PEM file: certificates that are trusted in addition to the system's.
    package var caFile: String?
    /// For example `http://proxy.example:3128`; hosts in `noProxy` are connected directly (a comma
    /// list of hosts, or `*`). libcurl's own reading of the environment is off.
    package var proxy: String?
    package var noProxy: String?
    /// 1...100. Default 4.
    package var maximumConnectionsPerHost: Int
    /// The limit on one HTTP/2 connection; the peer's own limit applies if it is lower. Default
    /// 1000.
    package var maximumConcurrentStreams: Int
    /// The calls accepted and not yet finished. Default 10,000.
    package var maximumCalls: Int
    package var connectTimeout: Duration
    /// Default 256 KiB; the head has a limit of its own, 64 KiB.
    package var maximumResponseBytes: Int

    package init(
        allowedHosts: HostPolicy,
        version: VersionPolicy = .preferHTTP2,
        clientCertificate: ClientCertificate? = nil,
        caFile: String? = nil,
        proxy: String? = nil,
        noProxy: String? = nil,
        maximumConnectionsPerHost: Int = 4,
        maximumConcurrentStreams: Int = 1000,
        maximumCalls: Int = 10_000,
        connectTimeout: Duration = .seconds(10),
        maximumResponseBytes: Int = 262_144
    ) {
        self.allowedHosts = allowedHosts
        self.version = version
        self.clientCertificate = clientCertificate
        self.caFile = caFile
        self.proxy = proxy
        self.noProxy = noProxy
        self.maximumConnectionsPerHost = maximumConnectionsPerHost
        self.maximumConcurrentStreams = maximumConcurrentStreams
        self.maximumCalls = maximumCalls
        self.connectTimeout = connectTimeout
        self.maximumResponseBytes = maximumResponseBytes
    }
}
