/// When a push goes out.
package enum PushTime: Sendable, Equatable {
    case at(Instant)
    /// When the clock of each device shows this; one whose time zone is unknown keeps UTC.
    case local(WallTime)

    /// When the first device may get it.
    package var earliest: Instant {
        switch self {
        case .at(let time): time
        case .local(let time): time.earliest
        }
    }

    /// When the last device may get it, if nothing is late.
    package var latest: Instant {
        switch self {
        case .at(let time): time
        case .local(let time): time.latest
        }
    }
}

/// A date and time as a clock shows it, in no zone, to the millisecond.
package struct WallTime: Hashable, Sendable {
    /// When a clock that keeps UTC shows it.
    package let inUTC: Instant

    /// Reads an ISO 8601 date and time that has no zone: `2026-11-20T21:04:05[.123…]`.
    package init?(iso8601 text: String) {
        guard let time = Instant(iso8601: text + "Z") else { return nil }
        inUTC = time
    }

    /// `YYYY-MM-DDTHH:mm:ss.SSS`.
    package var iso8601: String { String(inUTC.iso8601.dropLast()) }

    /// When the first clocks on earth show it, those of UTC+14.
    package var earliest: Instant { inUTC.adding(milliseconds: -14 * 3_600_000) }

    /// When the last do, those of UTC-12.
    package var latest: Instant { inUTC.adding(milliseconds: 12 * 3_600_000) }
}

extension PushRequest {
    /// When it is to be released; `nil`: at once, as there is no `push_time`, or as it has come
    /// everywhere. A dry run is for whoever asks, so it does not wait. A device-local time is released
    /// when the first clocks show it; what has passed elsewhere by then goes out at once.
    package func releaseTime(acceptedAt now: Instant) -> Instant? {
        guard !isDryRun, let pushTime, pushTime.latest > now else { return nil }
        return pushTime.earliest
    }
}
