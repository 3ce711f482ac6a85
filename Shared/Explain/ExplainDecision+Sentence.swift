import PushCore
import PushStorage

/// The sentence of each reason.
extension ExplainDecision {
    var sentence: Phrase {
        switch reason {
        case .notInAudienceThen, .notInAudience, .installationUnknown, .suppressed, .forgotten,
            .unknown:
            ofAudience
        case .muted, .tokenInvalid, .wrongEnvironment, .inactive, .registrationExpired, .noToken,
            .templatesOnly, .switchedOff:
            ofInstallation
        case .accepting, .scheduled, .planning, .pushFailed, .dryRun, .cancelled: ofPush
        case .expired, .tooLarge, .breaker, .waiting, .retrying, .sending, .noCredential,
            .wrongTopic, .wrongSender, .credentialRefused, .rejected, .inDoubt:
            ofDelivery
        case .neverConnected, .topicMessage, .accepted, .received, .opened, .reachable: ofArrival
        }
    }

    private var ofAudience: Phrase {
        let then = facts.push?.audienceAt ?? facts.push?.stored.createdAt ?? facts.asOf
        switch reason {
        case .notInAudienceThen:
            return Phrase(
                "It was not in the audience when that was chosen at {time}. It would be now.",
                ["time": .time(then)]
            )
        case .notInAudience:
            let condition = facts.failingClause?.condition ?? "the push's conditions"
            return isUnchanged(since: then)
                ? Phrase(
                    """
                    It was not in the audience: it does not meet “{condition}”, and has not \
                    changed since the push.
                    """,
                    ["condition": .phrase(condition)]
                )
                : Phrase(
                    """
                    It is not in the audience now: it does not meet “{condition}”. Its state\
                     at {time} is not stored.
                    """,
                    ["condition": .phrase(condition), "time": .time(then)]
                )
        case .installationUnknown:
            guard let deed = facts.deleted else {
                return "There is no such installation. It never was saved, or it was deleted."
            }
            return Phrase(
                "The installation was deleted at {time} by {actor}.",
                ["time": .time(deed.at), "actor": .text(deed.actor)]
            )
        case .suppressed: return suppressed
        case .forgotten:
            return Phrase(
                """
                The deliveries of this push are no longer stored. Its audience was chosen at\
                 {time}.
                """,
                ["time": .time(then)]
            )
        default:
            return
                """
                There is no delivery for it, although it meets every condition now and has \
                not changed since.
                """
        }
    }

    private var suppressed: Phrase {
        if let text = facts.delivery?.reason {
            return Phrase("Its delivery was suppressed: {reason}.", ["reason": .text(text)])
        }
        guard let device = facts.device else {
            return facts.deleted.map {
                Phrase(
                    "The device was deleted at {time}, after planning and before its turn.",
                    ["time": .time($0.at)]
                )
            } ?? "The device was deleted after planning and before its turn."
        }
        guard device.obstacle != nil else {
            return
                """
                The device could not be sent to at its turn: after planning it was deleted, \
                muted or invalid for a while.
                """
        }
        return device.invalidatedAt.map {
            Phrase(
                "The device became invalid at {time}, after planning and before its turn.",
                ["time": .time($0)]
            )
        } ?? "The device became invalid after planning and before its turn."
    }

    private var ofInstallation: Phrase {
        let since = facts.device?.invalidatedAt
        let provider = providerName
        switch reason {
        case .muted:
            return since.map {
                Phrase("The app muted it at {time}: “valid” is false.", ["time": .time($0)])
            } ?? "The app muted it: “valid” is false. The time is not stored."
        case .wrongEnvironment: return wrongEnvironment
        case .tokenInvalid: return tokenInvalid
        case .inactive:
            return Phrase(
                "It is inactive: the app did not contact Carillon for {days} days.",
                ["days": .count(facts.settings.validDays)]
            )
        case .registrationExpired:
            return "Its registration has expired, at the time that the app set itself."
        case .noToken:
            return
                """
                It has no token: the app has not registered with a push service yet, or \
                another installation took over its token.
                """
        case .templatesOnly:
            return "It receives only template sends, and this push is not one."
        default:
            return Phrase(
                "Pushes by {provider} are switched off for this app.",
                ["provider": .text(provider)]
            )
        }
    }

