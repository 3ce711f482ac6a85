package import HTTPTransport
package import Settings

/// Where issuers may be asked for their keys.
package struct JWKSConfiguration: Sendable {
    /// `JWKS_HOSTS`: host suffixes, or `host:port` for one place exactly, which may be private; without
    /// it any public address.
    package var hosts: HostPolicy
    /// `PROVIDER_CA_FILE`: PEM certificates trusted beside the system's.
    package var caFile: String?

    package init(hosts: HostPolicy = .anyPublicAddress, caFile: String? = nil) {
        self.hosts = hosts
        self.caFile = caFile
    }

    package enum Variable {
        package static let hosts = Setting<[String]>(
            "JWKS_HOSTS",
            takes:
                "host suffixes, comma-separated; host:port or host:port/path/ names one place exactly",
            default: [],
            "where the keys of logins may be fetched; without it from any public address"
        )
        /// The same as the providers' own: one file for both.
        package static let caFile = Setting<String>.file(
            "PROVIDER_CA_FILE",
            takes: "the path of a PEM file",
            "certificates that are trusted at providers and at issuers of tokens, beside the system's"
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
