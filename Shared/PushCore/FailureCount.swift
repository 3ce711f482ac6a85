package import JSON

/// How many deliveries of a push failed at one provider for one reason.
package struct FailureCount: Equatable, Sendable {
    package var provider: Platform
    package var reason: String
    package var count: Int

    package init(provider: Platform, reason: String, count: Int) {
        self.provider = provider
        self.reason = reason
        self.count = count
    }

    /// What a push's record shows of them: the ten most frequent.
    package static let shown = 10

    /// How the reason begins of what is too large, whatever its size: it is counted as one.
    package static let tooLarge = LocalFailure.payloadTooLarge.rawValue

    /// The reason as it is counted: bounded, and the same for what differs by a size alone.
    package static func reason(_ text: String?, status: Int?) -> String {
        guard let text, !text.isEmpty else {
            return status.map { "status \($0)" } ?? "no reason given"
        }
        guard !text.utf8.starts(with: tooLarge.utf8) else { return tooLarge }
        return String(String.UnicodeScalarView(text.unicodeScalars.prefix(200)))
    }
}

extension [FailureCount] {
    /// Those of several pushes, the most frequent first.
    package static func together(_ lists: [[FailureCount]]) -> [FailureCount] {
        var sums: [FailureCount] = []
        for failure in lists.joined() {
            let known = sums.firstIndex {
                $0.provider == failure.provider && $0.reason.utf8.elementsEqual(failure.reason.utf8)
            }
            if let known { sums[known].count += failure.count } else { sums.append(failure) }
        }
        return sums.sorted { $0.count > $1.count }
    }

    /// As every surface shows it: `[{"provider", "reason", "count"}]`, the most frequent first.
    package var json: JSONValue {
        .array(
            prefix(FailureCount.shown).map { failure in
                [
                    "provider": .string(failure.provider.rawValue),
                    "reason": .string(failure.reason), "count": JSONValue(failure.count),
                ]
            }
        )
    }
}
