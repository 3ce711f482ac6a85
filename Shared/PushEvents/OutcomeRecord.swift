import JSON
package import PushCore

/// The outcome of one delivery, for other systems of the company: a record of `push.outcomes`,
/// without the names of its push.
package struct OutcomeRecord: Sendable, Equatable {
    /// `nil` if the push named a token or a topic itself.
    package var installationID: String?
    /// The device's name in the ledger: the installation's id, else the token's hash. It is the
    /// record's key, so that records about one device stay in order.
    package var target: String
    package var platform: Platform
    package var environment: PushEnvironment
    package var outcome: Outcome
    package var reason: String?
    package var status: Int?
    package var providerMessageID: String?
    /// The number of the attempt, from 1; 0 if nothing was sent.
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

/// A writer of outcomes, one for every delivery. Parts that equal those of the previous one are not
/// rendered again: the push and its app, the destination and the outcome, and the second.
package struct OutcomeWriter: Sendable {
    /// The part between an installation's id and the provider's.
    private struct Middle: Sendable, Equatable {
        var platform: Platform
        var environment: PushEnvironment
        var outcome: Outcome
        var reason: String?
        var status: Int?
    }

    private var pushID = ""
    private var eventID = ""
    private var app = ""
    /// The beginning of the object that belongs to the push, up to the installation's id.
    private var beginning: [UInt8] = []
    private var middle: Middle?
    private var middleText: [UInt8] = []
    private var second = Int64.min
    /// `second` as text, with the point after it.
    private var secondText: [UInt8] = []

    package init() {}

    /// Appends the value of the record, whose key is the outcome's `target`.
    package mutating func write(
        _ outcome: OutcomeRecord,
        pushID: String,
        eventID: String,
        app: String,
        into bytes: inout [UInt8]
    ) {
        if !pushID.isSame(as: self.pushID) || !eventID.isSame(as: self.eventID)
            || !app.isSame(as: self.app) || beginning.isEmpty
        {
            begin(pushID: pushID, eventID: eventID, app: app)
        }
        bytes.append(contentsOf: beginning)
        append(outcome.installationID, to: &bytes)
        let middle = Middle(
            platform: outcome.platform,
            environment: outcome.environment,
            outcome: outcome.outcome,
            reason: outcome.reason,
            status: outcome.status
        )
        if middle != self.middle { render(middle) }
        bytes.append(contentsOf: middleText)
        append(outcome.providerMessageID, to: &bytes)
        put(#","attempt":"#, to: &bytes)
        append(outcome.attempt, to: &bytes)
        put(#","at":""#, to: &bytes)
        append(outcome.at, to: &bytes)
        put(#""}"#, to: &bytes)
    }

    private mutating func begin(pushID: String, eventID: String, app: String) {
        (self.pushID, self.eventID, self.app) = (pushID, eventID, app)
        beginning.removeAll(keepingCapacity: true)
        var text = beginning
        beginning = []
        put(#"{"pushId":"#, to: &text)
        append(pushID, to: &text)
        put(#","eventId":"#, to: &text)
        append(eventID, to: &text)
        put(#","app":"#, to: &text)
        append(app, to: &text)
        put(#","installationId":"#, to: &text)
        beginning = text
    }

    private mutating func render(_ middle: Middle) {
        var text: [UInt8] = []
        put(#","provider":""#, to: &text)
        text.append(contentsOf: middle.platform.rawValue.utf8)
        put(#"","environment":"#, to: &text)
        append(middle.environment == .none ? nil : middle.environment.rawValue, to: &text)
        put(#","outcome":""#, to: &text)
        text.append(contentsOf: middle.outcome.rawValue.utf8)
        put(#"","reason":"#, to: &text)
        append(middle.reason, to: &text)
        put(#","status":"#, to: &text)
        if let status = middle.status { append(status, to: &text) } else { put("null", to: &text) }
        put(#","providerMessageId":"#, to: &text)
        self.middle = middle
        middleText = text
    }

    /// Appends a string unchanged.
    private func put(_ text: StaticString, to bytes: inout [UInt8]) {
        unsafe bytes.append(
            contentsOf: UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount)
        )
    }

    private func append(_ number: Int, to bytes: inout [UInt8]) {
        // Attempts have one digit.
        if (0..<10).contains(number) {
            bytes.append(UInt8(ascii: "0") + UInt8(number))
        } else {
            writeJSONInteger(Int64(number), into: &bytes)
        }
    }

    /// Appends a string in quotes, or `null`.
    private func append(_ text: String?, to bytes: inout [UInt8]) {
        guard let text else { return put("null", to: &bytes) }
        let isPlain = text.utf8.allSatisfy {
            $0 >= 0x20 && $0 != UInt8(ascii: "\"") && $0 != UInt8(ascii: "\\")
        }
        guard isPlain else { return writeJSONString(text, into: &bytes) }
        bytes.append(UInt8(ascii: "\""))
        bytes.append(contentsOf: text.utf8)
        bytes.append(UInt8(ascii: "\""))
    }

    private mutating func append(_ time: Instant, to bytes: inout [UInt8]) {
        if time.seconds != second {
            second = time.seconds
            secondText = Array(Instant(seconds: second).iso8601.utf8.dropLast(4))
        }
        bytes.append(contentsOf: secondText)
        let rest = time.milliseconds - second * 1000
        bytes.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest / 100))
        bytes.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest / 10 % 10))
        bytes.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest % 10))
        bytes.append(UInt8(ascii: "Z"))
    }
}
