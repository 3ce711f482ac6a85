import Cryptography
import DeadLetters
import JSON
import Kafka
import Outbox
import PushCore
import PushEvents

/// The replay of one dead letter, for one app: what would happen now, and the record to write. Pure.
struct ReplayCheck: Sendable {
    enum Result: Sendable {
        /// It becomes a push.
        case push(PushRequest.Audience, id: String)
        /// Its event is a push already: a replay changes nothing.
        case known(pushID: String)
        /// Its topic's reader decides.
        case returned(topic: String)
        /// The app has no such type of objects, so nobody reads its topic.
        case undeclared(type: String)
        case fails(DeadLetterReason)
        /// It names another app, or no app any more.
        case otherApp
        /// Only the command replays records of this source.
        case byCommand
        case never(StoredDeadLetter.Obstacle)
        /// A header is not text, as the outbox needs it.
        case binaryHeader
    }

    let letter: StoredDeadLetter
    let app: String
    let topics: KafkaTopics
    /// Whether the app's devices get the push's id.
    let includesPushID: Bool
    let now: Instant

    /// Decides the result of a replay.
    ///
    /// - Parameter edited: The value in place of the record's own; `nil`: unchanged.
    /// - Returns: The result, never `known` or `undeclared`: this looks at nothing stored.
    func result(edited: [UInt8]? = nil) -> Result {
        let topic: String
        switch letter.replayTarget(topics) {
        case .none(let obstacle): return .never(obstacle)
        case .intake: return .byCommand
        case .kafka(let target): topic = target
        }
        guard letter.ownHeaders.allSatisfy(\.isText) else { return .binaryHeader }
        // The app of an ingested object is in its headers, which nobody can edit.
        if topic.hasPrefix(topics.ingestPrefix) { return .returned(topic: topic) }
        guard topic.isSame(as: topics.pushRequests) else { return .byCommand }
        do throws(DeadLetterReason) {
            let event = try event(edited)
            guard event.app.isSame(as: app) else { return .otherApp }
            try event.checkSize(
                includesPushID: includesPushID,
                in: record(edited),
                topics
            )
            return .push(event.request.audience, id: event.pushID { sha256($0) })
        } catch {
            return .fails(error)
        }
    }

    private func record(_ edited: [UInt8]?) -> IncomingRecord {
        var record = letter.original
        if let edited { record.value = edited }
        return record
    }

    private func event(_ edited: [UInt8]?) throws(DeadLetterReason) -> PushEvent {
        try PushEvent.decode(record(edited), now: now, topics: topics)
    }

    /// Returns the record to write. An event without an id of its own keeps the identity that its
    /// first position gave it, so that it becomes one push, however often it is replayed.
    func outgoing(edited: [UInt8]? = nil) -> OutgoingRecord {
        let record = record(edited)
        var headers = record.headers
        if record.topic.isSame(as: topics.pushRequests), let event = try? event(edited),
            event.source.isSame(as: record.topic),
            event.eventID == "\(record.topic)/\(record.partition)/\(record.offset)"
        {
            headers.append(RecordHeader("ce_id", event.eventID))
            headers.append(RecordHeader("ce_source", event.source))
        }
        return OutgoingRecord(
            topic: record.topic,
            key: record.key,
            value: record.value,
            headers: headers,
            queue: OutboxQueue.requests(of: app)
        )
    }
}

extension KafkaHeader {
    /// Whether it is text that Postgres stores.
    fileprivate var isText: Bool {
        !name.utf8.contains(0) && !value.contains(0)
            && String(validating: value, as: UTF8.self) != nil
    }
}
