package import Settings

extension KafkaConfiguration {
    package enum Variable {
        package static let bootstrapServers = Setting<String>(
            "KAFKA_BOOTSTRAP_SERVERS",
            takes: "host:port,…",
            shown: "required",
            "bootstrap brokers"
        )
        package static let securityProtocol = Setting<String>(
            "KAFKA_SECURITY_PROTOCOL",
            takes: "a security.protocol of librdkafka's, such as sasl_ssl",
            "security protocol of the brokers"
        )
        package static let sasl = SettingFamily(
            "KAFKA_SASL_",
            rest: "<PROPERTY>",
            takes: "the value of librdkafka's property sasl.…",
            "SASL credentials for the brokers; a dot of the property's name is an underscore here"
        )
        package static let properties = SettingFamily(
            "KAFKA_CONFIG_",
            rest: "<PROPERTY>",
            takes: "the value of librdkafka's property",
            "any property of librdkafka, dots as underscores; those that the promises rest on are"
                + " refused"
        )
        package static let topicPrefix = Setting<String>(
            "KAFKA_TOPIC_PREFIX",
            takes: "the beginning of a topic's name",
            default: "",
            "prefix of every topic's name"
        )

        package static let all: [SettingEntry] = [
            bootstrapServers.entry, securityProtocol.entry, sasl.entry, properties.entry,
            topicPrefix.entry,
        ]

        /// Returns `KAFKA_PARTITIONS`, for services that create topics.
        package static func partitions(atMost most: Int) -> Setting<Int> {
            Setting(
                "KAFKA_PARTITIONS",
                in: 1...most,
                default: 12,
                "partitions of each topic that is created; more replicas than these are idle"
            )
        }
    }

    /// Reads all of `Variable` except the topics' prefix, which does not concern the connection.
    package init(
        _ reader: ConfigurationReader,
        clientID: String
    ) throws(ConfigurationError) {
        var properties: [String: String] = [:]
        for (name, value) in reader.all(of: Variable.sasl) {
            properties["sasl." + dotted(name)] = value
        }
        if let security = try reader.optional(Variable.securityProtocol) {
            properties["security.protocol"] = security
        }
        for (name, value) in reader.all(of: Variable.properties) {
            properties[dotted(name)] = value
        }
        self.init(
            bootstrapServers: try reader.value(of: Variable.bootstrapServers),
            properties: properties,
            clientID: clientID
        )
    }
}

private func dotted(_ name: String) -> String {
    name.lowercased().split(separator: "_").joined(separator: ".")
}
