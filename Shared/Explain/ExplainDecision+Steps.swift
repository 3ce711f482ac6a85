import PushCore
import PushStorage

/// The five steps, with what is known about each. A step that the push did not reach stays.
extension ExplainDecision {
    var steps: [Explanation.Step] {
        [audienceStep, contentStep, blockStep, providerStep, deviceStep]
    }

    /// The step at which the push, or pushes in general, end or wait.
    private var end: Explanation.Step.Question? {
        switch reason {
        case .notInAudienceThen, .notInAudience, .installationUnknown, .inactive,
            .registrationExpired, .noToken, .templatesOnly, .accepting, .scheduled, .planning,
            .pushFailed, .dryRun, .forgotten, .unknown:
            .audience
        case .muted: facts.delivery == nil ? .audience : .block
        case .tokenInvalid, .wrongEnvironment:
            facts.delivery?.state == .failed
                ? .provider : facts.delivery == nil ? .audience : .block
        case .tooLarge: facts.delivery?.status == nil ? .content : .provider
        case .suppressed, .cancelled, .expired, .breaker, .switchedOff, .noCredential, .waiting,
            .sending:
            .block
        case .retrying, .wrongTopic, .wrongSender, .credentialRefused, .rejected, .inDoubt:
            .provider
        case .neverConnected: .device
        case .topicMessage, .accepted, .received, .opened, .reachable: nil
        }
    }

    private func state(of question: Explanation.Step.Question) -> Explanation.Step.State {
        guard let end else { return .passed }
        let all = Explanation.Step.Question.allCases
        guard let own = all.firstIndex(of: question), let last = all.firstIndex(of: end) else {
            return .passed
        }
        return own < last ? .passed : own == last ? .stopped : .notReached
    }

    private func step(
        _ question: Explanation.Step.Question,
        _ summary: Phrase,
        _ facts: [Explanation.Fact]
    ) -> Explanation.Step {
        Explanation.Step(question, state(of: question), summary, facts)
    }

    // MARK: Audience

    private var audienceStep: Explanation.Step {
        var known: [Explanation.Fact] = []
        if let push = facts.push {
            known.append(
                Explanation.Fact(
                    "the audience was chosen at",
                    push.audienceAt.map { .time($0) },
                    push.audienceAt == nil ? .notStored : .then
                )
            )
        }
        if let device = facts.device {
            let installation = device.installation
            known += [
                Explanation.Fact("first saved", .time(installation.createdAt), .then),
                Explanation.Fact("last saved", .time(installation.updatedAt), .now),
                Explanation.Fact("state", .text(device.summary), .now),
            ]
            if let time = device.invalidatedAt {
                known.append(Explanation.Fact("invalid or muted since", .time(time), .now))
            }
            if let time = installation.tokenUpdatedAt {
                known.append(Explanation.Fact("token sent last", .time(time), .now))
            }
        }
        return step(.audience, audienceSummary, known)
    }

    private var audienceSummary: Phrase {
        if facts.push == nil {
            return facts.device == nil
                ? "There is no such installation."
                : end == .audience ? "It is in no audience now." : "It can be in an audience now."
        }
        if facts.delivery?.isToTopic == true {
            return "The message went to a topic. FCM alone knows which devices follow it."
        }
        if facts.delivery != nil || facts.shard?.isMember == true { return "Yes." }
        switch reason {
        case .notInAudienceThen: return "Not then. It would be now."
        case .accepting, .scheduled, .planning: return "That is not decided yet."
        case .received, .opened: return "Yes: the device reported the push."
        case .forgotten, .unknown, .pushFailed, .dryRun: return "That is not stored."
        case .waiting, .breaker, .sending, .cancelled:
            return "It meets every condition now, and its turn did not come."
        default: return "No."
        }
    }

    // MARK: Content

    private var contentStep: Explanation.Step {
        guard facts.push != nil else { return step(.content, "No push is named.", []) }
        guard let payload = facts.payload else {
            return step(.content, "That is not known: there is no provider for the device.", [])
        }
        var known = [
            Explanation.Fact("platform", .text(payload.platform.shownName), .now),
            Explanation.Fact(
                "language",
                .text(payload.locale ?? "the default texts"),
                .now
            ),
        ]
        if let problem = payload.problem {
            known.append(Explanation.Fact("problem", .text(problem), .now))
        } else {
            known.append(Explanation.Fact("bytes", .count(payload.bytes), .now))
        }
        let summary: Phrase =
            facts.delivery == nil
            ? "This would have been sent, made from the device as it is now."
            : "The content, made again from the device as it is now."
        return step(.content, summary, known)
    }

