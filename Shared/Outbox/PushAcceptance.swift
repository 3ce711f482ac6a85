import Cryptography
package import JSON
package import PushCore
package import PushEvents
import PushProviders
package import PushStorage

/// Takes pushes in, whoever asks for them: judged, and kept together with the record that will carry
/// them to Kafka, in one transaction. Accepted means kept; what reaches Kafka is the relay's to say.
///
/// Whether the caller may ask for it is for whoever calls to say first.
package struct PushAcceptance: Sendable {
    let database: PushDatabase
    let topics: KafkaTopics

    /// What is accepted must reach Kafka, whose brokers take a little over 1,000,000 bytes a record
    /// where nobody has set another limit.
    package static let maximumRecordBytes = 1_000_000
    /// What may wait for its time at once, of one app.
    package static let maximumWaiting = 1000

    package init(_ database: PushDatabase, topics: KafkaTopics) {
        self.database = database
        self.topics = topics
    }

    /// Whose time a request's times are judged by, and its rows are due by.
    package var clock: DatabaseClock { database.clock }

    /// What names an event: the same event twice is one push.
    package struct Event: Sendable {
        package let app: String
        package let source: String
        package let id: String

        package init(app: String, source: String, id: String) {
            self.app = app
            self.source = source
            self.id = id
        }

        /// An event that nothing names: every call is another.
        package static func anonymous(app: String, source: String) -> Event {
            Event(app: app, source: source, id: Hex.encode(randomBytes(16)))
        }
    }

    /// A push that can be sent, and its record; nothing of it is kept yet.
    package struct Judged: Sendable {
        package let push: NewPush
        package let record: OutgoingRecord

        package var audience: PushRequest.Audience { push.request.audience }
    }

    /// Reads a push request and weighs what it becomes.
    ///
    /// - Parameters:
    ///   - body: The request, without what names an event.
    ///   - event: Its name.
    ///   - tellsID: `receipts` of its app: whether devices are told the push's id.
    ///   - now: When it came in, by `clock`.
    /// - Returns: What can be kept.
    /// - Throws: `PushRequestError` for what cannot be sent, `PushTooLarge` for what nobody could get.
    package func judge(
        _ body: JSONObject,
        _ event: Event,
        tellsID: Bool,
        now: Instant
    ) throws -> Judged {
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
        sent.tellsPushID = tellsID && PushIdentity.tellsID(source: event.source)
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
        return Judged(push: push, record: record)
    }

    /// Keeps a push. The same request key within five minutes is the same push, sent once; the same
    /// event always is.
    ///
    /// - Returns: The push as it is kept; that of the first time, where it is a repeat.
    /// - Throws: `TooManyWaiting` where it would wait for its time beside too many others.
    package func accept(_ judged: Judged, requestKey: String? = nil) async throws -> StoredPush {
        try await database.pushes.accept(
            judged.push,
            record: judged.record,
            requestKey: requestKey,
            maximumWaiting: Self.maximumWaiting
        )
    }

    /// Keeps pushes that are one to whoever asked for them, all or none; see `PushStore`.
    ///
    /// - Throws: `TooManyWaiting` where they would wait for their time beside too many others.
    package func accept(
        group eventID: String,
        neighbours: [String] = [],
        app: String,
        _ judged: [Judged]
    ) async throws -> PushStore.AcceptedGroup {
        try await database.pushes.accept(
            group: eventID,
            neighbours: neighbours,
            app: app,
            judged.map { ($0.push, $0.record) },
            maximumWaiting: Self.maximumWaiting
        )
    }
}

/// Content that no platform of its audience takes, or a record that Kafka does not.
package struct PushTooLarge: Error, Equatable, Sendable, CustomStringConvertible {
    package let description: String
}
