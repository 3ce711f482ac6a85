package import PushCore

/// The reason why a record cannot be processed. `reason` is a closed set, `detail` is for people;
/// neither contains a token or a payload.
package struct DeadLetterReason: Error, Equatable, Sendable {
    package enum Reason: String, Sendable, CaseIterable {
        case emptyValue = "empty_value"
        case invalidJSON = "invalid_json"
        case notAnObject = "not_an_object"
        case invalidCloudEvent = "invalid_cloudevent"
        case missingApp = "missing_app"
        case unknownApp = "unknown_app"
        case unknownPool = "unknown_pool"
        case unknownType = "unknown_type"
        case invalidID = "invalid_id"
        case invalidRequest = "invalid_request"
        case tooLarge = "too_large"
        /// Readable, but rejected by the database for its values.
        case notStorable = "not_storable"
    }

    package let reason: Reason
    package let detail: String

    package init(_ reason: Reason, _ detail: String) {
        self.reason = reason
        self.detail = detail
    }

    package init(_ error: PushRequestError) {
        self.init(.invalidRequest, error.description)
    }

    package static func unknownPool(_ pool: String) -> DeadLetterReason {
        DeadLetterReason(.unknownPool, "no app is linked to an identity pool \(pool.prefix(64))")
    }

    package static func unknownApp(_ app: String) -> DeadLetterReason {
        DeadLetterReason(.unknownApp, "there is no app \(app.prefix(64))")
    }
}

extension OutgoingRecord {
    /// The header of a dead letter whose content was too large for the topic; its value is the next constant.
    package static let deadLetterContentHeader = "error.content"
    package static let deadLetterContentOmitted = "omitted"

    /// Returns the original record, with headers that contain the reason and its position. A record
    /// that was a dead letter before has only the latest of these.
    ///
    /// - Parameters:
    ///   - record: The original record.
    ///   - reason: The reason.
    ///   - topics: Our topics.
    ///   - isContentKept: Whether key, value and the record's own headers are included. If the
    ///     broker rejects them as too large, the rest still names the record's position.
    /// - Returns: The record for `push.dead-letters`.
    package static func deadLetter(
        _ record: IncomingRecord,
        because reason: DeadLetterReason,
        topics: KafkaTopics,
        isContentKept: Bool = true
    ) -> OutgoingRecord {
        var detail = reason.detail
        if !isContentKept {
            detail += "; \(record.value?.count ?? 0) bytes, too large for this topic, are left out"
        }
        var added = [
            RecordHeader("error.reason", reason.reason.rawValue),
            RecordHeader("error.detail", detail),
            RecordHeader("source.topic", record.topic),
            RecordHeader("source.partition", String(record.partition)),
            RecordHeader("source.offset", String(record.offset)),
        ]
        guard isContentKept else {
            added.append(RecordHeader(deadLetterContentHeader, deadLetterContentOmitted))
            return OutgoingRecord(
                topic: topics.deadLetters,
                key: nil,
                value: nil,
                headers: added
            )
        }
        let kept = record.headers.filter { header in
            header.name != deadLetterContentHeader && !added.contains { $0.name == header.name }
        }
        return OutgoingRecord(
            topic: topics.deadLetters,
            key: record.key,
            value: record.value,
            headers: kept + added
        )
    }
}
