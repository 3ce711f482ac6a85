import JSON
package import PushCore

/// The publish of a remote config template, here or by another system: a record of
/// `config.published`.
package struct ConfigPublishedRecord: Sendable, Equatable {
    /// An app's id, or a name that is linked to it.
    package var project: String
    package var namespace: String
    package var version: Int
    package var updateType: String

    package static let clientNamespace = "firebase"
    package static let serverNamespace = "firebase-server"

    /// The range that every client reads exactly.
    private static let versions = 1...1 << 53
    private static let maximumBytes = 64 * 1024
    private static let maximumTextBytes = 128

    package init(project: String, namespace: String, version: Int, updateType: String) {
        self.project = project
        self.namespace = namespace
        self.version = version
        self.updateType = updateType
    }

    /// Reads a plain JSON object, or a CloudEvent 1.0 in either of Kafka's modes.
    package static func decode(
        _ record: IncomingRecord
    ) throws(DeadLetterReason) -> ConfigPublishedRecord {
        let object = try CloudEvent.unwrap(record, maximumBytes: maximumBytes).data
        guard let project = try text("project", of: object) else {
            throw DeadLetterReason(.missingApp, "project is missing: an app or its linked name")
        }
        let namespace = try text("namespace", of: object) ?? clientNamespace
        guard namespace == clientNamespace || namespace == serverNamespace else {
            throw DeadLetterReason(
                .invalidRequest,
                "namespace must be \(clientNamespace) or \(serverNamespace)"
            )
        }
        let version =
            object["version"].flatMap { value in
                value.integer ?? value.string.flatMap(wholeNumber)
            }
        guard let version, versions.contains(version) else {
            throw DeadLetterReason(
                .invalidRequest,
                "version must be a whole number or its decimal text, 1 to 2^53"
            )
        }
        return ConfigPublishedRecord(
            project: project,
            namespace: namespace,
            version: version,
            updateType: try text("updateType", of: object) ?? "INCREMENTAL_UPDATE"
        )
    }

    /// Returns the record for a template that is published here.
    package func record(_ topics: KafkaTopics) -> OutgoingRecord {
        let object: JSONObject = [
            "project": .string(project), "namespace": .string(namespace),
            "version": .string(String(version)), "updateType": .string(updateType),
        ]
        return OutgoingRecord(
            topic: topics.configPublished,
            key: Array(project.utf8),
            value: object.bytes,
            headers: [RecordHeader("content-type", "application/json")],
            orderKey: "config/" + project,
            queue: OutboxQueue.requests(of: project)
        )
    }

    /// Returns the announcement to clients that it is current: a record of `PUSH_RC`, in the shape of FCM's topic
    /// message.
    ///
    /// - Parameters:
    ///   - spreadSeconds: The time over which clients are notified, and may wait themselves; 0: at once.
    ///   - topics: Our topics.
    /// - Returns: The record, with `project` as its app.
    package func announcement(spreadSeconds: Int, _ topics: KafkaTopics) -> OutgoingRecord {
        var data: JSONObject = [
            "CONFIG_STATE": "STALE", "CONFIG_VERSION": .string(String(version)),
        ]
        if spreadSeconds > 0 { data["CONFIG_SPREAD_SECONDS"] = .string(String(spreadSeconds)) }
        var object: JSONObject = [
            "id": .string("config/\(namespace)/\(version)"), "source": .string(Self.source),
            "app": .string(project), "topic": .string(Self.audienceTopic), "data": .object(data),
            "configVersion": .string(String(version)), "namespace": .string(namespace),
            "updateType": .string(updateType),
        ]
        if spreadSeconds > 0 { object["spread"] = JSONValue(spreadSeconds) }
        return OutgoingRecord(
            topic: topics.pushRC,
            key: Array(project.utf8),
            value: object.bytes,
            headers: [RecordHeader("content-type", "application/json")],
            orderKey: "config/" + project,
            queue: OutboxQueue.requests(of: project)
        )
    }

    /// The source of announcements among events.
    package static let source = PushIdentity.configSource
    /// The topic that clients subscribe to.
    package static let audienceTopic = "PUSH_RC"

    private static func text(
        _ field: String,
        of object: JSONObject
    ) throws(DeadLetterReason) -> String? {
        guard let value = object[field], !value.isNull else { return nil }
        guard let text = value.string, (1...maximumTextBytes).contains(text.utf8.count),
            !text.utf8.contains(0)
        else {
            throw DeadLetterReason(
                .invalidRequest,
                "\(field) must be a text of 1 to \(maximumTextBytes) bytes"
            )
        }
        return text
    }

    /// Parses digits only: `Int` accepts a sign.
    private static func wholeNumber(_ text: String) -> Int? {
        guard text.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }) else {
            return nil
        }
        return Int(text)
    }
}