    // MARK: Block

    private var blockStep: Explanation.Step {
        var known: [Explanation.Fact] = []
        if let stored = facts.push?.stored {
            known.append(Explanation.Fact("push", .text(stored.status.rawValue), .now))
            if let time = stored.expiresAt {
                known.append(Explanation.Fact("the push expires at", .time(time), .then))
            }
        }
        if let deed = facts.cancelled {
            known += [
                Explanation.Fact("cancelled at", .time(deed.at)),
                Explanation.Fact("cancelled by", .text(deed.actor)),
            ]
        }
        if let problem = facts.credentialProblem {
            known.append(Explanation.Fact("credential", .text(problem.rawValue), .now))
        }
        if let trouble = facts.trouble {
            if trouble.count > 0 {
                known.append(
                    Explanation.Fact(
                        "deliveries of the app that wait after a failure",
                        .text(trouble.isMore ? "\(trouble.count) or more" : "\(trouble.count)"),
                        .now
                    )
                )
            }
            known.append(Explanation.Fact("the first failed at", .time(trouble.since), .now))
        }
        if facts.delivery == nil || facts.delivery?.state == .delivered {
            known.append(Explanation.Fact("breakers of the dispatchers", nil, .notStored))
        }
        return step(.block, blockSummary, known)
    }

    private var blockSummary: Phrase {
        switch reason {
        case .cancelled: "Yes: the push was cancelled."
        case .expired: "Yes: it had expired."
        case .breaker: "It waits: the provider does not answer."
        case .waiting, .sending: "No. It waits for its turn."
        case .suppressed: "Yes: it was suppressed."
        case .switchedOff: "Yes: the provider is switched off for the app."
        case .noCredential: "Yes: the provider's credential cannot be used."
        case .muted, .tokenInvalid, .wrongEnvironment, .noToken, .inactive, .registrationExpired:
            facts.delivery?.state == .suppressed
                ? "Yes: the installation could not be sent to." : "Not as far as is known today."
        default: facts.delivery == nil ? "Not as far as is known today." : "No."
        }
    }

    // MARK: Provider

    private var providerStep: Explanation.Step {
        let attempts = attempts
        var known: [Explanation.Fact] = []
        if let delivery = facts.delivery {
            known += [
                Explanation.Fact("provider", .text(delivery.provider.shownName)),
                Explanation.Fact("attempts", .count(delivery.attempts)),
            ]
            if delivery.environment != .none {
                known.append(
                    Explanation.Fact("environment", .text(delivery.environment.rawValue))
                )
            }
            if attempts.count < delivery.attempts {
                known.append(Explanation.Fact("answers to earlier attempts", nil, .notStored))
            }
            if delivery.state == .pending, let time = delivery.dueAt {
                known.append(Explanation.Fact("due at", .time(time), .now))
            }
        }
        return step(.provider, providerSummary(attempts), known)
    }

    private func providerSummary(_ attempts: [Explanation.Attempt]) -> Phrase {
        guard let last = attempts.last else {
            return facts.delivery.map { $0.attempts > 0 } == true
                ? "The answer is not stored." : "No attempt was made."
        }
        if facts.delivery?.state == .delivered {
            return Phrase("It was accepted at {time}.", ["time": .time(last.at)])
        }
        if facts.delivery?.state == .inDoubt { return "There was no answer." }
        return Phrase(
            "At {time}: {answer}.",
            [
                "time": .time(last.at),
                "answer": .text(last.reason ?? last.status.map { "status \($0)" } ?? "no answer"),
            ]
        )
    }

    // MARK: Device

    private var deviceStep: Explanation.Step {
        var known = facts.receipts.map { receipt in
            Explanation.Fact(
                receipt.kind == .opened ? "opened at" : "received at",
                .time(receipt.at)
            )
        }
        if let time = facts.lastReport {
            known.append(Explanation.Fact("last report about any push", .time(time), .now))
        }
        if let message = facts.message {
            known += [
                Explanation.Fact("waits since", .time(message.storedAt), .now),
                Explanation.Fact("waits until", .time(message.expiresAt), .now),
            ]
        }
        known.append(
            Explanation.Fact("setting receipts", .flag(facts.settings.sendsPushIDs), .now)
        )
        let summary: Phrase =
            switch reason {
            case .opened: "It was opened."
            case .received: "It was received."
            default: facts.push == nil ? "No push is named." : "Nothing for this push."
            }
        return step(.device, summary, known)
    }
}
