package import PushCore

/// The answer to "why did this device get this push, or why not?".
package struct Explanation: Sendable, Equatable {
    package var app: String
    /// `nil`: why the device gets no push at all.
    package var pushID: String?
    /// The installation's object id.
    package var installationID: String
    /// The time at which the facts were read.
    package var asOf: Instant
    /// The time at which the push's audience was chosen; `nil` if it was not chosen yet.
    package var audienceAt: Instant?
    package var reason: Reason
    /// The answer, in one sentence.
    package var sentence: Phrase
    /// Further sentences, the most important first; often empty.
    package var notes: [Phrase]
    package var nextStep: Phrase
    /// The five steps, always all and in this order.
    package var steps: [Step]
    /// The conditions of the audience, with the first step.
    package var clauses: [Clause]
    /// The content, with the second step; `nil` if none would have been made.
    package var payload: Payload?
    /// The attempts that were stored, oldest first, with the fourth step.
    package var attempts: [Attempt]
    /// Causes that only the device can know, the most likely first, with the fifth step.
    package var causes: [Cause]
}

extension Explanation {
    /// The reason, as programs read it. `rawValue` is a part of the HTTP contract.
    package enum Reason: String, Sendable, CaseIterable {
        // The ten reasons for which a phone most often gets nothing.
        case notInAudienceThen, tokenInvalid, muted, wrongEnvironment, expired, tooLarge, suppressed
        case breaker, cancelled, neverConnected
        // Other reasons for which it was not selected.
        case notInAudience, inactive, registrationExpired, noToken, templatesOnly, switchedOff
        case installationUnknown
        // Other states of the push.
        case accepting, scheduled, planning, pushFailed, dryRun
        // Other states of the delivery.
        case waiting, retrying, sending, noCredential, wrongTopic, wrongSender, credentialRefused
        case rejected, inDoubt, topicMessage, accepted, received, opened
        /// The deliveries of the push are older than the retention.
        case forgotten
        /// It meets every condition, and nothing says why it has no delivery.
        case unknown
        /// Without a push: nothing that is known keeps pushes away.
        case reachable

        /// Whether the device, or its provider, has the push.
        package var isArrival: Bool {
            switch self {
            case .accepted, .received, .opened, .topicMessage, .reachable: true
            default: false
            }
        }
    }

    /// One of the five steps of a push.
    package struct Step: Sendable, Equatable {
        package enum Question: String, Sendable, CaseIterable {
            case audience, content, block, provider, device

            /// The question, in words.
            package var title: Phrase {
                switch self {
                case .audience: "Was it in the audience?"
                case .content: "What was sent?"
                case .block: "Was it blocked?"
                case .provider: "What did the provider answer?"
                case .device: "What did the device report?"
                }
            }
        }

        package enum State: String, Sendable {
            /// Passed: the push went further.
            case passed
            /// The push ended or waits here.
            case stopped
            /// The push did not come so far.
            case notReached
        }

        package let question: Question
        package let state: State
        package let summary: Phrase
        package let facts: [Fact]

        package init(_ question: Question, _ state: State, _ summary: Phrase, _ facts: [Fact] = [])
        {
            self.question = question
            self.state = state
            self.summary = summary
            self.facts = facts
        }
    }

    /// One value, and the time that it is of.
    package struct Fact: Sendable, Equatable {
        package enum Tense: String, Sendable {
            /// The present value. It may have been different at the push's time.
            case now
            /// The value at the time of the push.
            case then
            /// The value at the time of the push, which was not stored.
            case notStored
        }

        package let label: Phrase
        /// `nil` only for `notStored`.
        package let value: Phrase.Value?
        package let tense: Tense

        package init(_ label: Phrase, _ value: Phrase.Value?, _ tense: Tense = .then) {
            self.label = label
            self.value = value
            self.tense = tense
        }
    }

    /// One condition of the audience, evaluated for the device.
    package struct Clause: Sendable, Equatable {
        package let condition: Phrase
        /// Whether the device meets it now; `nil` if that could not be evaluated.
        package let now: Bool?
        /// The device's present value; `nil` if it is secret, or there is no single value.
        package let value: String?
        /// Whether the device met it when the audience was chosen; `nil` if that is not stored.
        package let then: Bool?

        package init(_ condition: Phrase, now: Bool?, value: String? = nil, then: Bool?) {
            self.condition = condition
            self.now = now
            self.value = value
            self.then = then
        }
    }

    /// One attempt to send.
    package struct Attempt: Sendable, Equatable {
        /// 1 for the first.
        package let number: Int
        package let provider: Platform
        /// The status of the answer; `nil` if there was none.
        package let status: Int?
        package let reason: String?
        /// The time at which the answer was recorded.
        package let at: Instant
        /// The provider's id of the notification, such as `apns-id`.
        package let messageID: String?

        package init(
            number: Int,
            provider: Platform,
            status: Int?,
            reason: String?,
            at: Instant,
            messageID: String? = nil
        ) {
            self.number = number
            self.provider = provider
            self.status = status
            self.reason = reason
            self.at = at
            self.messageID = messageID
        }
    }

    /// The content for the device, made again from the stored push and the device as it is now.
    package struct Payload: Sendable, Equatable {
        package let platform: Platform
        /// The push's language for this device; `nil` for its default texts.
        package let locale: String?
        package let bytes: Int
        /// The body that the provider gets, without the token. Shown only to callers that may see
        /// content.
        package let body: String
        /// Why no content could be made; `nil` if it was made.
        package let problem: String?

        package init(
            platform: Platform,
            locale: String?,
            bytes: Int,
            body: String,
            problem: String? = nil
        ) {
            self.platform = platform
            self.locale = locale
            self.bytes = bytes
            self.body = body
            self.problem = problem
        }
    }

    /// A cause that only the device can know.
    package struct Cause: Sendable, Equatable {
        package enum Rank: String, Sendable, Comparable {
            case likely, possible, unlikely

            private var order: Int {
                switch self {
                case .likely: 0
                case .possible: 1
                case .unlikely: 2
                }
            }

            package static func < (a: Rank, b: Rank) -> Bool { a.order < b.order }
        }

        package let rank: Rank
        package let cause: Phrase
        /// The reason for the rank.
        package let why: Phrase

        package init(_ rank: Rank, _ cause: Phrase, _ why: Phrase) {
            self.rank = rank
            self.cause = cause
            self.why = why
        }
    }
}
