package import HTTPTransport
package import Settings
import Storage

/// The hosts from which issuers' keys may be fetched.
package struct JWKSConfiguration: Sendable {
    /// `JWKS_HOSTS`: host suffixes, or `host:port` for exactly one target, which may be private.
    /// Without it, any public address is allowed.
    package var hosts: HostPolicy
    /// `PROVIDER_CA_FILE`: PEM certificates trusted in addition to the system's.
    package var caFile: String?

    package init(hosts: HostPolicy = .anyPublicAddress, caFile: String? = nil) {
        self.hosts = hosts
        self.caFile = caFile
    }

    package enum Variable {
        package static let hosts = Setting<[String]>(
            "JWKS_HOSTS",
            takes:
                "host suffixes, comma-separated; host:port or host:port/path/ names one"
                + " place exactly",
            default: [],
            "hosts of token issuers, from which keys and operators' tokens may be fetched; default: any"
                + " public address"
        )
        /// The providers' variable, so that one file serves both.
        package static let caFile = Setting<String>.file(
            "PROVIDER_CA_FILE",
            takes: "the path of a PEM file",
            "CA certificates for providers and token issuers, in addition to the system's"
        )

        package static let all: [SettingEntry] = [hosts.entry, caFile.entry]
    }

    package init(_ reader: ConfigurationReader) throws(ConfigurationError) {
        let texts = try reader.value(of: Variable.hosts)
        do {
            hosts = texts.isEmpty ? .anyPublicAddress : try HostPolicy(texts)
        } catch {
            throw ConfigurationError(Variable.hosts.name, "cannot be used: \(error)")
        }
        caFile = try reader.optional(Variable.caFile)
    }
}
