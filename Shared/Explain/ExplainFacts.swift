package import PushCore
package import PushStorage

/// The facts about a push and an installation, as they were read at one time.
package struct ExplainFacts: Sendable {
    package var app: String
    /// The installation's object id.
    package var installationID: String
    package var asOf: Instant
    package var settings = AppSettings()
    /// `nil`: why the device gets no push at all.
    package var push: Push?
    /// `nil`: there is no such installation now.
    package var device: Device?
    package var delivery: Delivery?
    /// The shard of a broadcast that covers the device; `nil` if there is none.
    package var shard: Shard?
    package var clauses: [ClauseVerdict] = []
    package var payload: Explanation.Payload?
    package var receipts: [Receipt] = []
    /// The time of the device's last report about any push.
    package var lastReport: Instant?
    /// The message that waits at a connection node.
    package var message: Message?
    /// Why the provider has no usable credential for the device; `nil` if it has one.
    package var credentialProblem: LocalFailure?
    package var trouble: Trouble?
    /// The cancellation of the push, if the audit has it.
    package var cancelled: Deed?
    /// The deletion of the installation, if the audit has it.
    package var deleted: Deed?

    package init(app: String, installationID: String, asOf: Instant) {
        self.app = app
        self.installationID = installationID
        self.asOf = asOf
    }

    package struct Push: Sendable {
        package var stored: StoredPush
        /// `nil` if this version cannot read the request.
        package var request: PushRequest?
        /// The time at which the audience was chosen; `nil` if it was not yet.
        package var audienceAt: Instant?
        /// Whether deliveries of it are stored, to any device.
        package var hasDeliveries = true

        package init(_ stored: StoredPush, request: PushRequest?, audienceAt: Instant?) {
            self.stored = stored
            self.request = request
            self.audienceAt = audienceAt
        }

        /// Whether it reaches the devices of FCM by one message to a topic.
        var isForTopic: Bool { if case .topic? = request?.audience { true } else { false } }
    }

    package struct Device: Sendable {
        package var installation: Installation
        /// The time at which it became invalid or was muted; `nil` if it is valid, or the time was
        /// not stored.
        package var invalidatedAt: Instant?

        package init(_ installation: Installation, invalidatedAt: Instant? = nil) {
            self.installation = installation
            self.invalidatedAt = invalidatedAt
        }
    }

    /// The delivery to the device, or to the topic that the device follows.
    package struct Delivery: Sendable {
        package var provider: Platform
        package var environment: PushEnvironment
        package var state: DeliveryState
        package var attempts: Int
        package var status: Int?
        package var reason: String?
        package var messageID: String?
        package var isOwned = false
        package var isToTopic = false
        /// The time of the last change of its row.
        package var updatedAt: Instant
        package var dueAt: Instant?
        package var expiresAt: Instant?
        /// The attempts before the last one.
        package var earlier: [Explanation.Attempt] = []

        package init(
            provider: Platform,
            environment: PushEnvironment = .none,
            state: DeliveryState,
            attempts: Int = 1,
            status: Int? = nil,
            reason: String? = nil,
            messageID: String? = nil,
            updatedAt: Instant,
            dueAt: Instant? = nil,
            expiresAt: Instant? = nil
        ) {
            self.provider = provider
            self.environment = environment
            self.state = state
            self.attempts = attempts
            self.status = status
            self.reason = reason
            self.messageID = messageID
            self.updatedAt = updatedAt
            self.dueAt = dueAt
            self.expiresAt = expiresAt
        }
    }

    package struct Shard: Sendable {
        /// Whether its members were stored when it was cut, and the device is one; `nil` if they
        /// are found by their ids at their turn.
        package var isMember: Bool?
        /// Whether all members up to the device are recorded.
        package var isPassed: Bool
        package var isFinished: Bool
        package var isOwned: Bool
        package var dueAt: Instant
        /// The number of members that were not sent to, as the push was cancelled.
        package var cancelled: Int

        package init(
            isMember: Bool?,
            isPassed: Bool,
            isFinished: Bool,
            isOwned: Bool = false,
            dueAt: Instant,
            cancelled: Int = 0
        ) {
            self.isMember = isMember
            self.isPassed = isPassed
            self.isFinished = isFinished
            self.isOwned = isOwned
            self.dueAt = dueAt
            self.cancelled = cancelled
        }
    }

    /// A condition of the audience, and whether the device meets it now.
    package struct ClauseVerdict: Sendable, Equatable {
        package var condition: Phrase
        /// `nil` if it could not be evaluated.
        package var holds: Bool?
        package var value: String?
        /// Whether it depends on more than the device, such as on other objects.
        package var isForeign: Bool

        package init(
            _ condition: Phrase,
            holds: Bool?,
            value: String? = nil,
            isForeign: Bool = false
        ) {
            self.condition = condition
            self.holds = holds
            self.value = value
            self.isForeign = isForeign
        }
    }

    package struct Receipt: Sendable, Equatable {
        package var kind: ReceiptKind
        package var at: Instant

        package init(_ kind: ReceiptKind, at: Instant) {
            self.kind = kind
            self.at = at
        }
    }

    package struct Message: Sendable, Equatable {
        package var storedAt: Instant
        package var expiresAt: Instant

        package init(storedAt: Instant, expiresAt: Instant) {
            self.storedAt = storedAt
            self.expiresAt = expiresAt
        }
    }

    /// The failures of the provider for this app: deliveries that wait after a failed attempt, or an
    /// open circuit breaker.
    package struct Trouble: Sendable, Equatable {
        package var count: Int
        /// Whether the count is a lower bound.
        package var isMore: Bool
        /// Whether a dispatcher has opened its circuit breaker: it says so, or a waiting row does.
        package var isBreaker: Bool
        /// The first known time of a failed attempt.
        package var since: Instant
        package var status: Int?
        package var reason: String?
        /// The time of the next attempt.
        package var dueAt: Instant

        package init(
            count: Int,
            isMore: Bool = false,
            isBreaker: Bool = true,
            since: Instant,
            status: Int?,
            reason: String?,
            dueAt: Instant
        ) {
            self.count = count
            self.isMore = isMore
            self.isBreaker = isBreaker
            self.since = since
            self.status = status
            self.reason = reason
            self.dueAt = dueAt
        }
    }

    /// An entry of the audit.
    package struct Deed: Sendable, Equatable {
        package var actor: String
        package var at: Instant

        package init(actor: String, at: Instant) {
            self.actor = actor
            self.at = at
        }
    }
}
