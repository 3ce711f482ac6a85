import JSON
package import PushCore

/// What became of one delivery, for the rest of the company: a record of `push.outcomes`, but for
/// what all deliveries of a push share, which is its `OutcomeWriter`'s.
package struct OutcomeRecord: Sendable, Equatable {
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
}

/// Writes the outcomes of one push, one for every delivery there is: what they have in common is
/// rendered once, and so is the second that most of them share.
package struct OutcomeWriter: Sendable {
    /// The object as far as it is the push's, up to the installation's id.
    private let beginning: [UInt8]
    private var bytes: [UInt8] = []
    private var second = Int64.min
    /// `second` as text, with the point after it.
    private var secondText: [UInt8] = []

    package init(pushID: String, eventID: String, app: String) {
        var beginning: [UInt8] = []
        for (name, value) in [("pushId", pushID), ("eventId", eventID), ("app", app)] {
            beginning.append(beginning.isEmpty ? UInt8(ascii: "{") : UInt8(ascii: ","))
            writeJSONString(name, into: &beginning)
            beginning.append(UInt8(ascii: ":"))
            writeJSONString(value, into: &beginning)
        }
        beginning.append(contentsOf: ",\"installationId\":".utf8)
        self.beginning = beginning
        bytes.reserveCapacity(512)
    }

    package mutating func encode(_ outcome: OutcomeRecord, topic: String) -> OutgoingRecord {
        OutgoingRecord(
            topic: topic,
            key: Array(outcome.target.utf8),
            value: value(of: outcome)
        )
    }

    private mutating func value(of outcome: OutcomeRecord) -> [UInt8] {
        bytes.removeAll(keepingCapacity: true)
        bytes.append(contentsOf: beginning)
        append(outcome.installationID)
        put(#","provider":""#)
        bytes.append(contentsOf: outcome.platform.rawValue.utf8)
        put(#"","environment":"#)
        append(outcome.environment == .none ? nil : outcome.environment.rawValue)
        put(#","outcome":""#)
        bytes.append(contentsOf: outcome.outcome.rawValue.utf8)
        put(#"","reason":"#)
        append(outcome.reason)
        put(#","status":"#)
        if let status = outcome.status { append(status) } else { put("null") }
        put(#","providerMessageId":"#)
        append(outcome.providerMessageID)
        put(#","attempt":"#)
        append(outcome.attempt)
        put(#","at":""#)
        append(outcome.at)
        put(#""}"#)
        return Array(bytes[...])
    }

    /// As it is.
    private mutating func put(_ text: StaticString) {
        unsafe bytes.append(
            contentsOf: UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount)
        )
    }

    private mutating func append(_ number: Int) {
        // Attempts and statuses.
        if (0..<10).contains(number) {
            bytes.append(UInt8(ascii: "0") + UInt8(number))
        } else {
            writeJSONInteger(Int64(number), into: &bytes)
        }
    }

    /// In quotes, or `null`.
    private mutating func append(_ text: String?) {
        guard let text else { return put("null") }
        let isPlain = text.utf8.allSatisfy {
            $0 >= 0x20 && $0 != UInt8(ascii: "\"") && $0 != UInt8(ascii: "\\")
        }
        guard isPlain else { return writeJSONString(text, into: &bytes) }
        bytes.append(UInt8(ascii: "\""))
        bytes.append(contentsOf: text.utf8)
        bytes.append(UInt8(ascii: "\""))
    }

    private mutating func append(_ time: Instant) {
        if time.seconds != second {
            second = time.seconds
            secondText = Array(Instant(seconds: second).iso8601.utf8.dropLast(4))
        }
        bytes.append(contentsOf: secondText)
        let rest = time.milliseconds - second * 1000
        for digit in [rest / 100, rest / 10 % 10, rest % 10] {
            bytes.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: digit))
        }
        bytes.append(UInt8(ascii: "Z"))
    }
}
