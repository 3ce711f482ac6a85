import Cryptography
package import JSON
package import PushCore
package import PushEvents
import PushProviders
package import PushStorage
package import Storage

/// Accepts pushes from any surface: validates them, and stores each together with its Kafka record,
/// in one transaction. Accepted means stored; the relay is responsible for Kafka.
///
/// The caller must check authorization first.
package struct PushAcceptance: Sendable {
    let database: PushDatabase
    package let topics: KafkaTopics

    /// The limit of a record: accepted pushes must reach Kafka, whose brokers take a little over
    /// 1,000,000 bytes a record by default.
    package static let maximumRecordBytes = 1_000_000
    /// The most scheduled pushes of one app.
    package static let maximumWaiting = 1000

    package init(_ database: PushDatabase, topics: KafkaTopics) {
        self.database = database
        self.topics = topics
    }

    /// The clock by which a request's times are validated, and its rows become due.
    package var clock: DatabaseClock { database.clock }

    /// The identity of an event: the same event twice is one push.
    package struct Event: Sendable {
        package let app: String
        package let source: String
        package let id: String

        package init(app: String, source: String, id: String) {
            self.app = app
            self.source = source
            self.id = id
        }

        /// Makes an event without an id: every call is another.
        package static func anonymous(app: String, source: String) -> Event {
            Event(app: app, source: source, id: Hex.encode(randomBytes(16)))
        }
    }

    /// A valid push and its record; nothing of it is stored yet.
    package struct ValidatedPush: Sendable {
        package let push: NewPush
        package let record: OutgoingRecord

        package var audience: PushRequest.Audience { push.request.audience }
    }

    /// Parses a push request and checks the size of its notifications.
    ///
    /// - Parameters:
    ///   - body: The request, without the event's identity.
    ///   - event: The event's identity.
    ///   - includesPushID: `receipts` of its app: whether devices get the push's id.
    ///   - now: When it arrived, by `clock`.
    /// - Returns: The push to store.
    /// - Throws: `PushRequestError` if the request is invalid, `PushTooLarge` if no device could
    ///   receive it.
    package func validate(
        _ body: JSONObject,
        _ event: Event,
        includesPushID: Bool,
        now: Instant
    ) throws -> ValidatedPush {
        let request = try PushRequest.parse(body, now: now)
        let record = PushEvent.encode(
            body,
            app: event.app,
            source: event.source,
            eventID: event.id,
            topics: topics
        )
        let size = record.value?.count ?? 0
        guard size <= Self.maximumRecordBytes else {
            throw PushTooLarge(
                description: "The push is too large: at most \(Self.maximumRecordBytes) bytes."
            )
        }
        var sent = request
        sent.includesPushID = includesPushID && PushIdentity.includesPushID(source: event.source)
        if let error = sent.tooLargeEverywhere(bytes: size) {
            throw PushTooLarge(description: "The push cannot be sent: \(error.description).")
        }
        let push = NewPush(
            id: PushIdentity.pushID(
                app: event.app,
                source: event.source,
                eventID: event.id,
                digest: { sha256($0) }
            ),
            app: event.app,
            eventSource: event.source,
            eventID: event.id,
            object: body,
            request: request,
            expiresAt: request.expiresAt(acceptedAt: now),
            releaseAt: request.releaseTime(acceptedAt: now)
        )
        return ValidatedPush(push: push, record: record)
    }

    /// Stores a push. The same request key within five minutes is the same push, sent once; the
    /// same event always is.
    ///
    /// - Returns: The stored push; the first one, for a duplicate.
    /// - Throws: `TooManyScheduled` if too many others are scheduled.
    package func accept(_ validated: ValidatedPush, requestKey: String? = nil) async throws
        -> StoredPush
    {
        try await database.pushes.accept(
            validated.push,
            record: validated.record,
            requestKey: requestKey,
            maximumWaiting: Self.maximumWaiting
        )
    }

    /// Stores pushes that are one for the caller, all or none; see `PushStore`.
    ///
    /// - Throws: `TooManyScheduled` if too many others are scheduled.
    package func accept(
        group eventID: String,
        neighbours: [String] = [],
        app: String,
        _ validated: [ValidatedPush]
    ) async throws -> PushStore.AcceptedGroup {
        try await database.pushes.accept(
            group: eventID,
            neighbours: neighbours,
            app: app,
            validated.map { ($0.push, $0.record) },
            maximumWaiting: Self.maximumWaiting
        )
    }
}

/// Content too large for every platform of its audience, or a record too large for Kafka.
package struct PushTooLarge: Error, Equatable, Sendable, CustomStringConvertible {
    package let description: String
}
