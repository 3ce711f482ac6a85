package import PushCore
package import PushEvents

extension ConfigStore {
    /// Returns the maker of the record that announces a version of a template, for `publish` and `rollBack`.
    package static func records(
        of app: String,
        _ namespace: String,
        _ topics: KafkaTopics
    ) -> @Sendable (Int, ConfigUpdateType) -> OutgoingRecord {
        { version, type in
            ConfigPublishedRecord(
                project: app,
                namespace: namespace,
                version: version,
                updateType: type.rawValue
            ).record(topics)
        }
    }
}
