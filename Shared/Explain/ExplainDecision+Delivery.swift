import PushCore
import PushStorage

/// The sentences about a delivery, and about what came after it.
extension ExplainDecision {
    var ofDelivery: Phrase {
        switch reason {
        case .expired: expired
        case .tooLarge: tooLarge
        case .breaker: breaker
        case .noCredential:
            Phrase(
                "{provider} cannot be used for it: {problem}.",
                [
                    "provider": .text(providerName),
                    "problem": .text(
                        facts.delivery?.reason ?? facts.credentialProblem?.rawValue
                            ?? LocalFailure.noCredential.rawValue
                    ),
                ]
            )
        case .waiting:
            due.map {
                Phrase("Its turn has not come. It is due at about {time}.", ["time": .time($0)])
            } ?? "Its turn has not come."
        case .sending: "It is being sent just now, or waits in a dispatcher."
        case .retrying:
            Phrase(
                "Attempt {attempt} did not succeed: {answer}. The next one is due at about {time}.",
                [
                    "attempt": .count(facts.delivery?.attempts ?? 0), "answer": .text(answer),
                    "time": .time(due ?? facts.asOf),
                ]
            )
        case .inDoubt:
            Phrase(
                """
                It was sent to {provider}, and no answer came by {time}. It is not repeated,\
                 as it might come twice.
                """,
                ["provider": .text(providerName), "time": .time(answeredAt)]
            )
        default: refused
        }
    }

    private var refused: Phrase {
        let template =
            switch reason {
            case .wrongTopic:
                """
                {provider} rejected it at {time}: {answer}. The token belongs to another \
                app, or the topic is wrong.
                """
            case .wrongSender:
                """
                {provider} rejected it at {time}: {answer}. The token belongs to another \
                Firebase project.
                """
            case .credentialRefused:
                "{provider} rejected the app's credential at {time}: {answer}."
            default: "{provider} rejected it at {time}: {answer}."
            }
        return Phrase(
            template,
            [
                "provider": .text(providerName), "time": .time(answeredAt),
                "answer": .text(answer),
            ]
        )
    }

    private var expired: Phrase {
        let turn = answeredAt
        guard let end = facts.delivery?.expiresAt ?? facts.push?.stored.expiresAt, end <= turn
        else {
            return Phrase(
                "It expired at {time}: {reason}.",
                ["time": .time(turn), "reason": .text(facts.delivery?.reason ?? "expired")]
            )
        }
        let late = turn.milliseconds - end.milliseconds
        let template =
            (facts.delivery?.attempts ?? 0) > 0
            ? "Every attempt failed until the push expired at {end}; the last answer was {answer}."
            : "Its turn came at {time}, {late} after the push had expired."
        return Phrase(
            template,
            [
                "time": .time(turn), "late": .milliseconds(late), "end": .time(end),
                "answer": .text(answer),
            ]
        )
    }

    private var tooLarge: Phrase {
        // LocalFailure.payloadTooLarge, followed by "4131 bytes of at most 4096".
        let words = (facts.delivery?.reason ?? "").split(separator: " ")
        let numbers = words.compactMap { Int($0) }
        if numbers.count == 2 {
            return Phrase(
                """
                With this device's values the payload had {bytes} bytes; the limit of \
                {provider} is {limit}.
                """,
                [
                    "bytes": .count(numbers[0]), "limit": .count(numbers[1]),
                    "provider": .text(providerName),
                ]
            )
        }
        return Phrase(
            "{provider} rejected it at {time} as too large: {answer}.",
            [
                "provider": .text(providerName), "time": .time(answeredAt),
                "answer": .text(answer),
            ]
        )
    }

    private var breaker: Phrase {
        let due = due ?? facts.trouble?.dueAt ?? facts.asOf
        guard let trouble = facts.trouble else {
            return Phrase(
                """
                {provider} did not answer, and its circuit breaker was open at {since}; the \
                delivery is due at about {time}.
                """,
                [
                    "provider": .text(providerName), "since": .time(answeredAt),
                    "time": .time(due),
                ]
            )
        }
        let template =
            facts.push == nil
            ? """
            {provider} has not accepted deliveries of this app since {since}: {answer}. They\
             are due at about {time}.
            """
            : """
            {provider} has not accepted deliveries of this app since {since}: {answer}. This\
             one is due at about {time}.
            """
        return Phrase(
            template,
            [
                "provider": .text(providerName), "since": .time(trouble.since),
                "answer": .text(
                    trouble.reason ?? trouble.status.map { "status \($0)" } ?? "no answer"
                ),
                "time": .time(due),
            ]
        )
    }

    var ofArrival: Phrase {
        switch reason {
        case .opened, .received: reported
        case .topicMessage:
            Phrase(
                """
                FCM accepted the message to the topic at {time}. Which devices follow the \
                topic only FCM knows.
                """,
                ["time": .time(answeredAt)]
            )
        case .accepted:
            Phrase(
                """
                {provider} accepted it at {time}. The device was active since, and has \
                reported nothing about this push.
                """,
                ["provider": .text(providerName), "time": .time(answeredAt)]
            )
        case .reachable:
            "Nothing that Carillon knows keeps pushes from this device."
        default: neverConnected
        }
    }

    private var reported: Phrase {
        let kind: ReceiptKind = reason == .opened ? .opened : .received
        let at = facts.receipts.first { $0.kind == kind }?.at ?? facts.asOf
        return kind == .opened
            ? Phrase("It was opened on the device at {time}.", ["time": .time(at)])
            : Phrase("The device received it at {time}.", ["time": .time(at)])
    }

    private var neverConnected: Phrase {
        if let message = facts.message {
            return Phrase(
                "It waits for the device since {time}, until {end}: the device has not connected.",
                ["time": .time(message.storedAt), "end": .time(message.expiresAt)]
            )
        }
        if facts.delivery?.provider == .connection {
            return Phrase(
                """
                It was stored for the device at {time}, and the device never fetched it: it \
                expired, or newer messages displaced it.
                """,
                ["time": .time(answeredAt)]
            )
        }
        let seen = facts.lastSeen ?? answeredAt
        guard let end = facts.delivery?.expiresAt ?? facts.push?.stored.expiresAt else {
            return Phrase(
                "{provider} accepted it at {time}; the device has reported nothing since {seen}.",
                [
                    "provider": .text(providerName), "time": .time(answeredAt),
                    "seen": .time(seen),
                ]
            )
        }
        return Phrase(
            """
            {provider} accepted it at {time} and stores it until {end}; the device has \
            reported nothing since {seen}.
            """,
            [
                "provider": .text(providerName), "time": .time(answeredAt), "end": .time(end),
                "seen": .time(seen),
            ]
        )
    }

    /// The last answer in words.
    var answer: String {
        guard let delivery = facts.delivery else { return "no answer" }
        return delivery.reason ?? delivery.status.map { "status \($0)" } ?? "no answer"
    }

    var answeredAt: Instant { facts.delivery?.updatedAt ?? facts.asOf }

    /// The time at which the delivery, or the shard with it, is due.
    var due: Instant? { facts.delivery?.dueAt ?? facts.shard?.dueAt }
}
