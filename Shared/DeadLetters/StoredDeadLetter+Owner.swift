import JSON
import Kafka
import PushCore
package import PushEvents

extension StoredDeadLetter {
    /// The limits of a value that is parsed for an app's name.
    private static let maximumBytes = 4 << 20
    private static let maximumValues = 200_000

    /// Returns the one app that may see the record: all names of apps in it are this app's id.
    ///
    /// - Parameter topics: Carillon's topics.
    /// - Returns: `nil` if the record names no app, or several, or something that is not an app's id.
    package func owner(_ topics: KafkaTopics) -> String? {
        let names = appNames(topics)
        guard let first = names.first, AppID.isWellFormed(first),
            names.allSatisfy({ $0.isSame(as: first) })
        else { return nil }
        return first
    }

    private func appNames(_ topics: KafkaTopics) -> [String] {
        var names = ownHeaders.filter { ["app", "ce_app"].contains($0.name.lowercased()) }
            .map { String(decoding: $0.value, as: UTF8.self) }
        // The app of an object that ingest received is in a header; its content is a device's.
        let isObject = source.hasPrefix(Self.httpMark) || source.hasPrefix(topics.ingestPrefix)
        guard !isObject, let value = record.value, value.count <= Self.maximumBytes else {
            return names
        }
        let member = source.isSame(as: topics.configPublished) ? "project" : "app"
        if let object = try? JSONValue.parse(value, maximumValues: Self.maximumValues),
            let name = object[member]
        {
            names.append(name.string ?? "")
        }
        // In an event's envelope, the app is that of its data.
        if let event = try? CloudEvent.unwrap(original, maximumBytes: Self.maximumBytes),
            let name = event.data[member]
        {
            names.append(name.string ?? "")
        }
        return names
    }

    /// The record as it was read before it became a dead letter.
    package var original: IncomingRecord {
        let place = sourcePlace.flatMap(ID.init(_:))
        return IncomingRecord(
            topic: source,
            partition: place?.partition ?? 0,
            offset: place?.offset ?? 0,
            key: record.key,
            value: record.value,
            headers: ownHeaders.map { RecordHeader($0.name, $0.value) }
        )
    }
}
