import PushCore
import PushStorage

/// The next step of each reason, and the notes beside the sentence.
extension ExplainDecision {
    var nextStep: Phrase {
        switch reason {
        case .notInAudienceThen:
            "Send this push to this device now, or do nothing: it gets the next one."
        case .notInAudience:
            "If it should be in the audience, let the app save the field that is missing."
        case .installationUnknown: "Let the app register again, and look for the new installation."
        case .suppressed: "Nothing: the device was not there at its turn. Send again if it is back."
        case .forgotten:
            "Look for the outcome on push.outcomes, or keep deliveries longer: DELIVERY_RETENTION."
        case .unknown: "Send a test to this device, and explain that push."
        case .muted:
            "Only the app can unmute it: it saves “valid” as true. There is no command for it."
        case .tokenInvalid:
            """
            Wait for the app's next start, which registers a new token. If many were \
            rejected at once, see carillon installations restore.
            """
        case .wrongEnvironment:
            """
            Set apnsEnvironment in the app: sandbox for a build from Xcode, production for \
            TestFlight and the App Store.
            """
        case .inactive:
            "Wait for the app's next start. The setting valid-days says how long it may be silent."
        case .registrationExpired:
            "Let the app register again, with a later expiration time or without one."
        case .noToken: "Let the app ask for a token, and save it with the installation."
        case .templatesOnly:
            "Send a template that the device has, or register it without templates."
        case .switchedOff: "Switch it on with carillon app set, if it should be sent."
        case .noCredential: "Set the credential: carillon credentials list shows which there are."
        case .wrongTopic:
            """
            Compare apnsTopic of the installation with the app's bundle id and the \
            credential's topic.
            """
        case .wrongSender:
            "Compare the project of the FCM credential with the one in the app's build."
        case .credentialRefused: "Check the credential: carillon credentials check."
        default: nextStepOfSent
        }
    }

    private var nextStepOfSent: Phrase {
        switch reason {
        case .expired: "Send it with a later expiry, or a faster pace."
        case .tooLarge: "Shorten it, or use a placeholder with a short fallback."
        case .breaker:
            """
            Look at the provider's health: carillon doctor. Waiting deliveries are sent once\
             it answers.
            """
        case .cancelled: "Send it again as a new push, if it was cancelled by mistake."
        case .neverConnected:
            facts.push == nil || facts.message != nil
                ? "Start the app on the device, so that it connects and fetches what waits."
                : "Send a test to the device while it is on, or set a later expiry."
        case .accepting, .scheduled, .planning, .waiting, .sending: "Wait for its turn."
        case .retrying: "Wait for the next attempt."
        case .pushFailed: "Correct the reason, and send it again."
        case .dryRun: "Send it without dry_run."
        case .rejected: "Read the provider's answer: the request or the content is at fault."
        case .inDoubt: "Ask on the device whether it came, and send it again if not."
        case .topicMessage: "Ask on the device whether the app has subscribed to the topic."
        case .accepted:
            facts.settings.sendsPushIDs
                ? "Look at the causes on the device below, the likely ones first."
                : "Switch on the setting receipts, so that devices can report what they received."
        case .received, .opened: "Nothing: it came."
        default: "Send a test to this device, and explain that push."
        }
    }

    /// Further sentences, the most important first.
    var notes: [Phrase] {
        var notes: [Phrase] = []
        guard let push = facts.push else { return notes }
        let then = push.audienceAt ?? push.stored.createdAt
        if let installation = facts.device?.installation, facts.delivery == nil,
            facts.receipts.isEmpty
        {
            if installation.createdAt > then {
                notes.append(
                    Phrase(
                        "It was first saved at {time}, {late} after the audience was chosen.",
                        [
                            "time": .time(installation.createdAt),
                            "late": .milliseconds(
                                installation.createdAt.milliseconds - then.milliseconds
                            ),
                        ]
                    )
                )
            } else if installation.updatedAt > then {
                notes.append(
                    Phrase(
                        """
                        It was saved last at {time}, {late} after the audience was chosen. \
                        An audience is chosen once, when the push is planned.
                        """,
                        [
                            "time": .time(installation.updatedAt),
                            "late": .milliseconds(
                                installation.updatedAt.milliseconds - then.milliseconds
                            ),
                        ]
                    )
                )
            }
        }
        if facts.delivery != nil, facts.device == nil {
            notes.append("The installation has been deleted since.")
        }
        if let obstacle = facts.device?.obstacle, facts.delivery != nil, obstacle != reason {
            notes.append(
                Phrase(
                    "No further push reaches the device now: {state}.",
                    ["state": .text(facts.device?.summary ?? "")]
                )
            )
        }
        return notes
    }
}
