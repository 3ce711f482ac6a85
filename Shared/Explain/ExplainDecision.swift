package import PushCore
import PushStorage

/// Decides why a device got a push, or why not. Pure: no clock, no I/O.
///
/// Facts that only the push's time can prove come first: a receipt, then the delivery, then the push's
/// own state, then the shard. Only without these the device of now is compared with the audience, and
/// a change of the device since the audience was chosen leaves the answer open where it must.
package struct ExplainDecision: Sendable {
    let facts: ExplainFacts
    let reason: Explanation.Reason

    package static func explain(_ facts: ExplainFacts) -> Explanation {
        let decision = ExplainDecision(facts)
        return Explanation(
            app: facts.app,
            pushID: facts.push?.stored.id,
            installationID: facts.installationID,
            asOf: facts.asOf,
            audienceAt: facts.push?.audienceAt,
            reason: decision.reason,
            sentence: decision.sentence,
            notes: decision.notes,
            nextStep: decision.nextStep,
            steps: decision.steps,
            clauses: decision.clauses,
            payload: facts.payload,
            attempts: decision.attempts,
            causes: decision.causes
        )
    }

    init(_ facts: ExplainFacts) {
        self.facts = facts
        reason = facts.push.map { Self.reason(facts, $0) } ?? Self.reasonWithoutPush(facts)
    }

    // MARK: Without a push

    private static func reasonWithoutPush(_ facts: ExplainFacts) -> Explanation.Reason {
        guard let device = facts.device else { return .installationUnknown }
        if let obstacle = device.obstacle { return obstacle }
        if device.installation.isTemplateOnly { return .templatesOnly }
        if let platform = device.installation.platform, facts.isSwitchedOff(platform) {
            return .switchedOff
        }
        if facts.credentialProblem != nil { return .noCredential }
        if facts.trouble?.isBreaker == true { return .breaker }
        return facts.message == nil ? .reachable : .neverConnected
    }

    // MARK: By receipts, delivery and push

    private static func reason(
        _ facts: ExplainFacts,
        _ push: ExplainFacts.Push
    ) -> Explanation.Reason {
        if facts.receipts.contains(where: { $0.kind == .opened }) { return .opened }
        if facts.receipts.contains(where: { $0.kind == .received }) { return .received }
        if let delivery = facts.delivery { return reason(of: delivery, facts, push) }
        if push.request?.isDryRun == true { return .dryRun }
        switch push.stored.status {
        case .queued: return .accepting
        case .scheduled: return .scheduled
        case .failed: return .pushFailed
        case .cancelled where push.audienceAt == nil: return .cancelled
        case .planning, .sending, .done, .cancelled: return withoutDelivery(facts, push)
        }
    }

    private static func reason(
        of delivery: ExplainFacts.Delivery,
        _ facts: ExplainFacts,
        _ push: ExplainFacts.Push
    ) -> Explanation.Reason {
        switch delivery.state {
        case .delivered:
            if delivery.isToTopic { return .topicMessage }
            if delivery.provider == .connection { return .neverConnected }
            guard let seen = facts.lastSeen else { return .accepted }
            return seen <= delivery.updatedAt ? .neverConnected : .accepted
        case .failed: return failure(of: delivery, facts.device)
        case .expired: return .expired
        case .suppressed: return suppression(delivery.reason ?? "")
        case .inDoubt: return .inDoubt
        case .pending:
            if push.stored.status == .cancelled { return .cancelled }
            if delivery.reason == LocalWait.breaker.rawValue { return .breaker }
            if delivery.isOwned { return .sending }
            return delivery.attempts > 0 || delivery.reason != nil ? .retrying : .waiting
        }
    }

    /// Reads the reason of a suppressed delivery, as the planner and the dispatcher write it.
    private static func suppression(_ text: String) -> Explanation.Reason {
        let invalid = "the installation is invalid"
        if text == "cancelled" { return .cancelled }
        if text == invalid { return .muted }
        if text.hasPrefix(invalid + ": ") {
            return Explanation.Reason(invalid: String(text.dropFirst(invalid.count + 2)))
        }
        if text == "the installation has no device token" || text == "no token" { return .noToken }
        if text == "connections off" || text.hasPrefix("MPNS is switched off") {
            return .switchedOff
        }
        return .suppressed
    }

    /// Classifies the reason of a failed delivery.
    private static func failure(
        of delivery: ExplainFacts.Delivery,
        _ device: ExplainFacts.Device?
    ) -> Explanation.Reason {
        let reason = delivery.reason ?? ""
        if let local = LocalFailure(reason: reason) { return Explanation.Reason(local) }
        switch reason {
        case "PayloadTooLarge": return .tooLarge
        case "BadDeviceToken": return .wrongEnvironment
        case "DeviceTokenNotForTopic", "TopicDisallowed", "BadTopic", "MissingTopic":
            return .wrongTopic
        case "SENDER_ID_MISMATCH": return .wrongSender
        case "Unregistered", "UNREGISTERED", "ExpiredToken": return .tokenInvalid
        case "THIRD_PARTY_AUTH_ERROR", "APNS_AUTH_ERROR", "UNAUTHENTICATED", "PERMISSION_DENIED":
            return .credentialRefused
        default: break
        }
        switch (delivery.status, delivery.provider) {
        case (413, _): return .tooLarge
        case (410, _), (404, .wns), (404, .mpns): return .tokenInvalid
        case (401, _), (403, _): return .credentialRefused
        default: break
        }
        // FCM gives the same code for a bad token and for a bad message.
        let isDead =
            !reason.isEmpty && device?.installation.isValid == false
            && device?.installation.invalidReason == reason
        return isDead ? .tokenInvalid : .rejected
    }

    // MARK: Without a delivery

    private static func withoutDelivery(
        _ facts: ExplainFacts,
        _ push: ExplainFacts.Push
    ) -> Explanation.Reason {
        let audienceAt = push.audienceAt ?? push.stored.createdAt
        let isCancelled = push.stored.status == .cancelled
        if let shard = facts.shard, shard.isMember == true {
            if !shard.isFinished && !shard.isPassed {
                return isCancelled ? .cancelled : waiting(in: shard, facts)
            }
            return isCancelled && shard.cancelled > 0 ? .cancelled : .suppressed
        }
        guard let device = facts.device else {
            let end = push.stored.finishedAt ?? facts.asOf
            guard let deed = facts.deleted, deed.at > audienceAt, deed.at <= end else {
                return .installationUnknown
            }
            return .suppressed
        }
        if let obstacle = device.obstacle {
            guard let since = device.invalidatedAt, since > audienceAt else { return obstacle }
            // It could be sent to when the audience was chosen, and not any more at its turn.
            if facts.shard?.isMember == nil, facts.shard != nil, facts.failingClause == nil {
                return isCancelled ? .cancelled : .suppressed
            }
        }
        if facts.failingClause != nil { return .notInAudience }
        if device.installation.createdAt > audienceAt { return .notInAudienceThen }
        if push.isForTopic, device.installation.platform == .fcm {
            return push.hasDeliveries ? .waiting : .forgotten
        }
        if push.stored.status == .planning { return .planning }
        if isCancelled { return .cancelled }
        if let shard = facts.shard, shard.isMember == nil, !shard.isFinished, !shard.isPassed {
            return waiting(in: shard, facts)
        }
        if !push.hasDeliveries { return .forgotten }
        return device.installation.updatedAt > audienceAt ? .notInAudienceThen : .unknown
    }

    private static func waiting(
        in shard: ExplainFacts.Shard,
        _ facts: ExplainFacts
    ) -> Explanation.Reason {
        if facts.trouble?.isBreaker == true { return .breaker }
        return shard.isOwned ? .sending : .waiting
    }

    // MARK: Conditions

    /// The conditions of the audience, those that every push has first.
    var clauses: [Explanation.Clause] {
        guard let push = facts.push, let device = facts.device else { return [] }
        let audienceAt = push.audienceAt ?? facts.asOf
        let installation = device.installation
        let wasSelected = facts.delivery.map { !$0.isToTopic } ?? false
        let isUnchanged =
            installation.createdAt <= audienceAt && installation.updatedAt <= audienceAt
        let reachable: Bool?
        if wasSelected {
            reachable = true
        } else if let since = device.invalidatedAt, isUnchanged {
            reachable = since > audienceAt
        } else {
            reachable = isUnchanged && push.audienceAt != nil ? device.obstacle == nil : nil
        }
        let own = [
            Explanation.Clause(
                "It is valid, and has a token",
                now: device.obstacle == nil,
                value: device.summary,
                then: reachable
            ),
            Explanation.Clause(
                "It existed when the audience was chosen",
                now: true,
                value: installation.createdAt.iso8601,
                then: push.audienceAt.map { installation.createdAt <= $0 }
            ),
        ]
        return own
            + facts.clauses.map { clause in
                let isKnown = isUnchanged && push.audienceAt != nil && !clause.isForeign
                return Explanation.Clause(
                    clause.condition,
                    now: clause.holds,
                    value: clause.value,
                    then: wasSelected ? true : isKnown ? clause.holds : nil
                )
            }
    }

    // MARK: Attempts

    var attempts: [Explanation.Attempt] {
        guard let delivery = facts.delivery else { return [] }
        let isAnswered = delivery.state != .pending && delivery.attempts > 0
        guard isAnswered, delivery.state != .suppressed, delivery.state != .expired,
            delivery.earlier.last?.number != delivery.attempts
        else { return delivery.earlier }
        return delivery.earlier + [
            Explanation.Attempt(
                number: delivery.attempts,
                provider: delivery.provider,
                status: delivery.status,
                reason: delivery.reason,
                at: delivery.updatedAt,
                messageID: delivery.messageID
            )
        ]
    }
}

