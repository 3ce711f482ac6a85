package import JSON
package import PushCore

/// An event that requests a push. Its identity is (app, source, id): the same event twice is one
/// push.
package struct PushEvent: Sendable, Equatable {
    package var app: String
    package var source: String
    package var eventID: String
    package var request: PushRequest
    /// The unchanged request, for the push's record.
    package var object: JSONObject

    /// Returns the id of the push that the event becomes.
    package func pushID(digest: Digest) -> String {
        PushIdentity.pushID(app: app, source: source, eventID: eventID, digest: digest)
    }
}

extension PushEvent {
    /// The limit of values that are parsed; brokers reject more than 1 MiB by default.
    private static let maximumBytes = 4 * 1024 * 1024

    /// Reads a record of `push.requests` or `PUSH_RC`: a plain JSON object, or a CloudEvent 1.0 in
    /// either of Kafka's modes.
    package static func decode(
        _ record: IncomingRecord,
        now: Instant,
        topics: KafkaTopics = KafkaTopics()
    ) throws(DeadLetterReason) -> PushEvent {
        var event = try CloudEvent.unwrap(record, maximumBytes: maximumBytes)
        if record.topic == topics.pushRC {
            do throws(PushRequestError) {
                event.data = try ConfigAnnouncementRecord.request(event.data, source: event.source)
            } catch {
                throw DeadLetterReason(error)
            }
        }
        let request: PushRequest
        do throws(PushRequestError) {
            request = try PushRequest.parse(event.data, now: now)
        } catch {
            throw DeadLetterReason(error)
        }
        guard let app = request.app else {
            throw DeadLetterReason(.missingApp, "app is missing: it names the app to push for")
        }
        var (source, id) = (event.source ?? request.source ?? "", event.id ?? request.id)
        if id == nil {
            // Only the record's position is the same in a redelivery.
            source = record.topic
            id = "\(record.topic)/\(record.partition)/\(record.offset)"
        }
        return PushEvent(
            app: app,
            source: source,
            eventID: id ?? "",
            request: request,
            object: event.data
        )
    }

    /// Returns the record that requests a push, as Registration's outbox and `carillon push send` write it. The
    /// object gets its identity, `id`, `source` and `app`, and the event's id is the key.
    package static func encode(
        _ object: JSONObject,
        app: String,
        source: String,
        eventID: String,
        topics: KafkaTopics
    ) -> OutgoingRecord {
        var object = object
        object["id"] = .string(eventID)
        object["source"] = .string(source)
        object["app"] = .string(app)
        return OutgoingRecord(
            topic: topics.pushRequests,
            key: Array(eventID.utf8),
            value: object.bytes,
            headers: [RecordHeader("content-type", "application/json")],
            queue: OutboxQueue.requests(of: app)
        )
    }
}
