/// The time of sending a push.
package enum PushTime: Sendable, Equatable {
    case at(Instant)
    /// A time on the clock of each device. Devices with an unknown time zone use UTC.
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
    /// The moment when a UTC clock shows this date and time.
    package let inUTC: Instant

    /// Reads an ISO 8601 date and time that has no zone: `2026-11-20T21:04:05[.123…]`.
    package init?(iso8601 text: String) {
        guard let time = Instant(iso8601: text + "Z") else { return nil }
        inUTC = time
    }

    /// `YYYY-MM-DDTHH:mm:ss.SSS`.
    package var iso8601: String { String(inUTC.iso8601.dropLast()) }

    /// The moment when the first clocks on earth show it, in UTC+14.
    package var earliest: Instant { inUTC.adding(milliseconds: -14 * 3_600_000) }

    /// The moment when the last clocks on earth show it, in UTC-12.
    package var latest: Instant { inUTC.adding(milliseconds: 12 * 3_600_000) }
}

extension PushRequest {
    /// Returns when the push is released; `nil` for at once, if it has no `push_time`, or if that
    /// has passed everywhere. A dry run does not wait, as its caller waits for the result. A push
    /// with a device-local time is released when the first clocks show the time. Devices whose
    /// clocks are past it by then get it at once.
    package func releaseTime(acceptedAt now: Instant) -> Instant? {
        guard !isDryRun, let pushTime, pushTime.latest > now else { return nil }
        return pushTime.earliest
    }
}
