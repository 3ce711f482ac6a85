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
            "origin of APNs; another one for simulators"
        )
        static let apnsSandboxURL = origin(
            "APNS_SANDBOX_URL",
            usual.apnsSandboxURL,
            "origin of APNs' sandbox"
        )
        static let fcmURL = origin("FCM_URL", usual.fcmURL, "origin of FCM")
        static let wnsLiveTokenURL = origin(
            "WNS_LIVE_TOKEN_URL",
            usual.wnsLiveTokenURL,
            "origin of WNS' access tokens without a tenant"
        )
        static let wnsEntraTokenURL = origin(
            "WNS_ENTRA_TOKEN_URL",
            usual.wnsEntraTokenURL,
            "origin of WNS' access tokens with a tenant"
        )
        package static let fcmTokenHosts = Setting<[String]>(
            "FCM_TOKEN_HOSTS",
            takes: hosts,
            default: usual.fcmTokenHosts,
            "hosts that a service account's token_uri may name"
        )
        static let wnsChannelHosts = Setting<[String]>(
            "WNS_CHANNEL_HOSTS",
            takes: hosts,
            default: usual.wnsChannelHosts,
            "hosts that a device's channel URI may name"
        )
        static let mpnsChannelHosts = Setting<[String]>(
            "MPNS_CHANNEL_HOSTS",
            takes: hosts,
            default: usual.mpnsChannelHosts,
            "hosts that a Windows Phone's channel URI may name"
        )
        static let caFile = Setting<String>.file(
            "PROVIDER_CA_FILE",
            takes: "the path of a PEM file",
            "CA certificates for providers and token issuers, in addition to the system's"
        )
        static let proxy = Setting<String>(
            "HTTPS_PROXY",
            takes: "a proxy's URL",
            "proxy for calls to providers"
        )
        static let noProxy = Setting<String>(
            "NO_PROXY",
            takes: "hosts, comma-separated",
            "hosts that are called without the proxy"
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
