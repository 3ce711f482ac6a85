import JSON
import PushCore

/// The causes that only the device can know. Each has a rank and the reason for it.
extension ExplainDecision {
    var causes: [Explanation.Cause] {
        switch reason {
        case .neverConnected, .accepted, .topicMessage, .inDoubt, .reachable: break
        default: return []
        }
        var causes = [offline, hidden, reporting]
        causes += [oldToken, replaced, silent, stopped, environment].compactMap(\.self)
        return causes.enumerated().sorted {
            ($0.element.rank, $0.offset) < ($1.element.rank, $1.offset)
        }
        .map(\.element)
    }

    private typealias Cause = Explanation.Cause

    private var offline: Cause {
        let cause: Phrase = "It is switched off, or has no network."
        guard let seen = facts.lastSeen, reason != .reachable else {
            return Cause(.possible, cause, "Nothing says when it was last online.")
        }
        return reason == .neverConnected
            ? Cause(
                .likely,
                cause,
                Phrase("It was last heard of at {time}.", ["time": .time(seen)])
            )
            : Cause(
                .unlikely,
                cause,
                Phrase("It was active after the push, at {time}.", ["time": .time(seen)])
            )
    }

    private var hidden: Cause {
        Cause(
            reason == .accepted ? .likely : .possible,
            "The system does not show it: notifications are switched off, or a focus mode is on.",
            "Neither the system nor the provider reports that to senders."
        )
    }

    private var reporting: Cause {
        let cause: Phrase = "It came, and the app did not report it."
        return facts.settings.sendsPushIDs
            ? Cause(.possible, cause, "The setting receipts is on, and the app must still report.")
            : Cause(
                .likely,
                cause,
                "The setting receipts is off: the app does not know the push's id."
            )
    }

    private var oldToken: Cause? {
        guard let time = facts.device?.installation.tokenUpdatedAt,
            facts.device?.installation.platform != .connection
        else { return nil }
        let cause: Phrase = "The token is old: the app was installed again, and has another one."
        let why = Phrase("The app sent this token last at {time}.", ["time": .time(time)])
        let days = (facts.asOf.milliseconds - time.milliseconds) / 86_400_000
        return Cause(days > 30 ? .possible : .unlikely, cause, why)
    }

    private var replaced: Cause? {
        guard let request = facts.push?.request, request.collapseID != nil else { return nil }
        return Cause(
            .possible,
            "A later push with the same collapse id replaced it.",
            "The push has a collapse id."
        )
    }

    private var silent: Cause? {
        guard let request = facts.push?.request, let data = request.data, request.native.isEmpty,
            !Self.isVisible(data)
        else { return nil }
        return Cause(
            .likely,
            "The system withheld it: silent pushes are limited, and not delivered to a closed app.",
            "The push has no text."
        )
    }

    private var stopped: Cause? {
        guard facts.device?.installation.platform == .fcm else { return nil }
        return Cause(
            .possible,
            "The user stopped the app in the settings, or the system saves power.",
            "Android gives a stopped app nothing until it is opened again."
        )
    }

    private var environment: Cause? {
        guard facts.delivery?.provider == .apns, facts.delivery?.state == .delivered else {
            return nil
        }
        return Cause(
            .unlikely,
            "The token is of the other APNs environment.",
            "APNs rejects such a token, and it accepted this one."
        )
    }

    /// Whether the data, or a platform's part of it, has something to show.
    private static func isVisible(_ data: JSONObject) -> Bool {
        data.contains { key, value in
            if key == "alert" || key == "title" || key == "sound" { return true }
            if key.hasPrefix("alert-") || key.hasPrefix("title-") { return true }
            return value.object.map(isVisible) ?? false
        }
    }
}
