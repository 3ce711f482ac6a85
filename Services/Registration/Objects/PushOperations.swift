import Apps
import Cryptography
import Door
import JSON
import PushCore
import PushEvents
import PushProviders
import PushStorage

/// Takes pushes in, whichever surface they come by: kept together with their outbox row in one
/// transaction. What reaches Kafka is the relay's to say.
struct PushOperations: Sendable {
    let database: PushDatabase
    let topics: KafkaTopics

    /// What is accepted must reach Kafka, whose brokers take a little over 1,000,000 bytes a record
    /// where nobody has set another limit.
    static let maximumRecordBytes = 1_000_000
    /// What may wait for its time at once, of one app.
    static let maximumWaiting = 1000

    /// Takes a push request (`PushRequest`) without what names an event. The same request key within
    /// five minutes is the same push, sent once; the same event id always is.
    ///
    /// - Returns: The push as it is kept; that of the first time, where it is a repeat.
    /// - Throws: `PushRequestError` for what cannot be sent, `ObjectError` 116 for what is too large,
    ///   119 for what the caller may not ask of whom it is for, 154 where too many pushes wait
    ///   already.
    func accept(
        _ body: JSONObject,
        requestKey: String? = nil,
        eventID: String? = nil,
        caller: Caller
    ) async throws -> StoredPush {
        guard caller.mayPush else { throw ObjectError.masterKeyNeeded(for: "Sending a push") }
        for field in ["app", "id", "source"] where body[field] != nil {
            throw ObjectError(
                code: 1,
                "\(field) belongs to a record on Kafka; over HTTP it is not taken."
            )
        }
        let now = Instant.now()
        let parsed = try PushRequest.parse(body, now: now)
        try caller.requireAskable(parsed.audience)
        let eventID = eventID ?? Hex.encode(randomBytes(16))
        let source = PushIdentity.httpSource
        let id = PushIdentity.pushID(
            app: caller.app.id,
            source: source,
            eventID: eventID,
            digest: { sha256($0) }
        )
        let record = PushEvent.encode(
            body,
            app: caller.app.id,
            source: source,
            eventID: eventID,
            topics: topics
        )
        guard (record.value?.count ?? 0) <= Self.maximumRecordBytes else {
            throw ObjectError(
                status: 413,
                code: 116,
                "The push is too large: at most \(Self.maximumRecordBytes) bytes."
            )
        }
        try parsed.requireSize(record)
        try caller.visit?.countPush(of: caller.app)
        let push = try await database.pushes.accept(
            NewPush(
                id: id,
                app: caller.app.id,
                eventSource: source,
                eventID: eventID,
                object: body,
                request: parsed,
                expiresAt: parsed.expiresAt(acceptedAt: now),
                releaseAt: parsed.releaseTime(acceptedAt: now)
            ),
            record: OutboxRecord(
                kafkaTopic: record.topic,
                key: record.key,
                value: record.value ?? []
            ),
            requestKey: requestKey,
            maximumWaiting: Self.maximumWaiting
        )
        caller.visit?.note(push.id)
        return push
    }
}

extension PushRequest {
    /// - Throws: `ObjectError` 116 for content that is too large for every platform of the request.
    fileprivate func requireSize(_ record: OutgoingRecord) throws {
        guard let error = tooLargeEverywhere(bytes: record.value?.count ?? 0) else { return }
        throw ObjectError(status: 413, code: 116, "The push cannot be sent: \(error.description).")
    }
}
