package import JSON
package import PushCore

/// An event that asks for a push. It is known by (app, source, id): the same event twice is one
/// push.
package struct PushEvent: Sendable, Equatable {
    package var app: String
    package var source: String
    package var eventID: String
    package var request: PushRequest
    /// The request as it came, for the push's record.
    package var object: JSONObject

    /// The push that the event becomes.
    package func pushID(digest: Digest) -> String {
        PushIdentity.pushID(app: app, source: source, eventID: eventID, digest: digest)
    }
}

extension PushEvent {
    /// The largest value that is looked at; brokers refuse more than 1 MiB by default.
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
                event.data = try ConfigAnnouncement.request(event.data, source: event.source)
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
            // Where the record stands is the one thing that a redelivery shares with it.
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

    /// The record that asks for a push: what Registration's outbox and `carillon push send` write.
    /// The object gets the `id`, `source` and `app` it is known by, and the event's id is the key.
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
            headers: [RecordHeader("content-type", "application/json")]
        )
    }
}