    private var tokenInvalid: Phrase {
        let word = facts.device?.installation.invalidReason ?? facts.delivery?.reason
        let answer = word ?? facts.delivery?.status.map { "status \($0)" } ?? "no reason given"
        if let delivery = facts.delivery, delivery.state == .failed {
            return Phrase(
                "Its token was invalid: {provider} rejected this push at {time}: {answer}.",
                [
                    "provider": .text(delivery.provider.shownName),
                    "time": .time(delivery.updatedAt),
                    "answer": .text(
                        delivery.reason ?? delivery.status.map { "status \($0)" } ?? answer
                    ),
                ]
            )
        }
        guard let since = facts.device?.invalidatedAt else {
            return Phrase(
                "Its token was rejected by {provider}: {answer}. The time is not stored.",
                ["provider": .text(providerName), "answer": .text(answer)]
            )
        }
        let template =
            facts.push == nil
            ? "Its token was rejected at {time} by {provider}: {answer}."
            : "Its token was rejected before this push, at {time}, by {provider}: {answer}."
        return Phrase(
            template,
            [
                "time": .time(since), "provider": .text(providerName), "answer": .text(answer),
            ]
        )
    }

    private var wrongEnvironment: Phrase {
        let named = facts.device?.installation.environment ?? .none
        if let delivery = facts.delivery, delivery.state == .failed {
            let used =
                delivery.environment == .none ? PushEnvironment.production : delivery.environment
            return Phrase(
                """
                The token does not belong to {environment}, where it was sent at {time}: \
                APNs answered BadDeviceToken. Most likely it belongs to {other}.
                """,
                [
                    "environment": .text(used.rawValue), "time": .time(delivery.updatedAt),
                    "other": .text(used.other.rawValue),
                ]
            )
        }
        guard let since = facts.device?.invalidatedAt, named != .none else {
            return
                """
                The token belongs to the other APNs environment: an earlier push was \
                answered BadDeviceToken.
                """
        }
        return Phrase(
            """
            The token does not belong to {environment}: APNs answered an earlier push \
            BadDeviceToken at {time}. Most likely it belongs to {other}.
            """,
            [
                "environment": .text(named.rawValue), "time": .time(since),
                "other": .text(named.other.rawValue),
            ]
        )
    }

    private var ofPush: Phrase {
        guard let push = facts.push else { return "There is no push." }
        switch reason {
        case .accepting: return "The push is accepted, and its audience is not chosen yet."
        case .scheduled:
            return push.stored.releaseAt.map {
                Phrase("The push waits for its time, {time}.", ["time": .time($0)])
            } ?? "The push waits for its time."
        case .planning: return "The push's audience is being chosen, and its turn has not come."
        case .pushFailed:
            return Phrase(
                "The push failed as a whole: {error}.",
                ["error": .text(push.stored.error ?? "no reason is stored")]
            )
        case .dryRun: return "The push was a dry run: it is counted, and sent to no device."
        default:
            let deed = facts.cancelled
            return Phrase(
                "{actor} cancelled the push at {time}, before this device's turn.",
                [
                    "actor": deed.map { .text($0.actor) } ?? .phrase("A caller that is not stored"),
                    "time": .time(deed?.at ?? push.stored.finishedAt ?? push.stored.updatedAt),
                ]
            )
        }
    }

    private func isUnchanged(since then: Instant) -> Bool {
        guard let installation = facts.device?.installation else { return false }
        return installation.updatedAt <= then && facts.failingClause?.isForeign != true
    }

    /// The provider of the delivery, else of the device.
    var providerName: String {
        (facts.delivery?.provider ?? facts.device?.installation.platform)?.shownName
            ?? "the provider"
    }
}

extension PushEnvironment {
    var other: PushEnvironment { self == .sandbox ? .production : .sandbox }
}
