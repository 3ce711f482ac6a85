package import Settings

extension ProviderConfiguration {
    package enum Variable {
        private static let usual = ProviderConfiguration()

        private static func origin(
            _ name: String,
            _ fallback: String,
            _ meaning: String
        ) -> Setting<String> {
            Setting(name, takes: "an https origin without a path", default: fallback, meaning)
        }

        private static let hosts =
            "host suffixes, comma-separated; host:port or host:port/path/ names one place exactly"

        static let apnsProductionURL = origin(
            "APNS_PRODUCTION_URL",
            usual.apnsProductionURL,
            "where APNs is; another origin for simulators"
        )
        static let apnsSandboxURL = origin(
            "APNS_SANDBOX_URL",
            usual.apnsSandboxURL,
            "where APNs' sandbox is"
        )
        static let fcmURL = origin("FCM_URL", usual.fcmURL, "where FCM is")
        static let wnsLiveTokenURL = origin(
            "WNS_LIVE_TOKEN_URL",
            usual.wnsLiveTokenURL,
            "where WNS' access tokens come from without a tenant"
        )
        static let wnsEntraTokenURL = origin(
            "WNS_ENTRA_TOKEN_URL",
            usual.wnsEntraTokenURL,
            "where they come from with a tenant"
        )
        static let fcmTokenHosts = Setting<[String]>(
            "FCM_TOKEN_HOSTS",
            takes: hosts,
            default: usual.fcmTokenHosts,
            "where a service account's token_uri may lead"
        )
        static let wnsChannelHosts = Setting<[String]>(
            "WNS_CHANNEL_HOSTS",
            takes: hosts,
            default: usual.wnsChannelHosts,
            "where a device's channel URI may lead"
        )
        static let mpnsChannelHosts = Setting<[String]>(
            "MPNS_CHANNEL_HOSTS",
            takes: hosts,
            default: usual.mpnsChannelHosts,
            "the same for Windows Phone's channels"
        )
        static let caFile = Setting<String>.file(
            "PROVIDER_CA_FILE",
            takes: "the path of a PEM file",
            "certificates that are trusted at providers and at issuers of tokens, beside the system's"
        )
        static let proxy = Setting<String>(
            "HTTPS_PROXY",
            takes: "a proxy's URL",
            "the proxy through which the providers are called"
        )
        static let noProxy = Setting<String>(
            "NO_PROXY",
            takes: "hosts, comma-separated",
            "those that are called without it"
        )

        package static let all: [SettingEntry] = [
            apnsProductionURL.entry, apnsSandboxURL.entry, fcmURL.entry, wnsLiveTokenURL.entry,
            wnsEntraTokenURL.entry, fcmTokenHosts.entry, wnsChannelHosts.entry,
            mpnsChannelHosts.entry, caFile.entry, proxy.entry, noProxy.entry,
        ]
    }

    package init(_ reader: ConfigurationReader) throws(ConfigurationError) {
        self.init()
        apnsProductionURL = try reader.value(of: Variable.apnsProductionURL)
        apnsSandboxURL = try reader.value(of: Variable.apnsSandboxURL)
        fcmURL = try reader.value(of: Variable.fcmURL)
        wnsLiveTokenURL = try reader.value(of: Variable.wnsLiveTokenURL)
        wnsEntraTokenURL = try reader.value(of: Variable.wnsEntraTokenURL)
        fcmTokenHosts = try reader.value(of: Variable.fcmTokenHosts)
        wnsChannelHosts = try reader.value(of: Variable.wnsChannelHosts)
        mpnsChannelHosts = try reader.value(of: Variable.mpnsChannelHosts)
        caFile = try reader.optional(Variable.caFile)
        proxy = try reader.optional(Variable.proxy)
        noProxy = try reader.optional(Variable.noProxy)
        do {
            try validate()
        } catch {
            throw ConfigurationError(error.variable, error.problem)
        }
    }
}
