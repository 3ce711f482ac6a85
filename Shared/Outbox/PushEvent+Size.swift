import PushCore
package import PushEvents
import PushProviders

extension PushEvent {
    /// Rejects an event that is too large for all platforms of its request. A push that came over
    /// HTTP was accepted already: each of its deliveries fails by itself.
    ///
    /// - Parameters:
    ///   - includesPushID: `receipts` of its app: whether devices get the push's id.
    ///   - record: The event's record.
    ///   - topics: Our topics.
    /// - Throws: `DeadLetterReason`.
    package func checkSize(
        includesPushID: Bool,
        in record: IncomingRecord,
        _ topics: KafkaTopics
    ) throws(DeadLetterReason) {
        var request = request
        if includesPushID { request.includesPushID = PushIdentity.includesPushID(source: source) }
        let wasAccepted = PushIdentity.isOwn(source: source) && record.topic != topics.pushRC
        guard !wasAccepted,
            let error = request.tooLargeEverywhere(bytes: record.value?.count ?? 0)
        else { return }
        throw DeadLetterReason(.tooLarge, error.description)
    }
}
