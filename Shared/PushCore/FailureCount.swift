package import JSON

/// The number of deliveries of a push that failed at one provider for one reason.
package struct FailureCount: Equatable, Sendable {
    package var provider: Platform
    package var reason: String
    package var count: Int

    package init(provider: Platform, reason: String, count: Int) {
        self.provider = provider
        self.reason = reason
        self.count = count
    }

    /// The most failures that a push's record shows; it shows the most frequent.
    package static let shown = 10

    /// The first words of the reason of payloads that are too large. They are counted together,
    /// whatever their size.
    package static let tooLarge = LocalFailure.payloadTooLarge.rawValue

    /// Returns the reason under which a failure is counted: bounded, and without sizes.
    package static func reason(_ text: String?, status: Int?) -> String {
        guard let text, !text.isEmpty else {
            return status.map { "status \($0)" } ?? "no reason given"
        }
        guard !text.utf8.starts(with: tooLarge.utf8) else { return tooLarge }
        return String(String.UnicodeScalarView(text.unicodeScalars.prefix(200)))
    }
}

extension [FailureCount] {
    /// Adds up the counts of several pushes. The most frequent come first.
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

    /// The counts as every surface shows them: `[{"provider", "reason", "count"}]`, the most frequent first.
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
