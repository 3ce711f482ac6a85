import JSON
package import PushCore

/// What became of one delivery, for the rest of the company: a record of `push.outcomes`.
package struct OutcomeRecord: Sendable, Equatable {
    package var pushID: String
    package var eventID: String
    package var app: String
    /// `nil` where the push named a token or a topic itself.
    package var installationID: String?
    /// What the ledger calls the device: the installation's id, else the token's hash. The record's
    /// key, so that what is about one device stays in order.
    package var target: String
    package var platform: Platform
    package var environment: PushEnvironment
    package var outcome: Outcome
    package var reason: String?
    package var status: Int?
    package var providerMessageID: String?
    /// Counts from 1; 0 where nothing was sent.
    package var attempt: Int
    package var at: Instant

    package init(
        pushID: String,
        eventID: String,
        app: String,
        installationID: String?,
        target: String,
        platform: Platform,
        environment: PushEnvironment,
        outcome: Outcome,
        reason: String?,
        status: Int?,
        providerMessageID: String?,
        attempt: Int,
        at: Instant
    ) {
        self.pushID = pushID
        self.eventID = eventID
        self.app = app
        self.installationID = installationID
        self.target = target
        self.platform = platform
        self.environment = environment
        self.outcome = outcome
        self.reason = reason
        self.status = status
        self.providerMessageID = providerMessageID
        self.attempt = attempt
        self.at = at
    }

    /// Written by hand: one for every delivery there is.
    package func encode(topics: KafkaTopics) -> OutgoingRecord {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(384)
        func member(_ name: StaticString, _ text: String?) {
            bytes.append(bytes.isEmpty ? UInt8(ascii: "{") : UInt8(ascii: ","))
            writeJSONString(name.description, into: &bytes)
            bytes.append(UInt8(ascii: ":"))
            if let text {
                writeJSONString(text, into: &bytes)
            } else {
                bytes.append(contentsOf: "null".utf8)
            }
        }
        func member(_ name: StaticString, _ number: Int) {
            bytes.append(UInt8(ascii: ","))
            writeJSONString(name.description, into: &bytes)
            bytes.append(UInt8(ascii: ":"))
            writeJSONInteger(Int64(number), into: &bytes)
        }
        member("pushId", pushID)
        member("eventId", eventID)
        member("app", app)
        member("installationId", installationID)
        member("provider", platform.rawValue)
        member("environment", environment == .none ? nil : environment.rawValue)
        member("outcome", outcome.rawValue)
        member("reason", reason)
        if let status { member("status", status) } else { member("status", nil as String?) }
        member("providerMessageId", providerMessageID)
        member("attempt", attempt)
        member("at", at.iso8601)
        bytes.append(UInt8(ascii: "}"))
        return OutgoingRecord(topic: topics.pushOutcomes, key: Array(target.utf8), value: bytes)
    }
}
