import JSON
package import PushCore

/// The new count of a dataset, here or in another system: a record of `dataset.changes`.
package enum DatasetChangedRecord {
    private static let maximumBytes = 64 * 1024
    /// The range that every client reads exactly.
    private static let counts = 1...1 << 53
    private static let maximumDeviceCharacters = 256
    /// Marks changes that were written here: their dataset exists, or was deleted since.
    private static let ownOrigin = PushIdentity.syncSource

    /// Reads a plain JSON object, or a CloudEvent 1.0 in either of Kafka's modes.
    package static func decode(_ record: IncomingRecord) throws(DeadLetterReason) -> DatasetChange {
        let object = try CloudEvent.unwrap(record, maximumBytes: maximumBytes).data
        let count = object["syncCount"].flatMap { value in
            value.integer ?? value.string.flatMap(wholeNumber)
        }
        let pool = try text("identityPoolId", of: object, "a pool's id", SyncID.isWellFormed)
        let identity = try text("identityId", of: object, "an identity's id", SyncID.isWellFormed)
        let dataset = try text("datasetName", of: object, "a dataset's name", SyncID.isDatasetName)
        guard let count, counts.contains(count) else {
            throw DeadLetterReason(
                .invalidRequest,
                "syncCount must be a whole number or its decimal text, 1 to 2^53"
            )
        }
        return DatasetChange(
            pool: pool,
            identity: identity,
            dataset: dataset,
            syncCount: count,
            device: try device(of: object),
            isOwn: record.headers.contains {
                $0.name == RecordHeader.origin && $0.value == Array(ownOrigin.utf8)
            }
        )
    }

    /// Returns the record for a dataset of an app that is changed here.
    package static func record(
        _ change: DatasetChange,
        of app: String,
        _ topics: KafkaTopics
    ) -> OutgoingRecord {
        var object: JSONObject = [
            "identityPoolId": .string(change.pool), "identityId": .string(change.identity),
            "datasetName": .string(change.dataset), "syncCount": JSONValue(change.syncCount),
        ]
        object["deviceId"] = change.device.map(JSONValue.string)
        return OutgoingRecord(
            topic: topics.datasetChanges,
            key: Array(change.identity.utf8),
            value: object.bytes,
            headers: [
                RecordHeader("content-type", "application/json"),
                RecordHeader(RecordHeader.origin, ownOrigin),
            ],
            queue: OutboxQueue.requests(of: app)
        )
    }

    private static func text(
        _ field: String,
        of object: JSONObject,
        _ what: String,
        _ isValid: (String) -> Bool
    ) throws(DeadLetterReason) -> String {
        guard let text = object[field]?.string, isValid(text) else {
            throw DeadLetterReason(.invalidRequest, "\(field) must be \(what)")
        }
        return text
    }

    private static func device(of object: JSONObject) throws(DeadLetterReason) -> String? {
        guard let value = object["deviceId"], !value.isNull else { return nil }
        guard let text = value.string, !text.utf8.contains(0),
            (1...maximumDeviceCharacters).contains(text.unicodeScalars.count)
        else {
            throw DeadLetterReason(
                .invalidRequest,
                "deviceId must be a text of 1 to \(maximumDeviceCharacters) characters"
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
