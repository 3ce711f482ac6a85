internal import Postgres
package import Settings

extension DatabaseConfiguration {
    package enum Variable {
        /// The URI is a secret.
        package static let url = Setting<String>.secret(
            "DATABASE_URL",
            takes: "a libpq URI",
            "connection URI of Postgres; several hosts: see Failover of Postgres in operating.md"
        ) { text in
            if let problem = PostgresConfiguration.problem(ofURI: text) { throw Unusable(problem) }
            return text
        }

        package static let all: [SettingEntry] = [url.entry]
    }

    private struct Unusable: Error, CustomStringConvertible {
        let description: String
        init(_ description: String) { self.description = description }
    }

    package init(
        _ reader: ConfigurationReader,
        connections: Int = 4,
        applicationName: String
    ) throws(ConfigurationError) {
        self.init(
            uri: try reader.value(of: Variable.url),
            connections: connections,
            applicationName: applicationName
        )
    }
}