extension Explanation.Reason {
    /// Creates the reason for an installation that is invalid by this `invalidReason`.
    init(invalid reason: String?) {
        switch reason {
        case nil: self = .muted
        case Installation.inactiveReason: self = .inactive
        case Installation.hubExpiredReason: self = .registrationExpired
        case "BadDeviceToken": self = .wrongEnvironment
        default: self = .tokenInvalid
        }
    }

    init(_ failure: LocalFailure) {
        switch failure {
        case .payloadTooLarge: self = .tooLarge
        case .templateExpired: self = .registrationExpired
        case .malformedToken: self = .tokenInvalid
        case .hostNotAllowed: self = .rejected
        case .noCredential, .noCredentialOfTopic, .noDefaultCredential, .unusableAPNsCredential,
            .unusableFCMCredential, .unusableWNSCredential, .unusableMPNSCredential, .noMPNSClient,
            .keyDoesNotSign, .tokenEndpoint, .noConnectionClient:
            self = .noCredential
        }
    }
}

extension ExplainFacts {
    var failingClause: ClauseVerdict? { clauses.first { $0.holds == false } }

    /// The time at which the device last saved its installation, or reported about any push.
    var lastSeen: Instant? {
        [device?.installation.updatedAt, lastReport].compactMap(\.self).max()
    }

    func isSwitchedOff(_ platform: Platform) -> Bool {
        switch platform {
        case .mpns: !settings.sendsToMPNS
        case .connection: !settings.sendsToConnections
        case .apns, .fcm, .wns: false
        }
    }
}

extension ExplainFacts.Device {
    /// Why no push reaches it now; `nil` if one does.
    var obstacle: Explanation.Reason? {
        if !installation.isValid { return Explanation.Reason(invalid: installation.invalidReason) }
        return installation.token == nil || installation.platform == nil ? .noToken : nil
    }

    /// The state in a few words: `valid, APNs, sandbox`.
    var summary: String {
        var words = [
            installation.isValid
                ? "valid" : installation.invalidReason.map { "invalid: \($0)" } ?? "muted"
        ]
        if let platform = installation.platform { words.append(platform.shownName) }
        if installation.environment != .none { words.append(installation.environment.rawValue) }
        if installation.token == nil { words.append("no token") }
        return words.joined(separator: ", ")
    }
}

extension Platform {
    /// The provider's name for people.
    package var shownName: String {
        switch self {
        case .apns: "APNs"
        case .fcm: "FCM"
        case .wns: "WNS"
        case .mpns: "MPNS"
        case .connection: "Carillon's connections"
        }
    }
}
