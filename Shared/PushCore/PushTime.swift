/// The time of sending a push.
package enum PushTime: Sendable, Equatable {
    case at(Instant)
    /// A time on the clock of each device; devices with an unknown time zone use UTC.
    case local(LocalDateTime)

    /// The time at which the first device may get it.
    package var earliest: Instant {
        switch self {
        case .at(let time): time
        case .local(let time): time.earliest
        }
    }

    /// The time at which the last device may get it, if nothing is late.
    package var latest: Instant {
        switch self {
        case .at(let time): time
        case .local(let time): time.latest
        }
    }
}

/// A date and time without a zone, to the millisecond.
package struct LocalDateTime: Hashable, Sendable {
    /// The moment when a UTC clock shows it.
    package let inUTC: Instant

    /// Reads an ISO 8601 date and time that has no zone: `2026-11-20T21:04:05[.123…]`.
    package init?(iso8601 text: String) {
        guard let time = Instant(iso8601: text + "Z") else { return nil }
        inUTC = time
    }

    /// `YYYY-MM-DDTHH:mm:ss.SSS`.
    package var iso8601: String { String(inUTC.iso8601.dropLast()) }

    /// The moment when the first clocks on earth show it, those of UTC+14.
    package var earliest: Instant { inUTC.adding(milliseconds: -14 * 3_600_000) }

    /// The moment when the last clocks show it, those of UTC-12.
    package var latest: Instant { inUTC.adding(milliseconds: 12 * 3_600_000) }
}

extension PushRequest {
    /// Returns when it is to be released; `nil`: at once, if there is no `push_time`, or if it has
    /// passed everywhere. A dry run answers its caller, so it does not wait. A device-local time is
    /// released when the first clocks show it; devices where it has passed by then get it at once.
    package func releaseTime(acceptedAt now: Instant) -> Instant? {
        guard !isDryRun, let pushTime, pushTime.latest > now else { return nil }
        return pushTime.earliest
    }
}
